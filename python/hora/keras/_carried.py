"""An optimizer made anew from its configuration, with what that does not hold."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from ..errors import ArgumentError
from . import which

__all__ = ["again", "carry"]


def again(cls: Any, optimizer: Any, **settings: Any) -> Any:
    """`optimizer` as an object of another class: its configuration, and its values."""
    try:
        made = cls.from_config(optimizer.get_config() | settings)
    except Exception as error:
        raise ArgumentError(
            f"DistributedOptimizer: {type(optimizer).__name__} cannot be made from its configuration ({type(error).__name__}: {error}); give "
            "the class a get_config() that has what its constructor takes"
        ) from error
    carry(optimizer, made)
    return made


def carry(old: Any, new: Any) -> None:
    """Give an optimizer the values that its configuration does not hold, and the optimizer that it scales its own's.

    What exclude_from_weight_decay() was told is one of those, and what a program's class keeps. What Keras itself keeps
    of an optimizer is not, nor are variables: those of the new one are its own.
    """
    own = {id(v) for v in which.variables(old)} | {id(old)}
    skipped = _kept_by_keras(old)
    for name, value in vars(old).items():
        if name in skipped or name.startswith(("_self_", "_hora")) or _held(value, own):
            continue
        inside = vars(new).get(name)
        if name == "inner_optimizer" and inside is not None:
            carry(value, inside)
            continue
        # Past Keras' trackers; a container is each one's own.
        object.__setattr__(new, name, copy.copy(value) if isinstance(value, (list, dict, set)) else value)


def _kept_by_keras(optimizer: Any) -> set[str]:
    """The names of what Keras keeps in every optimizer, which its configuration has or which is the object's own."""
    found: Any = which.family(optimizer).optimizers
    if not which.two(optimizer):
        return set(vars(found.Optimizer(0.0)))
    legacy = which.older(which.family(optimizer))
    if legacy is not None and isinstance(optimizer, legacy.Optimizer):
        found = legacy
    return set(vars(found.SGD(0.0)))


def _held(value: Any, own: set[int]) -> bool:
    """Whether a value is one of the optimizer's own variables, or holds any, or is bound to the optimizer."""
    if isinstance(value, dict):
        return any(_held(v, own) for v in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_held(v, own) for v in value)
    return id(value) in own or inspect.ismethod(value) and id(value.__self__) in own
