"""Operations of graphs of TensorFlow 1 where TensorFlow's C interface has no kernels that end later (2.12 has none).

A kernel that waited for the other ranks on one of the session's few threads could keep the very operation that they
wait for from a thread. tf.data has threads besides: the element of a data set is made on one that stands for its
operation alone, by a function that is told not to use the session's. So each call is the one element of a data set of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

__all__ = ["run"]


def run(call: Callable[..., Any], given: Any, attrs: dict[str, Any], back: Callable[..., Any] | None, outs: int) -> Any:
    """What `call` makes of tensors; `back` is its derivative, a function of an operation and of gradients.

    `given` is a list of tensors that is one argument, or a tuple of them. Of a list as many come back, else `outs`.
    """
    together = isinstance(given, list)

    def forward(*tensors: Any) -> list[Any]:
        got = call(list(tensors), **attrs) if together else call(*tensors[: len(given)], **attrs)
        return list(got) if together or outs > 1 else [got]

    if back is None:
        got = _element(forward, [tf.zeros([], tf.uint8)])  # there is none without any
    else:
        got = _derived(forward, back, attrs)(*given)
    got = list(got) if isinstance(got, (list, tuple)) else [got]
    return got if together or outs > 1 else got[0]


def _derived(forward: Callable[..., list[Any]], back: Callable[..., Any], attrs: dict[str, Any]) -> Any:
    @tf.custom_gradient
    def through(*tensors: Any) -> Any:
        got = _element(forward, list(tensors))

        def derivative(*grads: Any) -> Any:
            made = back(SimpleNamespace(inputs=tensors, outputs=got, get_attr=lambda name: _attr(attrs, name)), *grads)
            return made if isinstance(made, (list, tuple)) else [made]

        return tuple(got) if len(got) > 1 else got[0], derivative

    return through


# What an operation has where its call says nothing: as cmd/libhora/tf.c registers it.
_DEFAULTS = {"kind": 1, "op": 0, "root": 0, "prescale": 1.0, "postscale": 1.0, "group": 0, "precondition": False}


def _attr(attrs: dict[str, Any], name: str) -> Any:
    found = attrs.get(name, _DEFAULTS.get(name))
    return found.encode() if isinstance(found, str) else found


def _element(forward: Callable[..., list[Any]], tensors: list[Any]) -> list[Any]:
    """The results of a function of tensors, as those of an operation that holds no thread of the session's."""
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
    made: Any = tf.function(forward, autograph=False).get_concrete_function(*specs)
    about = {"output_types": [t.dtype for t in made.outputs], "output_shapes": [t.shape for t in made.outputs]}
    one = tf.raw_ops.TensorDataset(components=tensors, output_shapes=[t.shape for t in tensors])
    mapped = tf.raw_ops.MapDataset(
        input_dataset=one, other_arguments=[], f=made, use_inter_op_parallelism=False, **about
    )
    return list(tf.raw_ops.DatasetToSingleElement(dataset=mapped, **about))
