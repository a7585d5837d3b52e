"""An optax optimizer whose gradients are averaged over all ranks."""

from __future__ import annotations

from typing import Any

from .._site import Unnamed
from ..errors import ArgumentError
from ..group import Group, Op
from ._calls import allreduce

__all__ = ["DistributedOptimizer", "average_gradients"]


def average_gradients(
    op: Op | str = Op.AVERAGE, *, group: Group | None = None, prescale: float = 1.0, postscale: float = 1.0
) -> Any:
    """An optax transformation that averages over all ranks; for chains of one's own.

    >>> tx = optax.chain(hora.jax.average_gradients(), optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    """
    import optax

    def init(params: Any) -> Any:
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return allreduce(
            updates, op, group=group, prescale=prescale, postscale=postscale, name=Unnamed("gradients")
        ), state

    return optax.GradientTransformation(init, update)


def DistributedOptimizer(optimizer: Any, op: Op | str = Op.AVERAGE, *, group: Group | None = None,
                         prescale: float = 1.0, postscale: float = 1.0) -> Any:  # fmt: skip
    """`optimizer` (optax) with its gradients averaged first, in one call of all arrays.

    >>> tx = hora.jax.DistributedOptimizer(optax.adam(1e-3))
    >>> updates, state = tx.update(gradients, state, params)      # inside jax.jit or outside
    """
    import optax

    if not hasattr(optimizer, "init") or not hasattr(optimizer, "update"):
        raise ArgumentError(
            f"DistributedOptimizer: {type(optimizer).__name__} is no optax transformation; pass optax.adam(…) or the like"
        )
    return optax.chain(average_gradients(op, group=group, prescale=prescale, postscale=postscale), optimizer)
