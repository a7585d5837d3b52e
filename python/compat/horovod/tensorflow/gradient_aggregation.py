"""Gradients of several passes added up on each rank, and reduced over all ranks in the last: in graphs of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set

__all__ = ["LocalGradientAggregationHelper"]

v1 = tf.compat.v1


class LocalGradientAggregationHelper:
    """Keeps a sum for each gradient and a count of passes, as local variables: they are not saved, nor broadcast."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self, backward_passes_per_step: int, allreduce_func: Callable[..., Any], sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False, rank: Any = None, optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True, name: str = "",
    ) -> None:  # fmt: skip
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.sparse_as_dense = sparse_as_dense
        self.locally_aggregated_grads: list[Any] = []
        self.counter: Any = None
        self._reduce = allreduce_func
        self._due: Any = None
        self._name = name or "aggregation"

    def register_local_var(self, var: Any) -> None:
        """Which variables are local is for the function that reduces to know."""

    def compute_gradients(self, grads: list[Any], vars: list[Any]) -> list[Any]:
        """The sum of the passes so far; in the last one, reduced over all ranks."""
        n = self.backward_passes_per_step
        dense = []
        for g, v in zip(grads, vars, strict=True):
            if isinstance(g, tf.IndexedSlices):
                if not self.sparse_as_dense:
                    raise ValueError(
                        "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False: the gradient "
                        f"of {v.name} has rows alone; give sparse_as_dense=True"
                    )
                g = tf.convert_to_tensor(g)
            dense.append(g)
        known = [i for i, g in enumerate(dense) if g is not None]
        with v1.variable_scope(self._name, reuse=v1.AUTO_REUSE):
            local = [v1.GraphKeys.LOCAL_VARIABLES]
            self.counter = v1.get_variable(
                "counter", [], tf.int32, v1.zeros_initializer(), trainable=False, collections=local, use_resource=True
            )
            self.locally_aggregated_grads = [
                v1.get_variable(
                    f"sum_{i}", vars[i].shape.as_list(), dense[i].dtype, v1.zeros_initializer(), trainable=False, collections=local,
                    use_resource=True,
                )
                for i in known
            ]  # fmt: skip
        # A new step begins where the last was complete: what it summed goes first.
        begins = tf.equal(self.counter.read_value(), 0)
        added = []
        for held, i in zip(self.locally_aggregated_grads, known, strict=True):
            kept = held.read_value()
            added.append(held.assign(tf.where(begins, tf.zeros_like(kept), kept) + dense[i], read_value=True))
        with tf.control_dependencies([*added, begins]):
            passes = self.counter.assign(tf.math.floormod(self.counter.read_value() + 1, n), read_value=True)
        self._due = tf.equal(passes, 0)

        def reduced() -> list[Any]:
            sums = self._reduce([tf.identity(a) for a in added], [vars[i] for i in known])
            return [s / tf.cast(n, s.dtype) if self.average_aggregated_gradients else s for s in sums]

        with tf.control_dependencies([passes]):
            got = v1.cond(self._due, reduced, lambda: [tf.identity(a) for a in added]) if known else []
        out: list[Any] = [None] * len(grads)
        for i, g in zip(known, [got] if len(known) == 1 and not isinstance(got, (list, tuple)) else got, strict=True):
            out[i] = g
        return out

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step in the last pass; in the others the global step alone goes on."""
        step = kwargs.get("global_step") if "global_step" in kwargs else (args[1] if len(args) > 1 else None)
        given = [g for g, _ in args[0] if g is not None]

        def passed() -> Any:
            return tf.group(v1.assign_add(step, 1)) if step is not None else tf.no_op()

        with tf.control_dependencies(given):
            return v1.cond(self._due, lambda: tf.group(apply_grads_closure()), passed)
