"""Groups of ranks, and the raw calls on them: pointers as integers, no checks, no allocation.

`hora.comm` and the framework packages sit on this page. Whoever calls it keeps the memory alive until the
operation has ended.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any

from . import _abi, _lib, _site, _world
from .errors import ArgumentError

__all__ = ["DTYPES", "DTYPE_NAMES", "DTYPE_SIZES", "Group", "Kind", "Op", "Plan"]


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

FLAG_NAMED = 1  # matched by name, in any order
FLAG_SIZES = 2  # the other ranks' counts are not known here: exchange them, and allocate the result
ANY_SOURCE = -1


def _pack(
    kind: int,
    op: int,
    dtype: int,
    root: int,
    send: int,
    recv: int,
    count: int,
    recv_count: int | None,
    prescale: float,
    postscale: float,
    name: bytes | str | None,
    send_counts: Sequence[int] | None,
    recv_counts: Sequence[int] | None,
    timeout: float | None,
    flags: int,
    row: int,
    tag: int,
    shape: Sequence[int] | None,
    device: int,
    budget: float = 0.0,
) -> tuple[bytes, Any]:
    """The bytes of a hora_op, and what must stay alive while it is read."""
    keep = None
    sc = rc = nm = sh = ndim = 0
    if shape is not None or name is not None or send_counts is not None or recv_counts is not None:
        sc, keep_s = _abi.int64s(send_counts)
        rc, keep_r = _abi.int64s(recv_counts)
        sh, keep_h = _abi.int64s(shape)
        ndim = 0 if shape is None else len(shape)
        nm, keep_n = _abi.text(name)
        keep = (keep_s, keep_r, keep_h, keep_n)
    return (
        _OP.pack(
            OP_SIZE, kind, op, dtype, flags, root, tag, prescale, postscale,
            0 if timeout is None else max(1, int(timeout * 1000)),
            int(budget * 1e6), row, send, recv, count, count if recv_count is None else recv_count, sc, rc, sh, ndim, device, nm,
        ),
        keep,
    )  # fmt: skip


def _sited(kind: int, *args: Any) -> tuple[bytes, Any]:
    """_pack, with the place of the call for a name where it has none. Matched by name, or between two ranks, it stays as it is."""
    name, flags = args[_NAME], args[_FLAGS]
    if name is None and not flags & FLAG_NAMED and kind not in (Kind.SEND, Kind.RECV):
        args = (*args[:_NAME], _site.site(), *args[_NAME + 1 :])
    return _pack(kind, *args)


_NAME, _FLAGS = 9, 13  # in _sited's args
_call = _sited if _site.asked() else _pack  # nothing is looked at in calls where nobody asked


class Plan:
    """A registered operation: its arguments were read once, each start costs one handle.

    Starting is what every rank must do in the same order, as with any ordered call. The plan keeps `keep`
    alive until `close()` (or until it is collected).
    """

    __slots__ = ("_keep", "handle")

    def __init__(self, handle: int, keep: Any) -> None:
        self.handle = handle
        self._keep = keep

    def run(self) -> None:
        """Start and wait: inline on this thread when nothing is queued."""
        _lib.start(self.handle, self._keep)

    def submit(self) -> int:
        """Start in the background and return the ticket."""
        return _lib.start_async(self.handle, self._keep)

    def close(self) -> None:
        """Give the plan back; not while it is running."""
        handle, self.handle, self._keep = self.handle, 0, None
        if handle:
            _lib.plan_close(handle)

    def __del__(self) -> None:
        try:
            if self.handle:
                self.close()
        except Exception:  # it was never made, the library is gone or the process is a forked child: nothing to give back
            pass


class Group:
    """Ranks that communicate: the world, or some of its ranks.

    `Group([0, 2])` is called by its members only (a rank that is not in the list gets a group with
    `included` False and no communication); `tag` tells apart groups of the same ranks made by different
    parts of a program. Inside a group ranks are numbered in ascending order.

    >>> evens = hora.Group(range(0, hora.size(), 2))
    >>> if evens.included: assert hora.allreduce(1, group=evens) == evens.size
    """

    __slots__ = ("_handle", "_rank", "_ranks", "tag")

    def __init__(self, ranks: Sequence[int] | None = None, tag: str = "", *, timeout: float | None = None) -> None:
        self.tag = tag
        self._ranks: tuple[int, ...] = ()
        if ranks is None:  # the world
            self._handle = 0
            self._rank = -1
            return
        world = _world.world_info()
        members = sorted(int(r) for r in ranks)
        if len(set(members)) != len(members) or not members:
            raise ArgumentError(f"make group: ranks {members} must be different and at least one")
        bad = [r for r in members if not 0 <= r < world["size"]]
        if bad:
            raise ArgumentError(f"make group: rank {bad[0]} is not in the world of {world['size']}")
        self._ranks = tuple(members)
        self._rank = members.index(world["rank"]) if world["rank"] in members else -1
        self._handle = 0
        if self._rank >= 0:
            self._handle = _world.group_open(members, tag, timeout)

    # -- who

    @property
    def rank(self) -> int:
        """This process's rank in the group, -1 when it is not a member."""
        return self._rank if self._ranks else _world.world_info()["rank"]

    @property
    def size(self) -> int:
        """How many ranks the group has."""
        return len(self._ranks) or _world.world_info()["size"]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The members' ranks in the world, in the group's order."""
        return self._ranks or tuple(range(_world.world_info()["size"]))

    @property
    def included(self) -> bool:
        """Whether this process is a member."""
        return self._rank >= 0 or not self._ranks

    @property
    def handle(self) -> int:
        """The library's handle; raises `ArgumentError` when this process is not a member."""
        if self._ranks and not self._handle:
            if self._rank >= 0:
                raise ArgumentError(f"use group of ranks {list(self._ranks)}: it is closed")
            raise ArgumentError(f"use group of ranks {list(self._ranks)}: rank {_world.world_info()['rank']} is not in it")
        return self._handle

    # -- raw calls; see hora.h for what each kind reads

    def run(
        self, kind: int, op: int, dtype: int, root: int, send: int, recv: int, count: int, *,
        recv_count: int | None = None, prescale: float = 1.0, postscale: float = 1.0, name: str | None = None,
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        timeout: float | None = None, flags: int = 0, row: int = 0, tag: int = 0,
        shape: Sequence[int] | None = None, device: int = 0, keep: Any = None,
    ) -> None:  # fmt: skip
        """Run one operation and return when it has ended; inline on this thread when nothing is queued.

        `count` elements are read at `send` and `recv_count` (default: what the kind and `count` imply) are
        written at `recv`; `send_counts` and `recv_counts` hold one count per rank for the kinds that end in v.
        `root` is the root, the destination or the source. `keep` is held until the operation has ended, also
        when Ctrl-C cuts the call short.
        """
        packed, held = _call(kind, op, dtype, root, send, recv, count, recv_count, prescale, postscale, name,
                             send_counts, recv_counts, timeout, flags, row, tag, shape, device)  # fmt: skip
        _lib.run(self.handle, packed, (held, keep))

    def begin(
        self, kind: int, op: int, dtype: int, root: int, send: int, recv: int, count: int, *,
        recv_count: int | None = None, prescale: float = 1.0, postscale: float = 1.0, name: str | None = None,
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        timeout: float | None = None, flags: int = 0, row: int = 0, tag: int = 0,
        shape: Sequence[int] | None = None, device: int = 0, keep: Any = None, budget: float = 0.0002,
    ) -> int:  # fmt: skip
        """Run one operation on this thread for at most about `budget` seconds.

        0 when it has ended by then, else the ticket of what goes on in the background. Arguments as for `run`.
        """
        packed, held = _call(kind, op, dtype, root, send, recv, count, recv_count, prescale, postscale, name,
                             send_counts, recv_counts, timeout, flags, row, tag, shape, device, budget)  # fmt: skip
        return _lib.begin(self.handle, packed, (held, keep))

    def submit(
        self, kind: int, op: int, dtype: int, root: int, send: int, recv: int, count: int, *,
        recv_count: int | None = None, prescale: float = 1.0, postscale: float = 1.0, name: str | None = None,
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        timeout: float | None = None, flags: int = 0, row: int = 0, tag: int = 0,
        shape: Sequence[int] | None = None, device: int = 0, keep: Any = None,
    ) -> int:  # fmt: skip
        """Start one operation, ordered as called, and return its ticket. Arguments as for `run`.

        A ticket is a number that releases itself when nothing refers to it any more.
        """
        packed, held = _call(kind, op, dtype, root, send, recv, count, recv_count, prescale, postscale, name,
                             send_counts, recv_counts, timeout, flags, row, tag, shape, device)  # fmt: skip
        return _lib.submit(self.handle, packed, 1, (held, keep))[0]

    def submit_many(self, calls: Sequence[dict[str, Any]], *, named: bool = False, awaited: bool = False) -> list[int]:
        """Start several operations as one: all or none, one ticket each.

        Every call is a dict of the arguments of `run` by name. With `named` they need names, match by name
        whatever the order on the other ranks, and become ready as a unit. `awaited` says that the caller waits for
        them at once: should an exception cut that short, its next call by one of these names waits in its place.
        """
        parts, keeps = [], []
        for call in calls:
            packed, held = _call(
                call["kind"], call.get("op", 0), call.get("dtype", 2), call.get("root", 0), call.get("send", 0),
                call.get("recv", 0), call.get("count", 0), call.get("recv_count"), call.get("prescale", 1.0),
                call.get("postscale", 1.0), call.get("name"), call.get("send_counts"), call.get("recv_counts"),
                call.get("timeout"), call.get("flags", 0) | (FLAG_NAMED if named else 0), call.get("row", 0),
                call.get("tag", 0), call.get("shape"), call.get("device", 0),
            )  # fmt: skip
            parts.append(packed)
            keeps.append((held, call.get("keep")))
        return _lib.submit(self.handle, b"".join(parts), len(parts), keeps, awaited)

    def plan(
        self, kind: int, op: int, dtype: int, root: int, send: int, recv: int, count: int, *,
        recv_count: int | None = None, prescale: float = 1.0, postscale: float = 1.0, name: str | None = None,
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        timeout: float | None = None, flags: int = 0, row: int = 0, tag: int = 0,
        shape: Sequence[int] | None = None, device: int = 0, keep: Any = None,
    ) -> Plan:  # fmt: skip
        """Register an operation that will be started often; see `Plan`. Local: no other rank is told."""
        packed, held = _pack(kind, op, dtype, root, send, recv, count, recv_count, prescale, postscale, name,
                             send_counts, recv_counts, timeout, flags, row, tag, shape, device)  # fmt: skip
        return Plan(_lib.plan(self.handle, packed), (keep, held))

    def wait(self, ticket: int, timeout: float | None = None) -> bool:
        """Wait for a ticket: True when it has ended well, False when `timeout` seconds have passed; raises its error.

        Signals are served every 50 ms. The ticket stays valid until `release`.
        """
        try:
            return _lib.wait(ticket, timeout)
        except _lib.OperationFailed as failed:
            raise failed.error from None

    def poll(self, ticket: int) -> bool:
        """Whether the ticket's operation has ended, well or not; never blocks and never raises its error."""
        return _lib.poll(ticket)

    def result(self, ticket: int) -> _lib.Result:
        """What an ended operation left: memory of the library's (`FLAG_SIZES`), counts, or a number."""
        return _lib.result(ticket)

    def release(self, ticket: int) -> None:
        """Forget a ticket; its result memory lives on as long as something refers to it."""
        _lib.release(ticket)

    def join(self, timeout: float | None = None) -> int:
        """Contribute zeros to the others' named reductions until all have joined; returns the last rank that did."""
        ticket = _lib.join(self.handle)
        try:
            if not self.wait(ticket, timeout):
                from .errors import DeadlineError

                raise DeadlineError(f"join: not all ranks joined within the timeout of {timeout:g} s")
            return _lib.result(ticket).value
        finally:
            _lib.release(ticket)

    def counters(self) -> dict[str, int]:
        """Bytes and messages by link since the group was made."""
        return _world.info(self.handle).get("counters", {})

    def abort(self, reason: str) -> None:
        """End every pending and later operation of the group with `ClosedError`, on this rank at once."""
        _world.abort(self.handle, reason)

    def close(self) -> None:
        """Give the group back (the world is closed by `hora.shutdown`)."""
        handle, self._handle = self._handle, 0
        if handle:
            _world.group_close(handle)

    def __repr__(self) -> str:
        return f"hora.Group(rank={self.rank}, ranks={list(self.ranks)})" if self._ranks else "hora.world()"


_WORLD = Group()


def group_of(group: Any) -> Group:
    """The group that a call named; None is the world."""
    if group is None:
        return _WORLD
    if not isinstance(group, Group):
        raise ArgumentError(f"group={group!r} is no group; make one with hora.Group([0, 1]), on every rank in the same order")
    return group
