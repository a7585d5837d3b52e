"""A gradient tape whose gradients are averaged over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..errors import ArgumentError
from ..group import Group, Op
from ._calls import grouped
from .compression import Compressor, NoneCompressor


class _Tape(tf.GradientTape):
    """A tape that reduces what `gradient` gives; it shares the state of the tape that it was made of."""

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        grads = super().gradient(target, sources, output_gradients, *args, **kwargs)
        flat = tf.nest.flatten(grads, expand_composites=False)
        return tf.nest.pack_sequence_as(grads, self._hora_reduce(flat), expand_composites=False)


def DistributedGradientTape(
    tape: tf.GradientTape, op: Op | str = Op.AVERAGE, *, group: Group | None = None, compression: type[Compressor] | Compressor = NoneCompressor,
    sparse_as_dense: bool = False, prescale: float = 1.0, postscale: float = 1.0,
) -> tf.GradientTape:  # fmt: skip
    """`tape` with its gradients averaged over all ranks, in one call.

    >>> with tf.GradientTape() as tape:
    ...     loss = loss_of(model(x), y)
    >>> tape = hora.tensorflow.DistributedGradientTape(tape)
    >>> optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    """
    if not isinstance(tape, tf.GradientTape):
        raise ArgumentError(f"DistributedGradientTape: {type(tape).__name__} is no tf.GradientTape")
    made: Any = _Tape.__new__(type(type(tape).__name__, (_Tape, type(tape)) if type(tape) is not tf.GradientTape else (_Tape,), {}))
    made.__dict__ = tape.__dict__  # one state, whichever of the two is used

    def reduce(grads: list[Any]) -> list[Any]:
        if sparse_as_dense:
            grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        return grouped(grads, op, group=group, prescale=prescale, postscale=postscale, compression=compression, name="gradients")

    made._hora_reduce = reduce
    return made
