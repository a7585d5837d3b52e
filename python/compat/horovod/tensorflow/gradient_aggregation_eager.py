"""Gradients of several passes added up on each rank, and reduced over all ranks in the last: eagerly and in tf.function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set

__all__ = ["LocalGradientAggregationHelperEager"]


class LocalGradientAggregationHelperEager:
    """Keeps a sum for each gradient and a count of passes."""

    def __init__(
        self, backward_passes_per_step: int, allreduce_func: Callable[..., Any], sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False, process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
    ) -> None:  # fmt: skip
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.sparse_as_dense = sparse_as_dense
        self.locally_aggregated_grads: dict[int, Any] = {}
        self.counter = tf.Variable(0, trainable=False, dtype=tf.int32)
        self._reduce = allreduce_func

    def compute_gradients(self, grads: list[Any], vars: list[Any]) -> list[Any]:
        """The sum of the passes so far; in the last one, reduced over all ranks, and the sums begin anew."""
        held: dict[int, Any] = {}
        for i, g in enumerate(grads):
            if g is None:
                continue
            if isinstance(g, tf.IndexedSlices):
                if not self.sparse_as_dense:
                    raise ValueError(
                        "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False; "
                        "give sparse_as_dense=True"
                    )
                g = tf.convert_to_tensor(g)
            if i not in self.locally_aggregated_grads:
                with tf.init_scope():
                    self.locally_aggregated_grads[i] = tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False)
            held[i] = self.locally_aggregated_grads[i]
            held[i].assign_add(g)
        self.counter.assign_add(1)

        def reduced() -> list[Any]:
            sums = self._reduce([v.read_value() for v in held.values()], [vars[i] for i in held])
            if self.average_aggregated_gradients:
                sums = [s / tf.cast(self.backward_passes_per_step, s.dtype) for s in sums]
            with tf.control_dependencies(sums):
                for v in held.values():
                    v.assign(tf.zeros_like(v))
                self.counter.assign(0)
            return [tf.identity(s) for s in sums]

        due = tf.equal(self.counter, self.backward_passes_per_step)
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
