"""The shortest way for an allreduce in place of a tensor that comes again: its arguments are packed once.

Only the name changes between calls, and it is written in place.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

import hora
from hora import _lib
from hora.group import FLAG_NAMED, Kind, _pack

from ..common.process_sets import ProcessSet
from ._check import dtype_code
from ._handles import Pending, _handle_map, group_of, internal, next_handle, run

__all__ = ["begin_here", "reduce_here"]

_LIMIT = 1024  # tensors remembered; beyond it all are forgotten
_NAME = 96  # bytes of a name that is written in place

_known: dict[tuple, tuple[int, bytes, Any, Any]] = {}


def forget() -> None:
    """At shutdown: group handles mean nothing afterwards."""
    _known.clear()


def _key(t: torch.Tensor, op: Any, pre: float, post: float, group: hora.Group) -> tuple:
    return (t.data_ptr(), t.shape, t.dtype, op._value_, pre, post, group)  # an operator's own hash is slow


def begin_here(t: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet) -> int:
    """Start to reduce a contiguous host tensor in place; the handle, 0 when the name is too long for this way."""
    full = b"allreduce.%s" % name.encode() if name else None
    if full is not None and len(full) >= _NAME:
        return 0
    group = ps.group or group_of(ps)
    key = _key(t, op, pre, post, group)
    number, packed, written, keep = _known.get(key) or _remember(key, t, op, pre, post, group)
    handle = next_handle()
    written.value = full or b"allreduce.noname.%d" % handle  # read before submit returns
    try:
        tickets = _lib.submit(number, packed, 1, (keep, t))
    except BaseException as error:
        raise _cut_short(key, error) from None
    _handle_map[handle] = Pending(group, tickets, None, (t, keep))
    return handle


def reduce_here(t: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet) -> None:
    """Reduce a contiguous host tensor in place, on this thread."""
    handle = next_handle()
    full = b"allreduce.%s" % name.encode() if name else b"allreduce.noname.%d" % handle
    group = ps.group or group_of(ps)
    key = _key(t, op, pre, post, group)
    number, packed, written, keep = _known.get(key) or _remember(key, t, op, pre, post, group)
    if len(full) >= _NAME:
        run(
            group, Kind.ALLREDUCE, op, dtype_code(t), 0, t.data_ptr(), t.data_ptr(), t.numel(), prescale=pre, postscale=post,
            name=full.decode(), shape=t.shape, keep=t,
        )  # fmt: skip
        return
    written.value = full
    try:
        _lib.run(number, packed, (keep, t))
    except BaseException as error:
        raise _cut_short(key, error) from None


def _cut_short(key: tuple, error: BaseException) -> BaseException:
    """A call that was cut short is known by its name while it goes on: the next call packs anew."""
    _known.pop(key, None)
    if not isinstance(error, hora.HoraError):
        return error
    said = internal(error)
    said.__cause__ = error
    return said


def _remember(key: tuple, t: torch.Tensor, op: Any, pre: float, post: float, group: hora.Group) -> tuple:
    if len(_known) >= _LIMIT:
        _known.clear()
    written = ctypes.create_string_buffer(_NAME)
    n, p = t.numel(), t.data_ptr()
    packed, keep = _pack(Kind.ALLREDUCE, op, dtype_code(t), 0, p, p, n, n, pre, post, None, None, None, None, FLAG_NAMED, 0, 0, t.shape, 0)
    at = len(packed) - 8  # the name is hora_op's last field
    packed = packed[:at] + ctypes.addressof(written).to_bytes(8, "little")
    found = _known[key] = (group.handle, packed, written, (keep, written))
    return found
