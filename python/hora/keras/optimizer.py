"""A Keras optimizer whose gradients are averaged over all ranks before it does anything with them."""

from __future__ import annotations

from typing import Any

import keras

from .. import _world
from ..errors import ArgumentError
from ..gradients import apart
from ..group import Group, Op
from . import _backend

__all__ = ["DistributedOptimizer", "load_model"]


class _Mixin:
    """Reduces before clipping, moving averages and the check for overflows, so that they see what all ranks agree on.

    That is in `apply`; where Keras adds several passes up, in the pass that applies them (on JAX in each: there Keras has no such place).
    """

    _hora: dict[str, Any]
    _hora_local: dict[int, Any]  # by id: a variable of Keras' is compared by value
    _hora_times = 1.0  # what every gradient is multiplied with
    _hora_scale_local = True
    _hora_alone = False  # this rank is in no group: its gradients are its own
    _hora_at: Any = ()  # the variables of the gradients that are being applied

    def register_local_var(self, variable: Any) -> None:
        """The gradient of this variable stays each rank's own, divided by the number of ranks unless that is switched off."""
        self._hora_local[id(variable)] = variable

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if grads and not self._hora_late():
            grads = self._hora_reduce(grads, self._trainable_variables if trainable_variables is None else trainable_variables)  # type: ignore[attr-defined]
        return super().apply(grads, trainable_variables)  # type: ignore[misc]

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        object.__setattr__(self, "_hora_at", list(trainable_variables))
        return super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        if self._hora_late():
            grads = self._hora_reduce(list(grads), self._hora_at)
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _hora_late(self) -> bool:
        return bool(self.gradient_accumulation_steps) and keras.backend.backend() != "jax"  # type: ignore[attr-defined]

    def _hora_reduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        times, here = self._hora_times, [id(v) in self._hora_local for v in variables]
        if _world._lib.world is None or self._hora_alone:
            return grads if times == 1 else [g if g is None else _backend.scaled(g, times) for g in grads]
        call = dict(self._hora)
        call["postscale"] *= times
        by = times / _backend.ranks(call["group"]) if any(here) and self._hora_scale_local else times
        return apart(grads, here, lambda shared: _backend.reduce(shared, **call), lambda g: _backend.scaled(g, by))


def DistributedOptimizer(
    optimizer: Any, op: Op | str = Op.AVERAGE, *, group: Group | None = None, compression: Any = None, sparse_as_dense: bool = False,
    prescale: float = 1.0, postscale: float = 1.0, scale_local: bool = True, named: bool = False,
) -> Any:  # fmt: skip
    """`optimizer` with its gradients averaged over all ranks, in one call a step.

    With `gradient_accumulation_steps` that is one step of the optimizer, not each pass. Variables given to `register_local_var` keep
    each rank's own gradients, divided by the number of ranks so that they weigh as much as the others' (not with `scale_local=False`).

    The result has the wrapped one's class name, module and configuration: a saved model loads where hora is not. What it has
    learned so far (a resumed optimizer's variables) is copied. `compression` is None, "fp16" or "bf16".

    >>> model.compile(hora.keras.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ArgumentError(
            f"DistributedOptimizer: {type(optimizer).__name__} is no Keras optimizer; pass keras.optimizers.Adam(…) or the like"
        )
    if isinstance(optimizer, _Mixin):
        raise ArgumentError("DistributedOptimizer: this optimizer is one already")
    scaled = getattr(keras.optimizers, "LossScaleOptimizer", None)
    if scaled is not None and keras.config.dtype_policy().name == "mixed_float16" and not isinstance(optimizer, scaled):
        # compile() would put it around ours: each rank would look for overflows in its own gradients, and ranks would part.
        optimizer = scaled(optimizer)
    cls = type(optimizer)
    made_of: Any = type(
        cls.__name__, (_Mixin, cls), {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    )
    made = made_of.from_config(optimizer.get_config())
    made._hora = {
        "op": op, "group": group, "prescale": prescale, "postscale": postscale, "compression": compression, "sparse_as_dense": sparse_as_dense,
        "named": named,
    }  # fmt: skip
    object.__setattr__(made, "_hora_local", {})  # past Keras' tracker, which would take them for its own variables
    made._hora_scale_local = scale_local
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        for new, old in zip(made.variables, optimizer.variables, strict=True):
            new.assign(old)
    return made


def load_model(filepath: Any, custom_objects: dict[str, Any] | None = None, **options: Any) -> Any:
    """keras.models.load_model, with the saved optimizer made distributed; `options` are DistributedOptimizer's.

    >>> model = hora.keras.load_model("last.keras")
    """
    model = keras.models.load_model(filepath, custom_objects=custom_objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not isinstance(optimizer, _Mixin):
        model.optimizer = DistributedOptimizer(optimizer, **options)
    return model
