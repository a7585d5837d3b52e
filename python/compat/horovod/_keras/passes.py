"""Optimizers of Keras 2: several passes, which it cannot add up itself, and gradients that a program asks its older ones for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

__all__ = ["accumulating", "computing"]


class _Computing:
    """What `_compute_gradients` of an older optimizer gives is reduced already, as Horovod's is; applying just that reduces nothing anew."""

    _hvd_given: Any = ()

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        pairs = list(super()._compute_gradients(loss, var_list, grad_loss, tape=tape))  # type: ignore[misc]
        out = list(self._hvd_finish(pairs)) if pairs else pairs
        object.__setattr__(self, "_hvd_given", [g for g, _ in out])
        return out

    def _hvd_finish(self, pairs: Any) -> Any:
        return super()._aggregate_gradients(pairs)  # type: ignore[misc]

    def _hvd_is_given(self, pairs: Any) -> bool:
        given = {id(g) for g in self._hvd_given if g is not None}  # which are held there, so that no other has such an id
        left = [g for g, _ in pairs if g is not None]  # Keras drops the others
        return bool(left) and all(id(g) in given for g in left)

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        pairs = list(grads_and_vars)
        return pairs if self._hvd_is_given(pairs) else super()._aggregate_gradients(pairs)  # type: ignore[misc]


class _Accumulating:
    """Adds gradients up on this rank; the pass that completes a step reduces the sums and applies them, the others change no variable."""

    _hvd_passes: tuple[int, bool, bool]
    _agg_helper: Any = None

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None, experimental_aggregate_gradients: bool = True, **kwargs: Any
    ) -> Any:
        apply, pairs = super().apply_gradients, list(grads_and_vars)  # type: ignore[misc]
        added = getattr(self, "_hvd_is_given", lambda _: False)(pairs)
        if not added and (kwargs.pop("skip_gradients_aggregation", False) or not experimental_aggregate_gradients):
            return apply(pairs, name=name, experimental_aggregate_gradients=False)
        held = [v for _, v in pairs]
        with tf.init_scope():
            if hasattr(self, "build"):
                self.build(held)
            else:
                self._create_all_weights(held)  # type: ignore[attr-defined]
        if not added:
            pairs = self._hvd_finish(pairs)
        return self._agg_helper.apply_gradients(lambda: apply(pairs, name=name, experimental_aggregate_gradients=False), self)

    def _hvd_finish(self, pairs: Any) -> Any:
        if self._agg_helper is None:
            passes, average, dense = self._hvd_passes
            with tf.init_scope():
                helper = LocalGradientAggregationHelperEager(passes, self._hvd_reduce, dense, average)
            object.__setattr__(self, "_agg_helper", helper)
        held = [v for _, v in pairs]
        return list(zip(self._agg_helper.compute_gradients([g for g, _ in pairs], held), held, strict=True))

    def _hvd_reduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        pairs = list(zip(grads, variables, strict=True))
        return [g for g, _ in self._aggregate_gradients(pairs)]  # type: ignore[attr-defined]


def accumulating(made: Any, passes: int, average: bool, dense: bool) -> Any:
    """A distributed optimizer of Keras 2 that takes a step after so many passes."""
    if hasattr(made, "inner_optimizer"):
        raise ValueError("backward_passes_per_step: wrap the optimizer that LossScaleOptimizer holds, before it is put into it")
    return _with(_Accumulating, made, _hvd_passes=(passes, average, dense))


def computing(made: Any) -> Any:
    """A distributed optimizer of `keras.optimizers.legacy`, with Horovod's `_compute_gradients`."""
    return _with(_Computing, made) if hasattr(type(made), "_compute_gradients") and not hasattr(made, "inner_optimizer") else made


def _with(own: type, made: Any, **also: Any) -> Any:
    of = type(made)
    names = {"__module__": of.__module__, "__qualname__": of.__qualname__, "__doc__": of.__doc__, **also}
    object.__setattr__(made, "__class__", type(of.__name__, (own, of), names))
    return made
