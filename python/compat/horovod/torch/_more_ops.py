"""allgather, alltoall, reducescatter, sparse allreduce, join and barrier of horovod.torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import hora
from hora.group import NAMED, SIZES, Call, Kind

from ..common.basics import Average, NotInitialized, Sum
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set
from ._allreduce_ops import allreduce
from ._check import device_of, dtype_code, host
from ._handles import complete, group_of, internal, label, next_handle, start, synchronize

__all__ = [
    "allgather", "allgather_async", "alltoall", "alltoall_async", "barrier", "grouped_allgather",
    "grouped_allgather_async", "join", "sparse_allreduce_async",
]  # fmt: skip

_ALLGATHER, _ALLTOALL = int(Kind.ALLGATHER), int(Kind.ALLTOALL)


def _row(t: torch.Tensor) -> int:
    """Elements of one row of the first dimension."""
    n = 1
    for d in t.shape[1:]:
        n *= d
    return n


def _filled(t: torch.Tensor) -> torch.Tensor:
    """t in host memory. Rows without an element are sent as rows of one: how many each rank has is told by what
    comes."""
    return host(t) if _row(t) or t.dim() == 0 else torch.zeros(t.shape[0], dtype=t.dtype)


def _rows_of(tensors: Sequence[torch.Tensor], did: str, why: str) -> None:
    """Raise for a tensor without rows. It was sent all the same, so that ranks which brought another shape hear of
    it."""
    if any(t.dim() == 0 for t in tensors):
        raise HorovodInternalError(f"Rank zero tried to {did} a rank-zero tensor: {why}; call .reshape(1) first")


def _fetch(group: hora.Group, ticket: int, like: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """The tensor that the library allocated for a ticket's result, and the rows from each rank."""
    left = group.result(ticket)
    row = _row(like)
    rows = [c // (row or 1) for c in left.counts]
    shape = (sum(rows), *like.shape[1:])
    if left.memory is None or left.memory.nbytes == 0 or row == 0:
        out = torch.empty(shape, dtype=like.dtype)
    else:
        out = torch.frombuffer(left.memory.view(), dtype=torch.uint8).view(like.dtype).view(shape)
    return out.to(like.device), rows


# -- allgather


def _gather(tensors: Sequence[torch.Tensor], name: str | None, prefix: str, ps: ProcessSet, single: bool) -> int:
    group = group_of(ps)
    handle = next_handle()
    base, flags = label(prefix, name, handle)
    calls, keep = [], []
    for i, t in enumerate(tensors):
        number = dtype_code(t)
        a = _filled(t)
        keep.append(a)
        calls.append(Call(
            _ALLGATHER, 0, number, 0, a.data_ptr(), 0, a.numel(), recv_count=0, row=_row(t) or 1, flags=flags | SIZES,
            name=base if single else f"{base}_{i + 1}of{len(tensors)}", shape=t.shape, device=device_of(t),
        ))  # fmt: skip

    def finish(tickets: list[int]) -> Any:
        _rows_of(tensors, "gather", "rows are what is joined")
        outs = [_fetch(group, ticket, t)[0] for ticket, t in zip(tickets, tensors, strict=True)]
        return outs[0] if single else outs

    return start(handle, group, calls, finish, (keep, tensors), name and base)


class _Allgather(torch.autograd.Function):
    """Its gradient: the average over ranks of this rank's part."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Any, ps: ProcessSet) -> torch.Tensor:
        out = complete(allgather_async(tensor, name, ps))
        ctx.rows, ctx.ps = tensor.shape[0], ps
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return _my_part(grad, ctx.rows, ctx.ps), None, None


def _my_part(grad: torch.Tensor, rows: int, ps: ProcessSet) -> torch.Tensor:
    total = allreduce(grad.contiguous(), op=Average, process_set=ps)
    every = allgather(torch.tensor([rows], dtype=torch.int64), process_set=ps)
    at = int(every[: ps.rank()].sum())
    return total[at : at + rows]


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """All ranks' tensors joined along the first dimension, whose size may differ. Gradients flow through it."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Allgather.apply(tensor, name, process_set)
    return complete(allgather_async(tensor, name, process_set))


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start allgather and return a handle."""
    return _gather([tensor], name, "allgather", process_set, True)


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, ps: ProcessSet, *tensors: torch.Tensor) -> tuple:
        outs = complete(grouped_allgather_async(list(tensors), name, ps))
        ctx.rows, ctx.ps = [t.shape[0] for t in tensors], ps
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        return (None, None, *(_my_part(g, rows, ctx.ps) for g, rows in zip(grads, ctx.rows, strict=True)))


def grouped_allgather(
    tensors: list[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """allgather of several tensors as one unit. Gradients flow through it."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return list(_GroupedAllgather.apply(name, process_set, *tensors))
    return complete(grouped_allgather_async(tensors, name, process_set))


def grouped_allgather_async(
    tensors: list[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start grouped_allgather and return a handle."""
    return _gather(list(tensors), name, "grouped_allgather", process_set, False)


# -- alltoall


def _splits(splits: Any, tensor: torch.Tensor, size: int) -> list[int]:
    """Rows for each rank, checked."""
    rows = tensor.shape[0]
    if splits is None:
        if rows % size:
            raise ValueError(
                f"Tensor's first dimension of {rows} is not divisible by the number of ranks {size}: give splits"
            )
        return [rows // size] * size
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32:
            raise ValueError(
                f"alltoall expects a 32-bit integer splits tensor, not {splits.dtype}: call .to(torch.int32)"
            )
        splits = splits.tolist()
    counts = [int(s) for s in splits]
    if len(counts) != size:
        raise ValueError(f"Number of entries in splits does not equal number of ranks: {len(counts)} for {size} ranks")
    if sum(counts) > rows or min(counts) < 0:
        raise ValueError(
            f"Sum of splits entries is greater than the first dimension of tensor: {counts} for {rows} rows"
        )
    return counts


class _Alltoall(torch.autograd.Function):
    """Its gradient: the rows go back to where they came from."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: Any, ps: ProcessSet) -> Any:
        ctx.ps, ctx.rows = ps, tensor.shape[0]
        asked = splits if splits is not None else torch.tensor(_splits(None, tensor, ps.size()), dtype=torch.int32)
        out, received = complete(alltoall_async(tensor, asked, name, ps))
        ctx.received = received
        if splits is None:
            return out
        ctx.mark_non_differentiable(received)
        return out, received

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple:
        back, _got = alltoall(grad.contiguous(), splits=ctx.received, process_set=ctx.ps)
        if back.shape[0] < ctx.rows:  # rows that were sent to nobody
            back = torch.cat([back, back.new_zeros((ctx.rows - back.shape[0], *back.shape[1:]))])
        return back, None, None, None


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Send splits[j] rows to rank j; (what came, rows from each rank), or only the former without splits."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Alltoall.apply(tensor, splits, name, process_set)
    return complete(alltoall_async(tensor, splits, name, process_set))


def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start alltoall and return a handle."""
    group = group_of(process_set)
    number = dtype_code(tensor)
    if tensor.dim() == 0:
        raise ValueError("alltoall of a rank-zero tensor: it sends rows of the first dimension; call .reshape(1) first")
    counts = _splits(splits, tensor, group.size)
    handle = next_handle()
    row = _row(tensor) or 1
    a = _filled(tensor)
    called, flags = label("alltoall", name, handle)
    call = Call(
        _ALLTOALL, 0, number, 0, a.data_ptr(), 0, sum(counts) * row, recv_count=0, row=row,
        send_counts=[c * row for c in counts],
        flags=flags | SIZES, shape=tensor.shape, device=device_of(tensor), name=called,
    )  # fmt: skip

    def finish(tickets: list[int]) -> Any:
        out, rows = _fetch(group, tickets[0], tensor)
        return out if splits is None else (out, torch.tensor(rows, dtype=torch.int32))

    return start(handle, group, [call], finish, a, name and called)


# -- reducescatter


# -- sparse, join, barrier


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: Any, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start the sum or average of sparse (COO) tensors; calling what is returned waits and gives the result."""
    if op not in (Average, Sum):
        raise ValueError("sparse_allreduce_async: only hvd.Average and hvd.Sum are offered for sparse tensors")
    t = tensor.detach()
    if not t.is_coalesced():
        t = t.coalesce()
    indices = allgather_async(t.indices().t().contiguous(), name=f"{name}.indices", process_set=process_set)
    values = allgather_async(t.values().contiguous(), name=f"{name}.values", process_set=process_set)

    def result() -> torch.Tensor:
        v = synchronize(values)
        i = synchronize(indices)
        if op == Average:
            v = v / process_set.size()
        return torch.sparse_coo_tensor(i.t(), v, tensor.size(), device=tensor.device, check_invariants=False)

    return result


def join(device: int = -1) -> int:
    """Say that this rank has no more data: zeros go to the others' allreduces until all have joined.

    Returns the last rank that joined, the same on every rank.
    """
    if not hora.is_initialized():
        raise NotInitialized()
    try:
        return global_process_set.group.join()
    except hora.HoraError as error:
        raise internal(error) from error


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when every rank of the set has come here."""
    group = group_of(process_set)
    handle = next_handle()
    complete(start(handle, group, [Call(Kind.BARRIER, name="barrier.noname", flags=NAMED)], lambda _: None, None))
