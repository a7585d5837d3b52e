"""Horovod's reduce-scatters of PyTorch tensors, one by one and in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hora.group import Call, Kind

from ..common.basics import Average, Sum
from ..common.process_sets import ProcessSet, global_process_set
from ._check import device_of, dtype_code, host, scatter_operator
from ._handles import complete, group_of, label, next_handle, start
from ._more_ops import _row, _rows_of, allgather
from .compression import Compression

__all__ = ["grouped_reducescatter", "grouped_reducescatter_async", "reducescatter", "reducescatter_async"]

_REDUCE_SCATTER = int(Kind.REDUCE_SCATTER)


def _share(rows: int, size: int, rank: int) -> int:
    return rows // size + (1 if rank < rows % size else 0)


def _scatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    prefix: str,
    op: Any,
    pre: float,
    post: float,
    ps: ProcessSet,
    single: bool,
) -> int:
    group = group_of(ps)
    which = scatter_operator(op)
    handle = next_handle()
    base, flags = label(prefix, name, handle)
    size, rank = group.size, group.rank
    calls, keep, back = [], [], []
    for i, t in enumerate(tensors):
        number = dtype_code(t)
        row = _row(t)
        length = t.shape[0] if t.dim() else 1
        counts = [_share(length, size, r) * row for r in range(size)]
        a = host(t)
        b = torch.empty((_share(length, size, rank), *t.shape[1:]), dtype=t.dtype)
        keep += [a, b]
        back.append((b, t.device))
        calls.append(Call(
            _REDUCE_SCATTER, which, number, 0, a.data_ptr(), b.data_ptr(), a.numel(), recv_count=b.numel(),
            recv_counts=None if len(set(counts)) == 1 else counts, prescale=pre, postscale=post, flags=flags,
            name=base if single else f"{base}_{i + 1}of{len(tensors)}", shape=t.shape, device=device_of(t),
        ))  # fmt: skip

    def finish(_: list[int]) -> Any:
        _rows_of(tensors, "reducescatter", "rows are what is scattered")
        done = [b if d.type == "cpu" else b.to(d) for b, d in back]
        return done[0] if single else done

    return start(handle, group, calls, finish, keep, name and base)


class _Reducescatter(torch.autograd.Function):
    """Its gradient: everybody's gradient joined (times the number of ranks for a sum)."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: Any, op: Any, pre: float, post: float, ps: ProcessSet
    ) -> torch.Tensor:
        ctx.settings = (op, pre, post, ps)
        return complete(reducescatter_async(tensor, name, op, ps, pre, post))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        op, pre, post, ps = ctx.settings
        return _join_back(grad, op, pre, post, ps), None, None, None, None, None


def _join_back(grad: torch.Tensor, op: Any, pre: float, post: float, ps: ProcessSet) -> torch.Tensor:
    if op == Sum:
        grad = grad * ps.size()
    if pre != 1.0 or post != 1.0:
        grad = grad * (pre * post)
    return allgather(grad.contiguous(), process_set=ps)


def reducescatter(
    tensor: torch.Tensor, name: str | None = None, compression: Any = Compression.none, op: Any = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """Reduce over all ranks and keep this rank's rows. Gradients flow through it."""
    small, ctx = compression.compress(tensor)
    if small.requires_grad and torch.is_grad_enabled():
        out = _Reducescatter.apply(small, name, op, prescale_factor, postscale_factor, process_set)
    else:
        out = complete(reducescatter_async(small, name, op, process_set, prescale_factor, postscale_factor))
    return compression.decompress(out, ctx)


def reducescatter_async(
    tensor: torch.Tensor, name: str | None = None, op: Any = Average, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> int:  # fmt: skip
    """Start reducescatter and return a handle."""
    return _scatter([tensor], name, "reducescatter", op, prescale_factor, postscale_factor, process_set, True)


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, op: Any, pre: float, post: float, ps: ProcessSet, *tensors: torch.Tensor) -> tuple:
        ctx.settings = (op, pre, post, ps)
        return tuple(complete(grouped_reducescatter_async(list(tensors), name, op, ps, pre, post)))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        return (None, None, None, None, None, *(_join_back(g, *ctx.settings) for g in grads))


def grouped_reducescatter(
    tensors: list[torch.Tensor], name: str | None = None, compression: Any = Compression.none, op: Any = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[torch.Tensor]:  # fmt: skip
    """reducescatter of several tensors as one unit. Gradients flow through it."""
    pairs = [compression.compress(t) for t in tensors]
    small = [t for t, _ in pairs]
    if torch.is_grad_enabled() and any(t.requires_grad for t in small):
        outs = _GroupedReducescatter.apply(name, op, prescale_factor, postscale_factor, process_set, *small)
    else:
        outs = complete(grouped_reducescatter_async(small, name, op, process_set, prescale_factor, postscale_factor))
    return [compression.decompress(out, ctx) for out, (_, ctx) in zip(outs, pairs, strict=True)]


def grouped_reducescatter_async(
    tensors: list[torch.Tensor], name: str | None = None, op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> int:  # fmt: skip
    """Start grouped_reducescatter and return a handle."""
    return _scatter(
        list(tensors), name, "grouped_reducescatter", op, prescale_factor, postscale_factor, process_set, False
    )
