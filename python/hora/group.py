"""Groups of ranks, and the raw calls on them: a `Call` says what, a group runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _lib, _world
from .call import ANY_SOURCE, COUNTED, DTYPE_NAMES, DTYPE_SIZES, DTYPES, NAMED, SIZES, Call, Kind, Op
from .errors import ArgumentError

__all__ = [
    "ANY_SOURCE", "COUNTED", "DTYPES", "DTYPE_NAMES", "DTYPE_SIZES", "NAMED", "SIZES", "Call", "Group", "Kind", "Op",
    "Plan", "group_of",
]  # fmt: skip


opened: list[Callable[[Group], None]] = []  # what is told of every group that is made here
closed: list[Callable[[int], None]] = []  # what is told of every one that is closed, by its handle


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
        except (
            Exception
        ):  # it was never made, the library is gone or the process is a forked child: nothing to give back
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
            self._tell()

    def reopen(self, tag: str, ranks: Sequence[int] | None) -> None:
        """Make it anew in another life of the world, under this tag; `ranks` are its members there, None where this
        process is in none.

        For packages whose groups outlive an epoch: whoever holds the object goes on with it.
        """
        self.tag = tag
        self._rank = -1 if ranks is None else list(ranks).index(_world.world_info()["rank"])
        self._handle = 0 if ranks is None else _world.group_open(list(ranks), tag, None)
        if self._handle:
            self._tell()

    def _tell(self) -> None:
        """It is open: compiled programs that were traced with one of its ranks and tag go on with it."""
        for fn in opened:
            fn(self)

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
            raise ArgumentError(
                f"use group of ranks {list(self._ranks)}: rank {_world.world_info()['rank']} is not in it"
            )
        return self._handle

    # -- raw calls

    def run(self, call: Call, keep: Any = None) -> None:
        """Run one operation and return when it has ended; inline on this thread when nothing is queued.

        `keep` is held until the operation has ended, as the call and its own `keep` are.
        """
        handle = self._handle
        _lib.run(handle if handle or not self._ranks else self.handle, call.packed, (call, keep))

    def begin(self, call: Call, keep: Any = None) -> int:
        """Run one operation on this thread for at most about its `budget`.

        0 when it has ended by then, else the ticket of what goes on in the background.
        """
        return _lib.begin(self.handle, call.packed, (call, keep))

    def submit(self, call: Call, keep: Any = None, *, awaited: bool = False) -> int:
        """Start one operation, ordered as called (`NAMED`: in any order), and return its ticket.

        A ticket is a number that releases itself when nothing refers to it any more. `awaited` says that the caller
        waits for it at once: should an exception cut that short, its next call by this name waits in its place.
        """
        handle = self._handle
        return _lib.submit(handle if handle or not self._ranks else self.handle, call.packed, 1, (call, keep), awaited)[
            0
        ]

    def submit_many(self, calls: Sequence[Call], *, awaited: bool = False) -> list[int]:
        """Start several operations as one: all or none, one ticket each.

        Where they are `NAMED`, as all are or none, they match by name whatever the order on the other ranks, and become
        ready as a unit. `awaited` as for `submit`.
        """
        return _lib.submit(self.handle, b"".join([call.packed for call in calls]), len(calls), calls, awaited)

    def plan(self, call: Call, keep: Any = None) -> Plan:
        """Register an operation that will be started often; see `Plan`. Local: no other rank is told."""
        return Plan(_lib.plan(self.handle, call.packed), (call, keep))

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
        """What an ended operation left: memory of the library's (`SIZES`), counts, or a number."""
        return _lib.result(ticket)

    def release(self, ticket: int) -> None:
        """Forget a ticket; its result memory lives on as long as something refers to it."""
        _lib.release(ticket)

    def give_up(self, tickets: Sequence[int]) -> None:
        """Say that these were waited for and an exception has ended that: they are released when their operations have
        ended."""
        _lib.give_up(tickets)

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
            for fn in closed:
                fn(handle)
            _world.group_close(handle)

    def __repr__(self) -> str:
        return f"hora.Group(rank={self.rank}, ranks={list(self.ranks)})" if self._ranks else "hora.world()"


_WORLD = Group()


def group_of(group: Any) -> Group:
    """The group that a call named; None is the world."""
    if group is None:
        return _WORLD
    if not isinstance(group, Group):
        raise ArgumentError(
            f"group={group!r} is no group; make one with hora.Group([0, 1]), on every rank in the same order"
        )
    return group
