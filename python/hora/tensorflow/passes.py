"""Gradients of several passes added up on each rank, and reduced over all ranks in the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..errors import ArgumentError

__all__ = ["InGraph", "Stepwise", "check"]

v1: Any = tf.compat.v1


def check(passes: int) -> int:
    """The number of passes that make a step."""
    if isinstance(passes, bool) or int(passes) != passes or passes < 1:
        raise ArgumentError(f"backward_passes_per_step={passes}: there is at least one backward pass in a step")
    return int(passes)


def _dense(grad: Any, allowed: bool, name: str) -> Any:
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    if not allowed:
        raise ArgumentError(
            "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False: the gradient "
            f"of {name} has rows alone; give sparse_as_dense=True"
        )
    return tf.convert_to_tensor(grad)


class InGraph:
    """In graphs of TensorFlow 1: a sum for each gradient and a count of passes, as local variables, which are not saved
    nor broadcast.

    `reduce` takes gradients and their variables.
    """

    def __init__(
        self, passes: int, reduce: Callable[..., Any], *, average: bool, sparse_as_dense: bool, name: str = ""
    ) -> None:
        self.passes, self.average, self.sparse_as_dense = passes, average, sparse_as_dense
        self.sums: list[Any] = []
        self.counter: Any = None
        self._reduce = reduce
        self._due: Any = None
        self._name = name or "aggregation"
        self._scope: Any = None

    def compute_gradients(self, grads: list[Any], vars: list[Any]) -> list[Any]:
        """The sum of the passes so far; in the last one, reduced over all ranks."""
        n = self.passes
        dense = [_dense(g, self.sparse_as_dense, v.name) for g, v in zip(grads, vars, strict=True)]
        known = [i for i, g in enumerate(dense) if g is not None]
        if self._scope is None:  # one of its own for each in a graph: two optimizers add up apart
            with v1.variable_scope(None, default_name=self._name) as self._scope:
                pass
        with v1.variable_scope(self._scope, reuse=v1.AUTO_REUSE, auxiliary_name_scope=False):
            local = [v1.GraphKeys.LOCAL_VARIABLES]
            self.counter = v1.get_variable(
                "counter", [], tf.int32, v1.zeros_initializer(), trainable=False, collections=local, use_resource=True
            )
            self.sums = [
                v1.get_variable(
                    f"sum_{i}", vars[i].shape.as_list(), dense[i].dtype, v1.zeros_initializer(), trainable=False,
                    collections=local,
                    use_resource=True,
                )
                for i in known
            ]  # fmt: skip
        # A new step begins where the last was complete: what it summed goes first.
        begins = tf.equal(self.counter.read_value(), 0)
        added = []
        for held, i in zip(self.sums, known, strict=True):
            kept = held.read_value()
            added.append(held.assign(tf.where(begins, tf.zeros_like(kept), kept) + dense[i], read_value=True))
        with tf.control_dependencies([*added, begins]):
            passes = self.counter.assign(tf.math.floormod(self.counter.read_value() + 1, n), read_value=True)
        self._due = tf.equal(passes, 0)

        def reduced() -> list[Any]:
            sums = self._reduce([tf.identity(a) for a in added], [vars[i] for i in known])
            return [s / tf.cast(n, s.dtype) if self.average else s for s in sums]

        with tf.control_dependencies([passes]):
            got = v1.cond(self._due, reduced, lambda: [tf.identity(a) for a in added]) if known else []
        out: list[Any] = [None] * len(grads)
        for i, g in zip(known, [got] if len(known) == 1 and not isinstance(got, (list, tuple)) else got, strict=True):
            out[i] = g
        return out

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step in the last pass; in the others the global step alone goes on."""
        step = kwargs.get("global_step") if "global_step" in kwargs else (args[1] if len(args) > 1 else None)
        given = [g for g, _ in (args[0] if args else kwargs["grads_and_vars"]) if g is not None]

        def passed() -> Any:
            return tf.group(v1.assign_add(step, 1)) if step is not None else tf.no_op()

        with tf.control_dependencies(given):
            return v1.cond(self._due, lambda: tf.group(apply_grads_closure()), passed)


class Stepwise:
    """Eagerly and in tf.function: a sum for each gradient and a count of passes."""

    def __init__(self, passes: int, reduce: Callable[..., Any], *, average: bool, sparse_as_dense: bool) -> None:
        self.passes, self.average, self.sparse_as_dense = passes, average, sparse_as_dense
        self.sums: dict[int, Any] = {}
        self.counter = tf.Variable(0, trainable=False, dtype=tf.int32)
        self._reduce = reduce

    def compute_gradients(self, grads: list[Any], vars: list[Any]) -> list[Any]:
        """The sum of the passes so far; in the last one, reduced over all ranks, and the sums begin anew."""
        held: dict[int, Any] = {}
        for i, g in enumerate(grads):
            if g is None:
                continue
            g = _dense(g, self.sparse_as_dense, getattr(vars[i], "name", "a variable"))
            if i not in self.sums:
                with tf.init_scope():
                    self.sums[i] = tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False)
            held[i] = self.sums[i]
            held[i].assign_add(g)
        self.counter.assign_add(1)

        def reduced() -> list[Any]:
            sums = self._reduce([v.read_value() for v in held.values()], [vars[i] for i in held])
            if self.average:
                sums = [s / tf.cast(self.passes, s.dtype) for s in sums]
            with tf.control_dependencies(sums):
                for v in held.values():
                    v.assign(tf.zeros_like(v))
                self.counter.assign(0)
            return [tf.identity(s) for s in sums]

        due = tf.equal(self.counter, self.passes)
        got = tf.cond(due, reduced, lambda: [v.read_value() for v in held.values()]) if held else []
        out: list[Any] = [None] * len(grads)
        for i, g in zip(held, got if isinstance(got, (list, tuple)) else [got], strict=True):
            out[i] = g
        return out

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step after the last pass; after the others the count of its iterations alone goes on."""

        def passed() -> Any:
            optimizer.iterations.assign_add(1)
            return tf.no_op()

        def step() -> Any:
            apply_grads_closure()
            return tf.no_op()

        if tf.executing_eagerly():
            return step() if int(self.counter) == 0 else passed()
        return tf.cond(tf.equal(self.counter, 0), step, passed)
