"""horovod.torch's collectives.

Every call has a name, "<operation>.<name>" or "<operation>.noname.<handle>", and matches the other ranks' call of
that name whatever the order.
"""

from __future__ import annotations

from typing import Any

import torch

from hora.group import Call, Kind

from ..common import basics
from ..common.basics import Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ._allreduce_ops import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from ._check import device_of, dtype_code, host, root_in
from ._fast import forget
from ._handles import _handle_map, complete, group_of, label, next_handle, poll, start, synchronize
from ._more_ops import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    grouped_allgather,
    grouped_allgather_async,
    join,
    sparse_allreduce_async,
)
from ._reducescatter_ops import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from .compression import Compression

__all__ = [
    "Adasum", "Average", "Compression", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built",
    "gloo_enabled", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async",
    "init",
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

_BROADCAST = int(Kind.BROADCAST)


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
    called, flags = label("broadcast", name, handle)
    call = Call(
        _BROADCAST, 0, number, root, b.data_ptr(), b.data_ptr(), b.numel(), name=called, flags=flags,
        shape=b.shape, device=device_of(dst),
    )  # fmt: skip

    def finish(_: list[int]) -> torch.Tensor:
        if b.data_ptr() != dst.data_ptr():
            dst.detach().copy_(b)
        return dst

    return start(handle, group, [call], finish, (src, b), name and called)


class _Broadcast(torch.autograd.Function):
    """Its gradient: the average on root, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Any, ps: ProcessSet) -> torch.Tensor:
        ctx.root_rank, ctx.ps = root_rank, ps
        return complete(broadcast_async(tensor, root_rank, name, ps))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        out = allreduce(grad.contiguous(), op=Average, process_set=ctx.ps)
        if basics.hora.rank() != ctx.root_rank:
            out.zero_()
        return out, None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """A new tensor with root's values (root_rank counts in the whole job). Gradients flow through it."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return complete(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start broadcast and return a handle."""
    return _broadcast(tensor, torch.empty_like(tensor, requires_grad=False), root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """broadcast in place."""
    return complete(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start broadcast in place and return a handle."""
    return _broadcast(tensor, tensor, root_rank, name, process_set)


_ = _handle_map  # scripts and test suites look at it here
