"""horovod.torch's collectives.

Every call has a name, "<operation>.<name>" or "<operation>.noname.<handle>", and matches the other ranks' call of
that name whatever the order.
"""

from __future__ import annotations

from typing import Any

import torch

from hora.group import Kind

from ..common import basics
from ..common.basics import Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ._check import device_of, dtype_code, host, operator, root_in
from ._fast import begin_here, forget, reduce_here
from ._handles import _handle_map, group_of, next_handle, poll, run, start, synchronize
from ._more_ops import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    grouped_allgather,
    grouped_allgather_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from .compression import Compression

__all__ = [
    "Adasum", "Average", "Compression", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built",
    "gloo_enabled", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init",
    "is_homogeneous", "is_initialized", "join", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "poll", "rank", "reducescatter", "reducescatter_async", "remove_process_set",
    "rocm_built", "shutdown", "size", "sparse_allreduce_async", "start_timeline", "stop_timeline", "synchronize",
]  # fmt: skip

_basics = HorovodBasics(__file__, "mpi_lib_v2")

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size, local_size, cross_size = _basics.size, _basics.local_size, _basics.cross_size
rank, local_rank, cross_rank = _basics.rank, _basics.local_rank, _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported, mpi_enabled, mpi_built = _basics.mpi_threads_supported, _basics.mpi_enabled, _basics.mpi_built
gloo_enabled, gloo_built = _basics.gloo_enabled, _basics.gloo_built
nccl_built, ddl_built, ccl_built = _basics.nccl_built, _basics.ddl_built, _basics.ccl_built
cuda_built, rocm_built = _basics.cuda_built, _basics.rocm_built

basics.on_shutdown(forget)

_ALLREDUCE = int(Kind.ALLREDUCE)
_BROADCAST = int(Kind.BROADCAST)


# -- allreduce


def _reduce_now(src: torch.Tensor, dst: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet) -> None:
    """Reduce src into dst (which may be src), on this thread."""
    handle = next_handle()
    group = ps.group or group_of(ps)
    a, b = src.detach(), dst.detach()
    staged = a.device.type != "cpu"
    if staged:
        a = b = a.cpu()
    run(
        group, _ALLREDUCE, op, dtype_code(a), 0, a.data_ptr(), b.data_ptr(), a.numel(), prescale=pre, postscale=post,
        name=f"allreduce.{name}" if name else f"allreduce.noname.{handle}", shape=a.shape, device=device_of(src),
    )  # fmt: skip
    if staged:
        dst.detach().copy_(b)


def _reduce_later(
    srcs: list[torch.Tensor], dsts: list[torch.Tensor], name: str | None, prefix: str, ops: list[Any], pre: float, post: float,
    ps: ProcessSet, result: Any,
) -> int:  # fmt: skip
    group = group_of(ps)
    handle = next_handle()
    base = f"{prefix}.{name}" if name else f"{prefix}.noname.{handle}"
    n = len(srcs)
    calls, back = [], []
    for i, (src, dst, op) in enumerate(zip(srcs, dsts, ops, strict=True)):
        number = dtype_code(src)
        a, b = host(src), host(dst)
        if b.data_ptr() != dst.data_ptr():
            back.append((dst, b))
        calls.append({
            "kind": _ALLREDUCE, "op": op, "dtype": number, "send": a.data_ptr(), "recv": b.data_ptr(), "count": a.numel(),
            "prescale": pre, "postscale": post, "name": f"{base}_{i + 1}of{n}" if prefix.startswith("grouped") else base,
            "shape": a.shape, "device": device_of(src), "keep": (a, b),
        })  # fmt: skip

    def finish(_: list[int]) -> Any:
        for dst, b in back:
            dst.detach().copy_(b)
        return result

    keep = [c.pop("keep") for c in calls]
    return start(handle, group, calls, finish, (keep, srcs, dsts))


class _Allreduce(torch.autograd.Function):
    """Its gradient is the same allreduce of the gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, average: Any, name: Any, op: Any, pre: float, post: float, ps: ProcessSet) -> torch.Tensor:
        ctx.settings = (average, op, pre, post, ps)
        return synchronize(allreduce_async(tensor, average, name, op, pre, post, ps))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        average, op, pre, post, ps = ctx.settings
        out = allreduce(grad.contiguous(), average=average, op=op, prescale_factor=pre, postscale_factor=post, process_set=ps)
        return out, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, compression: Any = Compression.none, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> torch.Tensor:  # fmt: skip
    """A new tensor: the average (or `op`) over all ranks. Gradients flow through it."""
    small, ctx = compression.compress(tensor)
    if small.requires_grad and torch.is_grad_enabled():
        out = _Allreduce.apply(small, average, name, op, prescale_factor, postscale_factor, process_set)
    else:
        which = operator(op, average, small, process_set)
        dtype_code(small)
        out = torch.empty_like(small)
        _reduce_now(small, out, name, which, prescale_factor, postscale_factor, process_set)
    return compression.decompress(out, ctx)


def allreduce_async(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start allreduce and return a handle for synchronize()."""
    which = operator(op, average, tensor, process_set)
    out = torch.empty_like(tensor, requires_grad=False)
    return _reduce_later([tensor], [out], name, "allreduce", [which], prescale_factor, postscale_factor, process_set, out)


