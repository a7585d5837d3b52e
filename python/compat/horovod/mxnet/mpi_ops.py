"""horovod.mxnet's collectives: calls match the other ranks' by name, in any order, and are over when they return.

MXNet's engine computes in the background; what a call needs of it is waited for. `priority` has no effect: there is no
queue.
"""

from __future__ import annotations

import warnings
from typing import Any

import mxnet as mx
import numpy

from hora import comm

from ..common.basics import OPERATORS, Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ..common.translate import group_of, root_in, translated

__all__ = [
    "Adasum", "Average", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "allreduce",
    "allreduce_",
    "alltoall", "broadcast", "broadcast_", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allreduce", "grouped_allreduce_",
    "grouped_reducescatter", "init",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built",
    "rank", "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip

_basics = HorovodBasics(__file__, "mpi_lib")

init, shutdown, is_initialized = _basics.init, _basics.shutdown, _basics.is_initialized
start_timeline, stop_timeline = _basics.start_timeline, _basics.stop_timeline
size, local_size, cross_size = _basics.size, _basics.local_size, _basics.cross_size
rank, local_rank, cross_rank = _basics.rank, _basics.local_rank, _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported, mpi_enabled, mpi_built = _basics.mpi_threads_supported, _basics.mpi_enabled, _basics.mpi_built
gloo_enabled, gloo_built = _basics.gloo_enabled, _basics.gloo_built
nccl_built, ddl_built, ccl_built = _basics.nccl_built, _basics.ddl_built, _basics.ccl_built
cuda_built, rocm_built = _basics.cuda_built, _basics.rocm_built


class _View:
    """An array of MXNet's as NumPy's from_dlpack takes one."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return self._tensor.to_dlpack_for_read()  # which waits for what computes it

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _array(tensor: Any) -> Any:
    """A view of an array of the processor's memory, else a copy."""
    if tensor.stype != "default":
        raise ValueError(
            f"horovod.mxnet: an array of {tensor.stype} storage cannot be sent; make it dense with tostype('default')"
        )
    if tensor.context.device_type == "cpu" and tensor.size:
        try:
            return numpy.from_dlpack(_View(tensor)).reshape(tensor.shape)
        except (AttributeError, RuntimeError, TypeError, ValueError, BufferError):
            pass
    return tensor.asnumpy()


def _tensor(array: Any, like: Any) -> Any:
    return mx.nd.array(array, ctx=like.context, dtype=array.dtype)


def _label(kind: str, name: str | None) -> str:
    return f"{kind}.{name or 'noname'}"


def _operator(op: Any, average: Any) -> Any:
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed", DeprecationWarning, stacklevel=4
        )
        op = Average if average else Sum
    return OPERATORS[Average if op is None else op]


@translated
def grouped_allreduce(
    tensors: list[Any], average: Any = None, name: str | None = None, priority: int = 0, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, op: Any = None,
) -> list[Any]:  # fmt: skip
    """New arrays: each reduced over all ranks, in one call."""
    tensors = list(tensors)
    if not tensors:
        return []
    got = comm.allreduce(
        [_array(t) for t in tensors], _operator(op, average), group=group_of(process_set), prescale=prescale_factor,
        postscale=postscale_factor, name=_label("allreduce", name), named=True,
    )  # fmt: skip
    return [_tensor(a, t) for a, t in zip(got, tensors, strict=True)]


def grouped_allreduce_(tensors: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """grouped_allreduce in place."""
    tensors = list(tensors)
    for t, got in zip(tensors, grouped_allreduce(tensors, *args, **kwargs), strict=True):
        t[:] = got
    return tensors


def allreduce(
    tensor: Any, average: Any = None, name: str | None = None, priority: int = 0, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, op: Any = None,
) -> Any:  # fmt: skip
    """A new array: reduced over all ranks."""
    return grouped_allreduce([tensor], average, name, priority, prescale_factor, postscale_factor, process_set, op)[0]


def allreduce_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """allreduce in place."""
    tensor[:] = allreduce(tensor, *args, **kwargs)
    return tensor


@translated
def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """All ranks' arrays, joined along the first dimension, which may differ."""
    return _tensor(
        comm.allgather(_array(tensor), group=group_of(process_set), name=_label("allgather", name), named=True), tensor
    )


@translated
def grouped_allgather(
    tensors: list[Any], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """allgather of each, as one submission."""
    if not tensors:
        return []
    got = comm.allgather(
        [_array(t) for t in tensors], group=group_of(process_set), name=_label("grouped_allgather", name), named=True
    )
    return [_tensor(a, t) for a, t in zip(got, tensors, strict=True)]


@translated
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """A new array with root's values (root_rank counts in the whole job)."""
    root = root_in(process_set, root_rank)
    return _tensor(
        comm.broadcast(_array(tensor), root, group=group_of(process_set), name=_label("broadcast", name), named=True),
        tensor,
    )


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """broadcast in place."""
    tensor[:] = broadcast(tensor, root_rank, name, priority, process_set)
    return tensor


@translated
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows that `splits` counts go to each rank; with splits also how many came from each."""
    given = None if splits is None else [int(n) for n in (splits.asnumpy() if hasattr(splits, "asnumpy") else splits)]
    got = comm.alltoall(_array(tensor), given, group=group_of(process_set), name=_label("alltoall", name), named=True)
    if given is None:
        return _tensor(got[0] if isinstance(got, tuple) else got, tensor)
    rows, counts = got
    return _tensor(rows, tensor), mx.nd.array(numpy.asarray(counts, "int32"), dtype="int32")


@translated
def reducescatter(
    tensor: Any, op: Any = Average, name: str | None = None, priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:  # fmt: skip
    """Reduced over all ranks, of which each gets its part of the rows."""
    got = comm.reduce_scatter(
        _array(tensor), OPERATORS[op], group=group_of(process_set), prescale=prescale_factor,
        postscale=postscale_factor,
        name=_label("reducescatter", name), named=True,
    )  # fmt: skip
    return _tensor(got, tensor)


@translated
def grouped_reducescatter(
    tensors: list[Any], op: Any = Average, name: str | None = None, priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[Any]:  # fmt: skip
    """reducescatter of each, as one submission."""
    if not tensors:
        return []
    got = comm.reduce_scatter(
        [_array(t) for t in tensors], OPERATORS[op], group=group_of(process_set), prescale=prescale_factor,
        postscale=postscale_factor,
        name=_label("grouped_reducescatter", name), named=True,
    )  # fmt: skip
    return [_tensor(a, t) for a, t in zip(got, tensors, strict=True)]
