"""Several passes before a step, which Keras 3 adds up itself and Keras 2 cannot; and gradients that a program asks
Keras 2's older optimizers for."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from . import which
from ._carried import again
from .optimizer import DistributedOptimizer

__all__ = ["distributed"]


def distributed(optimizer: Any, passes: int, average: bool, **settings: Any) -> Any:
    """hora.keras.DistributedOptimizer, of which so many passes make a step: the sum of their gradients, or their mean."""
    two = which.family(optimizer) is not None and which.two(optimizer)
    if passes > 1 and not two and which.family(optimizer) is not None:
        optimizer = _accumulating_three(optimizer, passes)
    made = DistributedOptimizer(optimizer, **settings)
    if two:
        made = _computing(made)
        if passes > 1:
            made = _accumulating(made, passes, average, settings.get("sparse_as_dense", False))
    elif passes > 1 and not average:
        type(which.inner(made))._hora_times = float(passes)  # Keras divides by the passes
    return made


def _accumulating_three(optimizer: Any, passes: int) -> Any:
    """The optimizer with Keras' accumulation of so many passes; what it has learned so far is copied."""
    if getattr(optimizer, "gradient_accumulation_steps", None):
        raise ArgumentError(
            "backward_passes_per_step: this optimizer has gradient_accumulation_steps already; give one of the two"
        )
    if hasattr(optimizer, "inner_optimizer"):
        raise ArgumentError(
            "backward_passes_per_step: wrap the optimizer that LossScaleOptimizer holds, before it is put into it"
        )
    made = again(type(optimizer), optimizer, gradient_accumulation_steps=passes)
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        known = {v.path: v for v in optimizer.variables}
        for v in made.variables:
            if v.path in known:
                v.assign(known[v.path] * passes if v.path.endswith("/iteration") else known[v.path])
    return made


class _Computing:
    """What `_compute_gradients` of an older optimizer gives is reduced already; applying just that
    reduces nothing anew."""

    _hora_given: Any = ()

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        pairs = list(super()._compute_gradients(loss, var_list, grad_loss, tape=tape))  # type: ignore[misc]
        out = list(self._hora_finish(pairs)) if pairs else pairs
        object.__setattr__(self, "_hora_given", [g for g, _ in out])
        return out

    def _hora_finish(self, pairs: Any) -> Any:
        return super()._aggregate_gradients(pairs)  # type: ignore[misc]

    def _hora_is_given(self, pairs: Any) -> bool:
        given = {
            id(g) for g in self._hora_given if g is not None
        }  # which are held there, so that no other has such an id
        left = [g for g, _ in pairs if g is not None]  # Keras drops the others
        return bool(left) and all(id(g) in given for g in left)

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        pairs = list(grads_and_vars)
        return pairs if self._hora_is_given(pairs) else super()._aggregate_gradients(pairs)  # type: ignore[misc]


class _Accumulating:
    """Adds gradients up on this rank; the pass that completes a step reduces the sums and applies them, the others
    change no variable."""

    _hora_passes: tuple[int, bool, bool]
    _agg_helper: Any = None

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None, experimental_aggregate_gradients: bool = True, **kwargs: Any
    ) -> Any:
        apply, pairs = super().apply_gradients, list(grads_and_vars)  # type: ignore[misc]
        added = getattr(self, "_hora_is_given", lambda _: False)(pairs)
        if not added and (kwargs.pop("skip_gradients_aggregation", False) or not experimental_aggregate_gradients):
            return apply(pairs, name=name, experimental_aggregate_gradients=False)
        import tensorflow as tf

        held = [v for _, v in pairs]
        with tf.init_scope():
            if hasattr(self, "build"):
                self.build(held)
            else:
                self._create_all_weights(held)  # type: ignore[attr-defined]
        if not added:
            pairs = self._hora_finish(pairs)
        return self._agg_helper.apply_gradients(
            lambda: apply(pairs, name=name, experimental_aggregate_gradients=False), self
        )

    def _hora_finish(self, pairs: Any) -> Any:
        if self._agg_helper is None:
            import tensorflow as tf

            from ..tensorflow.passes import Stepwise

            passes, average, dense = self._hora_passes
            with tf.init_scope():
                helper = Stepwise(passes, self._hora_sums, average=average, sparse_as_dense=dense)
            object.__setattr__(self, "_agg_helper", helper)
        held = [v for _, v in pairs]
        return list(zip(self._agg_helper.compute_gradients([g for g, _ in pairs], held), held, strict=True))

    def _hora_sums(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        pairs = list(zip(grads, variables, strict=True))
        return [g for g, _ in self._aggregate_gradients(pairs)]  # type: ignore[attr-defined]


def _accumulating(made: Any, passes: int, average: bool, dense: bool) -> Any:
    """A distributed optimizer of Keras 2 that takes a step after so many passes."""
    if hasattr(made, "inner_optimizer"):
        raise ArgumentError(
            "backward_passes_per_step: wrap the optimizer that LossScaleOptimizer holds, before it is put into it"
        )
    return _with(_Accumulating, made, _hora_passes=(passes, average, dense))


def _computing(made: Any) -> Any:
    """A distributed optimizer of `keras.optimizers.legacy`, whose `_compute_gradients` gives reduced gradients."""
    return (
        _with(_Computing, made)
        if hasattr(type(made), "_compute_gradients") and not hasattr(made, "inner_optimizer")
        else made
    )


def _with(own: type, made: Any, **also: Any) -> Any:
    of = type(made)
    names = {"__module__": of.__module__, "__qualname__": of.__qualname__, "__doc__": of.__doc__, **also}
    object.__setattr__(made, "__class__", type(of.__name__, (own, of), names))
    return made
