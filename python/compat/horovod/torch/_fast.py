"""The shortest way for a blocking allreduce of a tensor that comes again: its arguments are packed once.

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
from ._handles import group_of, internal, next_handle

__all__ = ["reduce_here"]

_LIMIT = 1024  # tensors remembered; beyond it all are forgotten
_NAME = 96  # bytes of a name that is written in place

_known: dict[tuple, tuple[int, bytes, Any, Any]] = {}


def forget() -> None:
    """At shutdown: group handles mean nothing afterwards."""
    _known.clear()


def reduce_here(t: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet) -> None:
    """Reduce a contiguous host tensor in place, on this thread."""
    handle = next_handle()
    full = b"allreduce.%s" % name.encode() if name else b"allreduce.noname.%d" % handle
    key = (t.data_ptr(), t.shape, t.dtype, op, pre, post, ps)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _LIMIT:
            _known.clear()
        found = _remember(key, t, op, pre, post, ps)
    group, packed, written, keep = found
    if len(full) >= _NAME:
        group_of(ps).run(
            Kind.ALLREDUCE, op, dtype_code(t), 0, t.data_ptr(), t.data_ptr(), t.numel(), prescale=pre, postscale=post,
            name=full.decode(), shape=t.shape, flags=FLAG_NAMED,
        )  # fmt: skip
        return
    written.value = full
    try:
        _lib.run(group, packed, (keep, t))
    except hora.HoraError as error:
        _known.pop(key, None)  # a call that was cut short may still read the name
        raise internal(error) from error
    except BaseException:
        _known.pop(key, None)
        raise


def _remember(key: tuple, t: torch.Tensor, op: Any, pre: float, post: float, ps: ProcessSet) -> tuple:
    group = group_of(ps).handle
    written = ctypes.create_string_buffer(_NAME)
    n, p = t.numel(), t.data_ptr()
    packed, keep = _pack(Kind.ALLREDUCE, op, dtype_code(t), 0, p, p, n, n, pre, post, None, None, None, None, FLAG_NAMED, 0, 0, t.shape, 0)
    at = len(packed) - 8  # the name is hora_op's last field
    packed = packed[:at] + ctypes.addressof(written).to_bytes(8, "little")
    found = _known[key] = (group, packed, written, (keep, written))
    return found
