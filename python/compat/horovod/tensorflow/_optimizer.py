"""DistributedOptimizer of horovod.tensorflow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hora.tensorflow.sessions import V1Optimizer

from ..common.basics import Adasum, Average
from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of
from ._errors import translated
from ._tapes import check_options
from .compression import Compression
from .mpi_ops import reduce_each, size_op
from .sessions import check

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, sparse_as_dense: bool = False, backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False, num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """An optimizer of Keras or of tf.compat.v1.train with its gradients reduced over all ranks.

    The device and group arguments are of no effect: operations run on the processor, and one call has all gradients.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        check_options(op, gradient_predivide_factor, groups, num_groups)
        check(op, backward_passes_per_step, process_set)
        return _of_one(
            optimizer, name, use_locking, compression, sparse_as_dense, op, gradient_predivide_factor,
            backward_passes_per_step, average_aggregated_gradients, process_set, scale_local_gradients,
        )  # fmt: skip
    if op == Adasum:
        raise ValueError(
            "op == Adasum is not supported yet with Keras; use hvd.Average, or hvd.DistributedGradientTape(op=hvd.Adasum)"
        )
    from .keras import DistributedOptimizer as of_keras

    return of_keras(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step,
        average_aggregated_gradients, num_groups, groups, process_set, scale_local_gradients,
    )  # fmt: skip


def _of_one(
    optimizer: Any, name: str | None, use_locking: bool, compression: Any, sparse_as_dense: bool, op: Any,
    factor: float, passes: int, average: bool, process_set: ProcessSet, scale_local: bool,
) -> Any:  # fmt: skip
    """Of an optimizer of TensorFlow 1."""

    @translated
    def reduce(grads: list[Any]) -> list[Any]:
        group_of(process_set)
        return reduce_each(grads, op, "DistributedOptimizer_Allreduce", 1.0 / factor, factor, process_set, compression)

    alone = process_set.included() is False
    return V1Optimizer(
        optimizer, None if alone else reduce,
        (lambda: size_op(process_set.process_set_id or 0)) if scale_local else None, name=name,
        use_locking=use_locking, sparse_as_dense=sparse_as_dense, passes=passes, average_passes=average,
    )  # fmt: skip
