"""horovod.tensorflow's collectives on single tensors, and the places of this process as operations.

Calls match the other ranks' by name, in any order; those that are given none have their operation's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import hora.tensorflow as ht
from hora import frontend
from hora.tensorflow.graphs import After, plain_graph, without_scope
from hora.tensorflow.tape import inner_variable

from ..common import process_sets as registry
from ..common.basics import OPERATORS, Adasum, Average, HorovodBasics, Max, Min, Product, Sum
from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of, root_in
from ..common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from ..common.variables import after_rejoin
from ._errors import translated

__all__ = [
    "Adasum", "Average", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "alltoall",
    "broadcast",
    "broadcast_", "ccl_built", "check_num_rank_power_of_2", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "global_process_set", "gloo_built", "gloo_enabled", "grouped_allgather", "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous", "is_initialized", "join", "local_rank", "local_rank_op", "local_size", "local_size_op",
    "mpi_built",
    "mpi_enabled", "mpi_threads_supported", "nccl_built", "process_set_included_op", "rank", "rank_op",
    "remove_process_set",
    "rocm_built", "shutdown", "size", "size_op", "start_timeline", "stop_timeline",
]  # fmt: skip

_basics = HorovodBasics(__file__, "mpi_lib")

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

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2


def init(*args: Any, **kwargs: Any) -> None:
    """Join the job; calling it again while initialized does nothing."""
    _basics.init(*args, **kwargs)
    settle()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set after init; every rank of the job calls it. Needs dynamic process sets to be on."""
    made = registry.add_process_set(process_set)
    settle()
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Take a set away; every rank of the job calls it. False when it was not registered."""
    gone = registry.remove_process_set(process_set)
    settle()
    return gone


def _weighed(tensor: Any, group: Any, times: bool) -> Any:
    """The tensor, with what goes back to it multiplied with (or divided by) the number of ranks: Horovod's convention,
    not hora's."""
    x = tf.convert_to_tensor(tensor)
    if not x.dtype.is_floating:
        return x

    @tf.custom_gradient
    def handed_on(x: Any) -> Any:
        def back(grad: Any) -> Any:
            n = tf.cast(ht.size(group), grad.dtype)
            return grad * n if times else grad / n

        return tf.identity(x), back

    return handed_on(x)


# -- reductions


def _code(op: Any) -> Any:
    number = OPERATORS.get(op)
    if number is None:
        raise ValueError(f"Unknown reduction operation {op}: use hvd.Average, Sum, Adasum, Min, Max or Product")
    return number


@translated
def reduce_each(
    tensors: Sequence[Any], op: Any, name: str | None, prescale_factor: float, postscale_factor: float,
    process_set: ProcessSet,
    compression: Any = ht.Compression.none, ignore_name_scope: bool = False,
) -> list[Any]:  # fmt: skip
    """allreduce of dense tensors and IndexedSlices, in one call."""
    if op == Adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet: use hvd.global_process_set")
    with without_scope(ignore_name_scope):
        return ht.allreduce(
            list(tensors), _code(op), group=group_of(process_set), prescale=prescale_factor, postscale=postscale_factor,
            compression=compression, name=name or After.of("HorovodAllreduce", tensors), named=True,
        )  # fmt: skip


