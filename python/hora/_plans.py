"""Reductions in place that a program repeats on the same array: registered once, started by one number.

An array is registered when it is reduced in place for the second time in the same way. Torch tensors carry their
plan, NumPy arrays are found by their identity; both are looked at each time for what could have changed under the
plan (address, length, layout, life of the world). A plan goes with its array.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from . import _lib, arrays
from .group import Group, Plan

_SEEN = object()  # marks an array that was reduced in place once


class _Planned:
    """A plan and what it was made for."""

    __slots__ = ("age", "count", "dtype", "group", "handle", "op", "plan", "postscale", "prescale", "ptr", "ref")

    def __init__(self, a: arrays.Array, op: Any, group: Group | None, prescale: float, postscale: float, plan: Plan, ref: Any) -> None:
        self.age, self.op, self.group, self.prescale, self.postscale = _lib.age, op, group, prescale, postscale
        self.ptr, self.count, self.plan, self.handle, self.ref = a.ptr, a.count, plan, plan.handle, ref
        self.dtype = a.obj.dtype


_numpy: dict[int, Any] = {}  # id → _Planned, or the weak reference of an array seen once


def torch_plan(x: Any, op: Any, group: Group | None, prescale: float, postscale: float) -> _Planned | None:
    """The plan for a torch tensor, if it still fits."""
    p = getattr(x, "_hora_plan", None)
    if (
        p is None
        or p is _SEEN
        or p.op is not op
        or p.group is not group
        or p.ptr != x.data_ptr()
        or p.count != x.numel()
        or p.dtype is not x.dtype
        or p.prescale != prescale
        or p.postscale != postscale
        or p.age != _lib.age
        or not x.is_contiguous()
    ):
        return None
    return p


def numpy_plan(x: Any, op: Any, group: Group | None, prescale: float, postscale: float) -> _Planned | None:
    """The plan for a NumPy array, if it still fits. Its weak reference keeps NumPy from moving the memory."""
    p = _numpy.get(id(x))
    if (
        p.__class__ is not _Planned
        or p.ref() is not x
        or p.op is not op
        or p.group is not group
        or p.count != x.size
        or p.dtype is not x.dtype
        or p.prescale != prescale
        or p.postscale != postscale
        or p.age != _lib.age
        or not x.flags.carray
    ):
        return None
    return p


def _forget(key: int, _: Any) -> None:
    _numpy.pop(key, None)


def remember(a: arrays.Array, op: Any, code: int, group: Group | None, g: Group, prescale: float, postscale: float) -> Any:
    """Note a reduction in place; make a plan when it is not the first of this array. Answers who finds plans of its class."""
    x = a.obj
    torch = sys.modules.get("torch")
    if torch is not None and type(x) in (torch.Tensor, torch.nn.Parameter):
        if getattr(x, "_hora_plan", None) is None:
            x._hora_plan = _SEEN
        else:
            x._hora_plan = _make(a, op, code, group, g, prescale, postscale, None)
        return torch_plan
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(x) is numpy.ndarray:
        key = id(x)
        known = _numpy.get(key)
        ref = known.ref if known.__class__ is _Planned else known
        if ref is None or ref() is not x:
            _numpy[key] = weakref.ref(x, functools.partial(_forget, key))
        else:
            _numpy[key] = _make(a, op, code, group, g, prescale, postscale, ref)
        return numpy_plan
    return None


def _make(a: arrays.Array, op: Any, code: int, group: Group | None, g: Group, prescale: float, postscale: float, ref: Any) -> _Planned:
    plan = g.plan(1, code, a.dtype, 0, a.ptr, a.ptr, a.count, prescale=prescale, postscale=postscale, shape=a.shape)
    return _Planned(a, op, group, prescale, postscale, plan, ref)
