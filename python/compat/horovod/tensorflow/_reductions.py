"""allreduce and reducescatter of horovod.tensorflow, of one tensor and of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import hora.tensorflow as ht
from hora.tensorflow.graphs import After, numbered
from hora.tensorflow.graphs import label as labelled

from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of
from ._errors import translated
from .compression import Compression
from .mpi_ops import Adasum, Average, Sum, _reducescatter, handle_average_backwards_compatibility, reduce_each

__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]


def _check_rows(tensor: Any, op: Any, prescale_factor: float, postscale_factor: float) -> None:
    if not isinstance(tensor, tf.IndexedSlices):
        return
    if op not in (Average, Sum):
        kind = "Adasum" if op == Adasum else "This operator"
        raise NotImplementedError(
            f"{kind} is not supported for tf.IndexedSlices; use hvd.Average or hvd.Sum, or sparse_as_dense=True"
        )
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError(
            "prescale_factor and postscale_factor are for dense tensors, not for tf.IndexedSlices; scale the values"
        )


def allreduce(
    tensor: Any, average: Any = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:  # fmt: skip
    """Reduce a tensor or variable over all ranks; of IndexedSlices the rows of all. Gradients flow through it.

    The device arguments are of no effect: operations run on the processor.
    """
    op = handle_average_backwards_compatibility(op, average)
    _check_rows(tensor, op, prescale_factor, postscale_factor)
    return reduce_each(
        [tensor], op, name, prescale_factor, postscale_factor, process_set, compression, ignore_name_scope
    )[0]


def grouped_allreduce(
    tensors: Sequence[Any], average: Any = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False, name: str | None = None,
) -> list[Any]:  # fmt: skip
    """allreduce of several tensors in one call."""
    if not tensors:
        return list(tensors)
    op = handle_average_backwards_compatibility(op, average)
    for t in tensors:
        _check_rows(t, op, prescale_factor, postscale_factor)
    label = name or After.of("HorovodGroupedAllreduce", tensors)
    return reduce_each(
        tensors, op, label, prescale_factor, postscale_factor, process_set, compression, ignore_name_scope
    )


def reducescatter(
    tensor: Any, device_dense: str = "", compression: Any = Compression.none, op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:  # fmt: skip
    """Reduce over all ranks; each gets its part of the rows. Gradients flow through it."""
    if isinstance(tensor, tf.IndexedSlices):
        raise NotImplementedError(
            "reducescatter is not supported for tf.IndexedSlices; convert it with tf.convert_to_tensor first"
        )
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    part = _reducescatter(
        sent,
        name or After.of("HorovodReducescatter", tensor),
        op,
        False,
        process_set,
        prescale_factor,
        postscale_factor,
    )
    return compression.decompress(part, context)


@translated
def grouped_reducescatter(
    tensors: Sequence[Any], device_dense: str = "", compression: Any = Compression.none, op: Any = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:  # fmt: skip
    """reducescatter of each of several tensors."""
    n = len(tensors)
    if not n:
        return []
    label = labelled(name or After.of("HorovodGroupedReducescatter", tensors), "reducescatter")
    # Of n bytes: ranks whose lists differ in length hear of it, instead of waiting for each other's last calls.
    alike = ht.allreduce([tf.zeros([], tf.uint8)] * n, group=group_of(process_set), name=f"{label}_list", named=True)
    with tf.control_dependencies(alike):
        return [
            reducescatter(
                t, device_dense, compression, op, numbered(label, i, n), process_set, prescale_factor, postscale_factor
            )
            for i, t in enumerate(tensors)
        ]
