"""The shortest way for an allreduce in place of a tensor that comes again: the call is made once.

Only the name changes between its starts, and it is written in place.
"""

from __future__ import annotations

from typing import Any

import torch

import hora
from hora.group import COUNTED, NAMED, Call, Kind

from ..common.process_sets import ProcessSet
from ._check import dtype_code
from ._handles import PLACED, Pending, claim, group_of, internal, label, next_handle, run

__all__ = ["begin_here", "reduce_here"]

_LIMIT = 1024  # tensors remembered; beyond it all are forgotten
_NAME = 96  # bytes of a name that is written in place

_known: dict[tuple, Call] = {}


def forget() -> None:
    """At shutdown: groups mean nothing afterwards."""
    _known.clear()


def _key(t: torch.Tensor, op: Any, pre: float, post: float, group: hora.Group, flags: int) -> tuple:
    return (t.data_ptr(), t.shape, t.dtype, op._value_, pre, post, group, flags)  # an operator's own hash is slow


def begin_here(t: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet) -> int:
    """Start to reduce a contiguous host tensor in place; the handle, 0 when the name is too long for this way."""
    if PLACED and not name:
        return 0
    full = b"allreduce.%s" % name.encode() if name else None
    if full is not None and len(full) >= _NAME:
        return 0
    group, flags = ps.group or group_of(ps), NAMED if name else NAMED | COUNTED
    key = _key(t, op, pre, post, group, flags)
    call = _known.get(key) or _remember(key, t, op, pre, post, flags)
    handle = next_handle()
    if name:
        claim(group, f"allreduce.{name}")
    call.rename(full or b"allreduce.noname.%d" % handle)
    try:
        ticket = group.submit(call, t)
    except BaseException as error:
        raise _cut_short(key, error) from None
    Pending(handle, group, [ticket], None, (t, call), name and f"allreduce.{name}")
    return handle


def reduce_here(t: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet) -> None:
    """Reduce a contiguous host tensor in place, on this thread."""
    handle = next_handle()
    group = ps.group or group_of(ps)
    if PLACED:
        called, flags = label("allreduce", name, handle)
        full = called.encode()
    elif name:
        full, flags = b"allreduce.%s" % name.encode(), NAMED
    else:
        full, flags = b"allreduce.noname.%d" % handle, NAMED | COUNTED
    key = _key(t, op, pre, post, group, flags)
    call = _known.get(key) or _remember(key, t, op, pre, post, flags)
    if not call.rename(full):
        p = t.data_ptr()
        run(group, Call(
            Kind.ALLREDUCE, op, dtype_code(t), 0, p, p, t.numel(), prescale=pre, postscale=post, name=full, flags=flags,
            shape=t.shape,
            keep=t,
        ))  # fmt: skip
        return
    try:
        group.run(call, t)
    except BaseException as error:
        raise _cut_short(key, error) from None


def _cut_short(key: tuple, error: BaseException) -> BaseException:
    """A call that was cut short is known by its name while it goes on: the next one is made anew."""
    _known.pop(key, None)
    if not isinstance(error, hora.HoraError):
        return error
    said = internal(error)
    said.__cause__ = error
    return said


def _remember(key: tuple, t: torch.Tensor, op: Any, pre: float, post: float, flags: int) -> Call:
    if len(_known) >= _LIMIT:
        _known.clear()
    p = t.data_ptr()
    call = _known[key] = Call(
        Kind.ALLREDUCE,
        op,
        dtype_code(t),
        0,
        p,
        p,
        t.numel(),
        prescale=pre,
        postscale=post,
        flags=flags,
        shape=t.shape,
        room=_NAME,
    )
    return call