def allreduce_(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> torch.Tensor:  # fmt: skip
    """allreduce in place."""
    which = operator(op, average, tensor, process_set)
    if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_sparse:
        reduce_here(tensor, name, which, prescale_factor, postscale_factor, process_set)
    else:
        _reduce_now(tensor, tensor, name, which, prescale_factor, postscale_factor, process_set)
    return tensor


def allreduce_async_(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start allreduce in place and return a handle."""
    which = operator(op, average, tensor, process_set)
    if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_sparse:
        handle = begin_here(tensor, name, which, prescale_factor, postscale_factor, process_set)
        if handle:
            return handle
    return _reduce_later([tensor], [tensor], name, "allreduce", [which], prescale_factor, postscale_factor, process_set, tensor)


# -- grouped allreduce


def _one_device(tensors: list[torch.Tensor]) -> None:
    if not tensors:
        raise ValueError("grouped_allreduce: the list of tensors is empty; give at least one")
    if len({t.device for t in tensors}) > 1:
        raise ValueError(f"grouped_allreduce: tensors on several devices {sorted({str(t.device) for t in tensors})}; move them to one")


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, average: Any, name: Any, op: Any, pre: float, post: float, ps: ProcessSet, *tensors: torch.Tensor) -> tuple:
        ctx.settings = (average, op, pre, post, ps)
        return tuple(synchronize(grouped_allreduce_async(list(tensors), average, name, op, pre, post, ps)))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        average, op, pre, post, ps = ctx.settings
        out = grouped_allreduce(
            [g.contiguous() for g in grads], average=average, op=op, prescale_factor=pre, postscale_factor=post, process_set=ps
        )
        return (None, None, None, None, None, None, *out)


def grouped_allreduce(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, compression: Any = Compression.none, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:  # fmt: skip
    """allreduce of several tensors as one unit. Gradients flow through it."""
    pairs = [compression.compress(t) for t in tensors]
    small = [t for t, _ in pairs]
    if torch.is_grad_enabled() and any(t.requires_grad for t in small):
        outs = _GroupedAllreduce.apply(average, name, op, prescale_factor, postscale_factor, process_set, *small)
    else:
        outs = synchronize(grouped_allreduce_async(small, average, name, op, prescale_factor, postscale_factor, process_set))
    return [compression.decompress(out, ctx) for out, (_, ctx) in zip(outs, pairs, strict=True)]


def grouped_allreduce_async(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start grouped_allreduce and return a handle."""
    _one_device(tensors)
    ops = [operator(op, average, t, process_set) for t in tensors]
    outs = [torch.empty_like(t, requires_grad=False) for t in tensors]
    return _reduce_later(list(tensors), outs, name, "grouped_allreduce", ops, prescale_factor, postscale_factor, process_set, outs)


def grouped_allreduce_(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:  # fmt: skip
    """grouped_allreduce in place."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async_(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start grouped_allreduce in place and return a handle."""
    _one_device(tensors)
    ops = [operator(op, average, t, process_set) for t in tensors]
    same = list(tensors)
    return _reduce_later(same, same, name, "grouped_allreduce", ops, prescale_factor, postscale_factor, process_set, tensors)


# -- broadcast


def _broadcast(src: torch.Tensor, dst: torch.Tensor, root_rank: int, name: str | None, ps: ProcessSet) -> int:
    group = group_of(ps)
    root = root_in(ps, root_rank)
    handle = next_handle()
    number = dtype_code(dst)
    dtype_code(src)
    b = host(dst)
    if src is not dst and group.rank == root:
        b.copy_(src.detach())
    call = {
        "kind": _BROADCAST, "dtype": number, "root": root, "send": b.data_ptr(), "recv": b.data_ptr(), "count": b.numel(),
        "name": f"broadcast.{name}" if name else f"broadcast.noname.{handle}", "shape": b.shape, "device": device_of(dst),
    }  # fmt: skip

    def finish(_: list[int]) -> torch.Tensor:
        if b.data_ptr() != dst.data_ptr():
            dst.detach().copy_(b)
        return dst

    return start(handle, group, [call], finish, (src, b))


class _Broadcast(torch.autograd.Function):
    """Its gradient: the average on root, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Any, ps: ProcessSet) -> torch.Tensor:
        ctx.root_rank, ctx.ps = root_rank, ps
        return synchronize(broadcast_async(tensor, root_rank, name, ps))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        out = allreduce(grad.contiguous(), op=Average, process_set=ctx.ps)
        if basics.hora.rank() != ctx.root_rank:
            out.zero_()
        return out, None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """A new tensor with root's values (root_rank counts in the whole job). Gradients flow through it."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start broadcast and return a handle."""
    return _broadcast(tensor, torch.empty_like(tensor, requires_grad=False), root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """broadcast in place."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start broadcast in place and return a handle."""
    return _broadcast(tensor, tensor, root_rank, name, process_set)


_ = _handle_map  # scripts and test suites look at it here
