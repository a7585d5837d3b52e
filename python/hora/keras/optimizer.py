"""A Keras optimizer whose gradients are averaged over all ranks before it does anything with them."""

from __future__ import annotations

from typing import Any

import keras

from .. import _world
from ..errors import ArgumentError
from ..group import Group, Op
from . import _backend

__all__ = ["DistributedOptimizer"]


class _Mixin:
    """Reduces in `apply`: clipping, moving averages, accumulation and the check for overflows see what all ranks agree on."""

    _hora: dict[str, Any]

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if grads and _world._lib.world is not None:
            grads = _backend.reduce(grads, **self._hora)
        return super().apply(grads, trainable_variables)  # type: ignore[misc]


def DistributedOptimizer(
    optimizer: Any, op: Op | str = Op.AVERAGE, *, group: Group | None = None, compression: Any = None, sparse_as_dense: bool = False,
    prescale: float = 1.0, postscale: float = 1.0,
) -> Any:  # fmt: skip
    """`optimizer` with its gradients averaged over all ranks, in one call a step.

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
    }  # fmt: skip
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        for new, old in zip(made.variables, optimizer.variables, strict=True):
            new.assign(old)
    return made
