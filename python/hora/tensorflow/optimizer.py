"""DistributedOptimizer: of TensorFlow 1's optimizers and of Keras'."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..errors import ArgumentError
from ..group import Group, Op
from ._calls import grouped, size
from .compression import Compressor, NoneCompressor
from .graphs import ours
from .passes import check
from .sessions import V1Optimizer

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(
    optimizer: Any, op: Op | str = Op.AVERAGE, *, group: Group | None = None,
    compression: type[Compressor] | Compressor = NoneCompressor, sparse_as_dense: bool = False, prescale: float = 1.0,
    postscale: float = 1.0, scale_local: bool = True, named: bool = False, backward_passes_per_step: int = 1,
    average_passes: bool = False, name: str | None = None, use_locking: bool = False,
) -> Any:  # fmt: skip
    """An optimizer of tf.compat.v1.train, or of Keras, with its gradients averaged over all ranks, in one call a step.

    The gradients of `backward_passes_per_step` passes are added up on each rank before that (their mean is taken with
    `average_passes`), and the others change no variable. Variables given to its `register_local_var` keep each rank's
    own gradients, divided by the number of ranks (not with `scale_local=False`). `name` and `use_locking` are those of
    TensorFlow 1's optimizers; one of Keras is what hora.keras.DistributedOptimizer makes of it.

    >>> optimizer = hora.tensorflow.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    >>> train = optimizer.minimize(loss)
    """
    passes = check(backward_passes_per_step)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from ..keras.passes import distributed  # Keras takes its time to import

        return distributed(
            optimizer, passes, average_passes, op=op, group=group, compression=compression,
            sparse_as_dense=sparse_as_dense, prescale=prescale, postscale=postscale, scale_local=scale_local,
            named=named,
        )  # fmt: skip
    if isinstance(optimizer, V1Optimizer):
        raise ArgumentError("DistributedOptimizer: this optimizer is one already")

    def reduce(grads: list[Any]) -> list[Any]:
        return grouped(
            grads, op, group=group, prescale=prescale, postscale=postscale, compression=compression,
            name=ours("gradients"), named=named,
        )  # fmt: skip

    return V1Optimizer(
        optimizer, reduce, (lambda: size(group)) if scale_local else None, name=name, use_locking=use_locking,
        sparse_as_dense=sparse_as_dense, passes=passes, average_passes=average_passes,
    )  # fmt: skip
