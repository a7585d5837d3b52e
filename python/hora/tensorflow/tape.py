"""A gradient tape whose gradients are averaged over all ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from .._site import places, step
from ..errors import ArgumentError
from ..gradients import apart
from ..group import Group, Op
from ._calls import allgather, grouped, rank, size
from .compression import Compressor, NoneCompressor
from .graphs import ours, plain_graph

__all__ = ["DistributedGradientTape", "divided", "inner_variable"]


def inner_variable(v: Any) -> Any:
    """TensorFlow's variable inside one of Keras'."""
    inner = getattr(v, "value", None)
    return inner if not isinstance(v, tf.Variable) and isinstance(inner, tf.Variable) else v


def divided(grad: Any, by: Any) -> Any:
    """A gradient, dense or of rows, divided by a number."""
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(grad.values / tf.cast(by, grad.values.dtype), grad.indices, grad.dense_shape)
    return grad / tf.cast(by, grad.dtype)


def _paths(tree: Any, at: str = "") -> Iterator[str]:
    """Where the leaves of a structure stand, in the order in which tf.nest has them."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from _paths(tree[key], at + step(key))
    elif isinstance(tree, (list, tuple)):
        for i, x in enumerate(tree):
            yield from _paths(x, at + step(i))
    else:
        yield at


def _where(sources: Any) -> str:
    """Where gradients stand, for the name of their call. "" for one, and for a list: the library compares how many
    there are."""
    nested = (list, tuple, Mapping)
    if not isinstance(sources, nested) or not (
        isinstance(sources, Mapping) or any(isinstance(s, nested) for s in sources)
    ):
        return ""
    return places(_paths(sources))


def _alike(where: str, group: Group | None) -> Any:
    """What gradients stand in that match by name: an error on every rank where their keys differ between ranks.

    Under names that differ, ranks would wait for each other for ever.
    """
    text = tf.strings.join([" rank ", tf.as_string(rank(group)), where, ";"])
    every = allgather(tf.io.decode_raw(text, tf.uint8), group=group, name="keys of gradients", named=True)
    told = tf.strings.reduce_join(tf.gather(tf.constant([bytes([i]) for i in range(256)]), tf.cast(every, tf.int32)))
    wanted = tf.strings.reduce_join(tf.strings.join([" rank ", tf.as_string(tf.range(size(group))), where, ";"]))
    said = ["DistributedGradientTape: gradients of sources with other keys cannot be added; the sources are:", told]
    return tf.control_dependencies([tf.debugging.Assert(tf.equal(told, wanted), said)])


class _Tape(tf.GradientTape):
    """A tape that reduces what `gradient` gives; it shares the state of the tape that it was made of."""

    def register_local_source(self, source: Any) -> None:
        """The gradient of this variable stays each rank's own, divided by the number of ranks unless that is switched
        off."""
        self._hora_local[id(inner_variable(source))] = source

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        grads = super().gradient(target, sources, output_gradients, *args, **kwargs)
        flat = tf.nest.flatten(grads, expand_composites=False)
        mine = [id(inner_variable(s)) in self._hora_local for s in tf.nest.flatten(sources, expand_composites=False)]
        by = self._hora_ranks() if any(mine) else None
        where = _where(sources)
        out = apart(
            flat, mine, lambda shared: self._hora_reduce(shared, where), lambda g: g if by is None else divided(g, by)
        )
        return tf.nest.pack_sequence_as(grads, out, expand_composites=False)


def DistributedGradientTape(
    tape: tf.GradientTape, op: Op | str = Op.AVERAGE, *, group: Group | None = None,
    compression: type[Compressor] | Compressor = NoneCompressor, sparse_as_dense: bool = False, prescale: float = 1.0,
    postscale: float = 1.0, scale_local: bool = True, named: bool = False,
) -> tf.GradientTape:  # fmt: skip
    """`tape` with its gradients averaged over all ranks, in one call.

    Variables given to its `register_local_source` keep each rank's own gradients, divided by the number of ranks so
    that they weigh as much as the others' (not with `scale_local=False`).

    >>> with tf.GradientTape() as tape:
    ...     loss = loss_of(model(x), y)
    >>> tape = hora.tensorflow.DistributedGradientTape(tape)
    >>> optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    """
    if not isinstance(tape, tf.GradientTape):
        raise ArgumentError(f"DistributedGradientTape: {type(tape).__name__} is no tf.GradientTape")
    made: Any = _Tape.__new__(
        type(type(tape).__name__, (_Tape, type(tape)) if type(tape) is not tf.GradientTape else (_Tape,), {})
    )
    made.__dict__ = tape.__dict__  # one state, whichever of the two is used

    def reduce(grads: list[Any], where: str) -> list[Any]:
        if sparse_as_dense:
            grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        by_name = named or plain_graph()
        label = ours("gradients" if by_name else f"gradients{where}")
        with _alike(where, group) if where and by_name else contextlib.nullcontext():
            return grouped(
                grads,
                op,
                group=group,
                prescale=prescale,
                postscale=postscale,
                compression=compression,
                name=label,
                named=named,
            )

    made._hora_reduce, made._hora_local = reduce, {}
    made._hora_ranks = lambda: size(group) if scale_local else None
    return made
