"""Handles: the numbers that asynchronous calls give out, and the operations behind them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import hora
from hora import frontend
from hora.group import COUNTED, NAMED, Call

from ..common import basics
from ..common.exceptions import HorovodInternalError
from ..common.translate import group_of, internal, shut_down

__all__ = ["Pending", "complete", "group_of", "internal", "label", "next_handle", "poll", "run", "start", "synchronize"]

PLACED = frontend.places_asked()  # HORA_CHECK_CALLS: a call without a name goes by its place in the program too

_handle_map: dict[int, Pending] = {}
_cut: dict[int, Pending] = {}  # in flight at the last shutdown, with the memory they use
_numbers = itertools.count(1)

# Names that the program gave and the handles of their last calls, which nobody has asked for since. Horovod gathers the
# calls of a cycle before it begins with them, so that a second call of a name within it is refused on every rank. Here
# the first may be through by then on one rank and not on another: the second would be refused on some ranks only.
CYCLE = 0.001  # seconds
_taken: dict[tuple[hora.Group, str], tuple[int, float]] = {}


class Pending:
    """Operations of one handle: tickets, what they read and write, and how their result is made.

    Without `finish` there is one ticket, and the result is the first thing kept. `claimed` is the program's own name
    for them.
    """

    __slots__ = ("claimed", "finish", "group", "keep", "tickets")

    def __init__(
        self,
        handle: int,
        group: hora.Group,
        tickets: list[int],
        finish: Callable[[list[int]], Any] | None,
        keep: Any,
        name: str | None,
    ) -> None:
        self.group, self.tickets, self.finish, self.keep = group, tickets, finish, keep
        self.claimed = (group, name) if name else None
        if self.claimed is not None:
            _taken[self.claimed] = handle, time.monotonic()
        _handle_map[handle] = self

    def known(self, handle: int) -> None:
        """The program knows that the operation has ended: its name is free."""
        if self.claimed is not None and _taken.get(self.claimed, (0,))[0] == handle:
            del _taken[self.claimed]


def claim(group: hora.Group, name: str) -> None:
    """Raise while the name's last asynchronous call is of the same cycle and nobody has asked for its end."""
    if time.monotonic() - _taken.get((group, name), (0, 0.0))[1] < CYCLE:
        raise ValueError(
            f"Duplicate tensor name {name}: rank {group.rank} has begun an operation of that name a moment ago; "
            "synchronize() its handle first, or choose another name"
        )


def _forget() -> None:
    global _numbers, _cut
    _cut = dict(_handle_map)
    _handle_map.clear()
    _taken.clear()
    _numbers = itertools.count(1)


basics.on_shutdown(_forget)


def next_handle() -> int:
    return next(_numbers)


def label(what: str, name: str | None, handle: int) -> tuple[str, int]:
    """The name of the operation behind a handle, and its flags; where the program gave no name it counts calls."""
    if name:
        return f"{what}.{name}", NAMED
    return f"{what} {frontend.place()}.noname.{handle}" if PLACED else f"{what}.noname.{handle}", NAMED | COUNTED


def run(group: hora.Group, call: Call) -> None:
    """One named operation, on this thread where it can be."""
    try:
        group.run(call)
    except hora.HoraError as error:
        raise internal(error) from error


def start(
    handle: int,
    group: hora.Group,
    calls: list[Call],
    finish: Callable[[list[int]], Any],
    keep: Any,
    name: str | None = None,
) -> int:
    """Submit named operations as one unit and remember them under the handle; name is the program's own for them."""
    if name:
        claim(group, name)
    calls[0].keep = keep  # with one, all of them keep it
    try:
        tickets = group.submit_many(calls)
    except hora.HoraError as error:
        raise internal(error) from error
    Pending(handle, group, tickets, finish, keep, name)
    return handle


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return at once."""
    pending = _handle_map.get(handle)
    if pending is not None and not all(map(pending.group.poll, pending.tickets)):
        return False
    if pending is not None:
        pending.known(handle)
    return True


def synchronize(handle: int) -> Any:
    """Wait for the operation and return its result; None for a handle that is not known.

    Where a signal handler raises meanwhile the handle stays good, and this can be called again.
    """
    pending = _handle_map.get(handle)
    if pending is None:
        if handle in _cut and not hora.is_initialized():
            raise shut_down(f"handle {handle} was not synchronized before that; call synchronize() before shutdown()")
        return None
    group = pending.group
    failed: hora.HoraError | None = None
    try:
        for ticket in pending.tickets:
            try:
                group.wait(ticket)
            except hora.HoraError as error:
                failed = failed or error
        if failed is None:
            try:
                result = pending.keep[0] if pending.finish is None else pending.finish(pending.tickets)
            except hora.HoraError as error:
                failed = error
    except HorovodInternalError:
        _close(handle, pending)
        raise
    _close(handle, pending)
    if failed is not None:
        raise internal(failed) from failed
    return result


def complete(handle: int) -> Any:
    """synchronize, of an operation whose handle nobody else has: an exception of a signal handler gives it up."""
    try:
        return synchronize(handle)
    except BaseException:
        pending = _handle_map.pop(handle, None)
        if pending is not None:
            pending.known(handle)
            pending.group.give_up(pending.tickets)
        raise


def _close(handle: int, pending: Pending) -> None:
    _handle_map.pop(handle, None)
    pending.known(handle)
    for ticket in pending.tickets:
        pending.group.release(ticket)
