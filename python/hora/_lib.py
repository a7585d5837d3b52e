"""The library in this process: loading it once, forked children, tickets, operations, failures as exceptions.

The library is loaded by `init()`, not by `import hora`: a process that forks before has nothing to lose.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from . import _abi
from ._abi import copy as copy
from ._abi import readable as readable
from ._doubt import doubt
from ._find import find
from .errors import BY_KIND, ForkedError, HoraError, InternalError, NotInitializedError

FOREVER = 0xFFFFFFFF  # as a time: the library may take it that the thread waits to the end, whatever comes
SLICE_MS = 50  # the longest that a call stays away from Python's signal handlers


class OperationFailed(Exception):
    """A ticket's operation has failed with `error`; the ticket is still to be released."""

    def __init__(self, error: HoraError) -> None:
        super().__init__(error)
        self.error = error


class Memory:
    """Memory of the library's, given back when nothing refers to it any more.

    It is made before it is filled in, so that no memory comes into this process that nobody gives back.
    """

    __slots__ = ("__weakref__", "outcome")

    def __init__(self) -> None:
        self.outcome = _abi.Outcome()

    @property
    def address(self) -> int:
        return self.outcome.memory or 0

    @property
    def nbytes(self) -> int:
        return self.outcome.bytes

    @property
    def handle(self) -> int:
        return self.outcome.buffer

    def view(self) -> memoryview:
        """The bytes; the view keeps this object alive."""
        return _abi.view(self.address, self.nbytes, self)

    def __del__(self) -> None:
        if self.outcome.buffer and _lib is not None and _forked_after_load is False:
            _lib.hora_buffer_close(self.outcome.buffer)


class Result:
    """What an ended operation left: `memory` (bytes or None), `counts` (elements from each rank), `value`."""

    __slots__ = ("counts", "memory", "value")

    def __init__(self, memory: Memory | None, counts: list[int], value: int) -> None:
        self.memory, self.counts, self.value = memory, counts, value


class _Taken:
    """What an ended operation kept, with the memory that it left: asked again it is the same."""

    __slots__ = ("kept", "memory")

    def __init__(self, kept: Any, memory: Memory) -> None:
        self.kept, self.memory = kept, memory


_lib: Any = None
_calls: Any = None  # _abi.Calls of it
_load_lock = threading.Lock()
_forked_after_load = False
world: dict[str, Any] | None = None  # rank, size, …; None while there is none. _world.py sets it
parents: dict[str, Any] | None = None  # in a forked child: the world that its parent had
age = 0  # which life of the world this is: plans of another are void

# Signal handlers may raise between any two steps. So what an operation reads and writes is here before its ticket is in
# anybody's hands (_abi.Calls), and whoever loses a ticket, by an exception or by dropping a handle, leaves an orphan.
in_flight: dict[int, Any] = {}  # ticket → what its operation reads and writes
orphans: dict[
    int, bool
] = {}  # tickets that nobody waits for any more → whether their call waited; reap() releases them


def load() -> Any:
    """Load the library once; refuse another version, a musl system and a forked child with a sentence."""
    global _lib, _calls
    if _forked_after_load:
        raise no_world()
    if _lib is not None:
        return _lib
    with _load_lock:
        if _lib is None:
            lib = _abi.open_library(find())
            _calls = _abi.calls(lib, in_flight, orphans)
            _lib = lib
    return _lib


def _after_fork_in_child() -> None:
    global _forked_after_load, world, parents, _load_lock
    _load_lock = threading.Lock()
    if _lib is not None:
        _forked_after_load = True
        world, parents = None, world or parents
        in_flight.clear()
        orphans.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def no_world() -> HoraError:
    if _forked_after_load:
        return ForkedError(
            f"use hora in process {os.getpid()}: it is a forked child, and hora's threads live in its parent only; "
            "start it with multiprocessing's spawn or forkserver method (or call hora in the parent)"
        )
    return NotInitializedError("use hora: it is not initialized; call hora.init() first")


def failure(doing: str = "") -> HoraError:
    """The exception for this thread's last failed call."""
    text = _lib.hora_last_error().decode("utf-8", "replace")
    error = BY_KIND.get(_lib.hora_last_kind(), InternalError)(text or doing or "hora failed without a reason")
    if hasattr(error, "rank"):
        error.rank = _lib.hora_last_rank()  # type: ignore[attr-defined]
    return error


# -- tickets


def wait(ticket: int, timeout: float | None = None) -> bool:
    """True once the ticket's operation has ended well, False after `timeout` seconds, OperationFailed when it failed.

    Python's signal handlers run between slices of 50 ms.
    """
    if _forked_after_load:
        raise no_world()
    hora_wait = _calls.wait
    if timeout is None:
        slices = 0
        while True:
            r = hora_wait(ticket, FOREVER)
            if r <= 0:
                break
            slices += 1
            if slices % 16 == 1:
                doubt(_lib)
    else:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            r = hora_wait(ticket, min(SLICE_MS, max(0, int(left * 1000 + 0.999))))
            if r <= 0 or left <= 0:
                break
    if r == 0:
        return True
    if r < 0:
        raise OperationFailed(failure())
    return False


