"""Keras 2, which cannot add up several passes itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

__all__ = ["accumulating"]


class _Accumulating:
    """Adds gradients up on this rank; the pass that completes a step reduces the sums and applies them, the others change no variable."""

    _hvd_passes: tuple[int, bool, bool]
    _hvd_helper: Any = None

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None, experimental_aggregate_gradients: bool = True, **kwargs: Any
    ) -> Any:
        apply = super().apply_gradients  # type: ignore[misc]
        if kwargs.pop("skip_gradients_aggregation", False) or not experimental_aggregate_gradients:
            return apply(grads_and_vars, name=name, experimental_aggregate_gradients=False)
        pairs = list(grads_and_vars)
        grads, held = [g for g, _ in pairs], [v for _, v in pairs]
        if self._hvd_helper is None:
            passes, average, dense = self._hvd_passes
            with tf.init_scope():
                helper = LocalGradientAggregationHelperEager(passes, self._hvd_reduce, dense, average)
            object.__setattr__(self, "_hvd_helper", helper)
        with tf.init_scope():
            if hasattr(self, "build"):
                self.build(held)
            else:
                self._create_all_weights(held)  # type: ignore[attr-defined]
        sums = self._hvd_helper.compute_gradients(grads, held)
        return self._hvd_helper.apply_gradients(
            lambda: apply(list(zip(sums, held, strict=True)), name=name, experimental_aggregate_gradients=False), self
        )

    def _hvd_reduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        pairs = list(zip(grads, variables, strict=True))
        return [g for g, _ in self._aggregate_gradients(pairs)]  # type: ignore[attr-defined]


def accumulating(made: Any, passes: int, average: bool, dense: bool) -> Any:
    """A distributed optimizer of Keras 2 that takes a step after so many passes."""
    if hasattr(made, "inner_optimizer"):
        raise ValueError("backward_passes_per_step: wrap the optimizer that LossScaleOptimizer holds, before it is put into it")
    of = type(made)
    names = {"__module__": of.__module__, "__qualname__": of.__qualname__, "__doc__": of.__doc__}
    object.__setattr__(made, "__class__", type(of.__name__, (_Accumulating, of), names))
    object.__setattr__(made, "_hvd_passes", (passes, average, dense))
    return made