def _allreduce(
    tensor: Any, name: str | None = None, op: Any = Sum, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    return reduce_each(
        [tensor], op, name, prescale_factor, postscale_factor, process_set, ignore_name_scope=ignore_name_scope
    )[0]


def _grouped_allreduce(
    tensors: Sequence[Any], name: str | None = None, op: Any = Sum, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set,
) -> list[Any]:  # fmt: skip
    return reduce_each(
        tensors, op, name, prescale_factor, postscale_factor, process_set, ignore_name_scope=ignore_name_scope
    )


@translated
def _reducescatter(
    tensor: Any, name: str | None = None, op: Any = Sum, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:  # fmt: skip
    if op not in (Average, Sum):
        raise ValueError("Reducescatter currently only supports Sum and Average: use hvd.Average or hvd.Sum")
    group = group_of(process_set)
    with without_scope(ignore_name_scope):
        return ht.reducescatter(
            _weighed(tensor, group, True), _code(op), group=group, prescale=prescale_factor, postscale=postscale_factor,
            name=name or After.of("HorovodReducescatter", tensor), named=True,
        )  # fmt: skip


# -- what moves


@translated
def allgather(
    tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> Any:
    """All ranks' tensors, joined along the first dimension, which may differ. Gradients flow through it."""
    group = group_of(process_set)
    with without_scope(ignore_name_scope):
        return ht.allgather(
            _weighed(tensor, group, False), group=group, name=name or After.of("HorovodAllgather", tensor), named=True
        )


@translated
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allgather of each of several tensors."""
    group = group_of(process_set)
    with without_scope(ignore_name_scope):
        return ht.allgather(
            [_weighed(t, group, False) for t in tensors],
            group=group,
            name=name or After.of("HorovodGroupedAllgather", tensors),
            named=True,
        )


@translated
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Root's tensor (root_rank counts in the whole job). Gradients flow through it."""
    group = group_of(process_set)
    root = root_in(process_set, root_rank)
    with without_scope(ignore_name_scope):
        return ht.broadcast(
            _weighed(tensor, group, False),
            root,
            group=group,
            name=name or After.of("HorovodBroadcast", tensor),
            named=True,
        )


@translated
def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Give the variables root's values, in one call, and return them; in a graph of TensorFlow 1, what assigns them."""
    held = [inner_variable(v) for v in variables]
    group = group_of(process_set)
    got = ht.broadcast(
        held,
        root_in(process_set, root_rank),
        group=group,
        name=name or After.of("HorovodBroadcastInplace", held),
        named=True,
    )
    if plain_graph():
        return [tf.compat.v1.assign(v, y) for v, y in zip(held, got, strict=True)]
    for v, y in zip(held, got, strict=True):
        v.assign(y)
    return list(variables)


@translated
def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:  # fmt: skip
    """The rows that `splits` counts go to each rank, and those behind to none; with splits also how many came from
    each."""
    sent = tf.convert_to_tensor(tensor)
    if splits is not None and sent.shape.rank != 0:
        splits = tf.cast(splits, tf.int32)
        sent = sent[: tf.reduce_sum(splits)]
    with without_scope(ignore_name_scope):
        return ht.alltoall(
            sent, splits, group=group_of(process_set), name=name or After.of("HorovodAlltoall", tensor), named=True
        )


@translated
def join() -> Any:
    """Contribute zeros to the others' allreduces until all ranks have joined; the last rank that did."""
    return ht.join()


# -- the places of this process as operations, which are asked when the graph runs

_facts: dict[
    Any, tuple[Callable[[], int], Any]
] = {}  # what a graph may ask → how it is found, and the variable that it reads


def settle() -> None:
    """The ranks or their sets are others now: tell the graphs that are there."""
    if not is_initialized():
        return
    for one in registry.table().values():
        if one.group is not None:
            frontend.number(one.group)
    for ask, held in _facts.values():
        held.assign(ask())


after_rejoin.append(settle)


def _fact(key: Any, ask: Callable[[], int], name: str | None) -> Any:
    now = ask()  # not initialized, or no such set: an error at once
    if tf.executing_eagerly():
        return tf.constant(now, tf.int32, name=name)
    if tf.compat.v1.executing_eagerly_outside_functions():
        if key not in _facts:
            with tf.init_scope():
                _facts[key] = ask, tf.Variable(now, dtype=tf.int32, trainable=False)
        return tf.identity(_facts[key][1].read_value(), name=name)
    return _in_graph(key, now, name)


def _in_graph(key: Any, now: int, name: str | None) -> Any:
    """In a graph of TensorFlow 1: those of a set are asked when it runs; the host's are what they were when it was
    made."""
    one = _basics._process_set_table().get(key[1] if len(key) > 1 else 0)
    if key[0].startswith("local") or one is None or one.included() is False:
        return tf.constant(now, tf.int32, name=name)
    group = group_of(one)
    answer = ht.size(group) if key[0] == "size" else ht.rank(group)
    return tf.cast(answer >= 0, tf.int32, name=name) if key[0] == "included" else tf.identity(answer, name=name)


def _in_set(process_set_id: int, what: Callable[[ProcessSet], int]) -> Callable[[], int]:
    def ask() -> int:
        one = _basics._process_set_table().get(process_set_id)
        return -1 if one is None else what(one)

    if ask() < 0:
        raise ValueError(f"Process set {process_set_id} does not exist; add it first")
    return ask


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """How many ranks there are, in the job or in a process set."""
    return _fact(("size", process_set_id), _in_set(process_set_id, lambda s: int(s.size() or 0)), name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 where this rank is in the process set, else 0."""
    return _fact(("included", process_set_id), _in_set(process_set_id, lambda s: int(bool(s.included()))), name)


def local_size_op(name: str | None = None) -> Any:
    """How many ranks there are on this host."""
    return _fact(("local_size",), local_size, name)


def rank_op(name: str | None = None) -> Any:
    """This process's rank."""
    return _fact(("rank",), rank, name)


def local_rank_op(name: str | None = None) -> Any:
    """This process's rank on its host."""
    return _fact(("local_rank",), local_rank, name)
