"""One operation on memory that is given by address: what a `Group` runs, starts in the background or keeps for later.

This page is for packages that put another interface before hora; `hora.comm` and the framework packages sit on it.
Whoever makes a call keeps its memory alive until the operation has ended: `keep` does so.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any

from . import _abi, _site
from .errors import ArgumentError

__all__ = [
    "ANY_SOURCE",
    "COUNTED",
    "DTYPES",
    "DTYPE_NAMES",
    "DTYPE_SIZES",
    "NAMED",
    "SIZES",
    "Call",
    "Kind",
    "Op",
    "operator",
]


class Op(enum.IntEnum):
    """How the ranks' elements become one (the numbers are those of the C ABI)."""

    SUM = 0
    AVERAGE = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    AND = 5
    OR = 6
    XOR = 7
    ADASUM = 8


class Kind(enum.IntEnum):
    """Which operation (the numbers are those of the C ABI)."""

    ALLREDUCE = 1
    REDUCE = 2
    BROADCAST = 3
    ALLGATHER = 4
    REDUCE_SCATTER = 5
    ALLTOALL = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9
    SEND = 10
    RECV = 11


OPS: dict[Any, int] = {o: int(o) for o in Op} | {o.name.lower(): int(o) for o in Op} | {o.name: int(o) for o in Op}
OPS["avg"], OPS["prod"] = int(Op.AVERAGE), int(Op.PRODUCT)

DTYPE_NAMES: tuple[str, ...] = (
    "invalid", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
DTYPE_SIZES: tuple[int, ...] = (0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16, 1, 1)
DTYPES: dict[str, int] = {name: number for number, name in enumerate(DTYPE_NAMES) if number}

# struct hora_op of hora.h: size, kind, op, dtype, flags, root, tag, prescale, postscale, timeout_ms, budget_us, row,
# send, recv, send_count, recv_count, send_counts, recv_counts, shape, ndim, device, name.
_OP = struct.Struct("=I4BiIddQQQQQQQQQQIIQ")
OP_SIZE = _OP.size
_DEVICE = struct.Struct("=I")
_DEVICE_AT = OP_SIZE - 12  # before the name, which is the last field

NAMED = 1  # matched by name, in any order
SIZES = 2  # the other ranks' counts are not known here: exchange them, and allocate the result
# The name counts calls and does not come again; where it ends in a dot and a number, the next differs in that alone.
COUNTED = 4
ANY_SOURCE = -1  # as the root of a RECV: whoever sends

_placed = _site.asked()  # nothing is looked at in calls where nobody asked
_SEND = int(Kind.SEND)


def operator(op: Any, what: str) -> int:
    """The number of an operator that a call of `what` named: an `Op`, or its name."""
    try:
        return OPS[op]
    except (KeyError, TypeError):
        names = ", ".join(o.name.lower() for o in Op)
        raise ArgumentError(f"{what}: op={op!r} is no operator; use one of {names}") from None


class Call:
    """One operation: what `Group.run`, `begin`, `submit`, `submit_many` and `plan` take.

    kind, op: a `Kind` and, where it reduces, an `Op`.
    dtype: the element type's number (`DTYPES["float32"]`).
    root: the root's, the destination's or the source's rank in the group; `ANY_SOURCE` receives from any.
    send, count: address and number of elements of what is read.
    recv, recv_count: address and number of elements of what is written; by default as many as are read.
    prescale, postscale: factors before and after a reduction.
    send_counts, recv_counts: elements for each rank, where parts differ.
    shape: compared between the ranks, so that a difference is an error that names it.
    name, flags: `NAMED` calls match by name in any order; without it a name is for messages and is compared.
        `COUNTED` says that the name counts calls ("loss.17"), so that nothing is kept by it; alike on all ranks.
    row: with `SIZES`, the elements of one row of the first dimension.
    tag: of a message. timeout: seconds, by default the group's.
    device: 0 for the host, 1+i for accelerator i: compared only, the memory is the host's.
    budget: seconds that `begin` stays on the calling thread.
    room: bytes kept for names, where `rename` is to change them.
    keep: stays alive until the operation has ended, also when Ctrl-C cuts the call short.

    The arguments are read once; a call may be started as often as its memory stays.

    >>> from hora.group import DTYPES, Call, Kind
    >>> x = np.ones(3)
    >>> at = x.ctypes.data
    >>> hora.world().run(Call(Kind.ALLREDUCE, hora.SUM, DTYPES["float64"], send=at, recv=at, count=3), keep=x)
    >>> x
    array([2., 2., 2.])
    """

    __slots__ = ("_held", "_most", "_room", "flags", "keep", "packed")

    def __init__(
        self, kind: int, op: int = 0, dtype: int = 2, root: int = 0, send: int = 0, recv: int = 0, count: int = 0, *,
        recv_count: int | None = None, prescale: float = 1.0, postscale: float = 1.0, name: str | bytes | None = None,
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        timeout: float | None = None,
        flags: int = 0, row: int = 0, tag: int = 0, shape: Sequence[int] | None = None, device: int = 0,
        budget: float = 0.0,
        room: int = 0, keep: Any = None,
    ) -> None:  # fmt: skip
        if _placed and name is None and not (flags & NAMED or kind >= _SEND):
            name = _site.site()
        self.flags, self.keep = flags, keep
        self._most = 0  # bytes of a name in _room, its end included
        sc = rc = sh = nm = ndim = 0
        held: Any = None
        if shape is not None:
            ndim = len(shape)
            sh, held = _abi.int64s(shape)
        if name is not None or room:
            nm, written = _abi.text(name, room)
            held = held, written
            if room:
                self._room: Any = written
                self._most = room
        if send_counts is not None or recv_counts is not None:
            sc, keep_s = _abi.int64s(send_counts)
            rc, keep_r = _abi.int64s(recv_counts)
            held = held, keep_s, keep_r
        self._held = held  # what the bytes point to
        self.packed = _OP.pack(
            OP_SIZE, kind, op, dtype, flags, root, tag, prescale, postscale,
            0 if timeout is None else max(1, int(timeout * 1000)), int(budget * 1e6) if budget else 0, row, send, recv,
            count,
            count if recv_count is None else recv_count, sc, rc, sh, ndim, device, nm,
        )  # fmt: skip

    def rename(self, name: bytes) -> bool:
        """Give the call another name for its next start; False where `room` does not do for it."""
        if len(name) >= self._most:
            return False
        self._room.value = name  # read before a start returns
        return True

    def on(self, device: int) -> bytes:
        """The call's bytes with another device."""
        p = self.packed
        return p[:_DEVICE_AT] + _DEVICE.pack(device) + p[_DEVICE_AT + 4 :]