def poll(ticket: int) -> bool:
    """Whether the ticket's operation has ended, well or not."""
    if _forked_after_load:
        raise no_world()
    return _calls.wait(ticket, 0) <= 0


def release(ticket: int) -> None:
    """Forget a ticket; what its operation works on is kept until that has ended."""
    if not _forked_after_load:
        _calls.release(ticket)


def finish(ticket: int) -> None:
    """Wait for a ticket and release it. If an exception (Ctrl-C) cuts the wait short it becomes an orphan."""
    if orphans:
        reap()
    try:
        wait(ticket)
    except OperationFailed as failed:
        _calls.release(ticket)
        raise failed.error from None
    _calls.release(ticket)


def result(ticket: int) -> Result:
    """What the ended operation of a ticket left behind; asked again, the same."""
    kept = in_flight.get(ticket)
    if type(kept) is not _Taken:
        kept = _Taken(kept, Memory())
        in_flight[int(ticket)] = kept
    out = kept.memory.outcome
    if not _abi.take(_lib, ticket, out):
        raise failure()
    return Result(kept.memory if out.buffer else None, _abi.counts(out), out.value)


def outcome(ticket: int) -> Result:
    """Wait for a ticket, take what it left and release it."""
    try:
        wait(ticket)
        return result(ticket)
    except OperationFailed as failed:
        raise failed.error from None
    finally:
        _calls.release(ticket)


def give_up(tickets: Sequence[int]) -> None:
    """These were waited for, and an exception has ended that."""
    for ticket in tickets:
        if ticket in in_flight:
            orphans[int(ticket)] = True


def reap() -> None:
    """Release orphans that have ended."""
    for ticket in list(orphans):
        if _calls.wait(ticket, 0) <= 0:
            _calls.release(ticket)


def _again() -> bool:
    """Whether a call that has failed is to be made again: the name is still in use by one that was cut short, and is
    free by now.

    That one is the earlier call on every rank: this one could not end before it either.
    """
    text = _lib.hora_last_error().decode("utf-8", "replace")
    if not orphans or not text.startswith(_DUPLICATE):
        return False
    name = text[len(_DUPLICATE) :].partition(": an operation of that name")[0].encode()
    for ticket, awaited in list(orphans.items()):
        kept = in_flight.get(ticket)
        if awaited and type(kept) is tuple and type(kept[0]) is bytes and name in _abi.names(kept[0]):
            try:
                wait(ticket)
            except OperationFailed:  # its caller is gone
                pass
            reap()
            return True
    return False


_DUPLICATE = "Duplicate tensor name "


# -- operations


def own(function: str, *arguments: Any, keep: Any = None) -> int:
    """Call a function of the library that answers a ticket; its failure is an answer below 0."""
    library = load()
    return _calls.own(getattr(library, function), arguments, keep)


def run(group: int, op: bytes, keep: Any) -> None:
    """Run a packed hora_op; waits when it could not end inline."""
    if world is None:
        raise no_world()
    if orphans:
        reap()
    ticket = _calls.run(group, op, keep, True)
    while ticket < 0 and _again():
        ticket = _calls.run(group, op, keep, True)
    if ticket:
        if ticket < 0:
            raise failure()
        finish(ticket)


def ended(ticket: int) -> None:
    """What is left to do for a call that did not end inline (ticket > 0) or failed."""
    if world is None:
        raise no_world()
    if ticket < 0:
        raise failure()
    finish(ticket)


def begin(group: int, op: bytes, keep: Any) -> int:
    """Run a packed hora_op for its budget: 0 when it has ended, else its ticket."""
    if world is None:
        raise no_world()
    if orphans:
        reap()
    ticket = _calls.run(group, op, keep, False)
    if ticket < 0:
        raise failure()
    return ticket


def submit(group: int, ops: bytes, n: int, keep: Any, awaited: bool = False) -> list[int]:
    """Submit n packed hora_op and return their tickets; awaited: the caller does nothing but wait for them."""
    if world is None:
        raise no_world()
    if orphans:
        reap()
    tickets: list[int] | None = _calls.submit(group, ops, n, keep, awaited)
    while tickets is None and _again():
        tickets = _calls.submit(group, ops, n, keep, awaited)
    if tickets is None:
        raise failure()
    return tickets


def plan(group: int, op: bytes) -> int:
    if world is None:
        raise no_world()
    handle = _lib.hora_plan(group, op)
    if handle < 0:
        raise failure()
    return handle


def start(handle: int, keep: Any) -> None:
    """Run a plan; waits when it could not end inline."""
    if world is None:
        raise no_world()
    ticket = _calls.start(handle, keep)
    if ticket:
        if ticket < 0:
            raise failure()
        finish(ticket)


def start_async(handle: int, keep: Any) -> int:
    if world is None:
        raise no_world()
    if orphans:
        reap()
    ticket = _calls.start_async(handle, keep)
    if ticket < 0:
        raise failure()
    return ticket


def plan_close(handle: int) -> None:
    if _lib is not None and not _forked_after_load:
        _lib.hora_plan_close(handle)


def join(group: int) -> int:
    if world is None:
        raise no_world()
    ticket = own("hora_join", group)
    if ticket < 0:
        raise failure()
    return ticket
