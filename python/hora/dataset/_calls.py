"""Opened data in the library: the actions, and the next batch's memory."""

from __future__ import annotations

import json
from typing import Any

from .. import _abi, _lib
from ..errors import ForkedError

SLICE_MS = _lib.SLICE_MS


def act(action: str, **settings: Any) -> tuple[Any, int]:
    """What an action of the data answers: its text, and its number."""
    lib = _lib.load()
    ticket = lib.hora_action(json.dumps({"action": action, **settings}).encode())
    if ticket < 0:
        raise _lib.failure()
    if not ticket:
        return None, 0
    result = _lib.outcome(ticket)
    memory = result.memory
    return json.loads(_abi.peek(memory.address, memory.nbytes)) if memory else None, result.value


class Handle:
    """Opened data; closed when nothing refers to it any more."""

    def __init__(self, **settings: Any) -> None:
        self.number = 0
        self.about, self.number = act("data_open", **settings)

    def act(self, action: str, **settings: Any) -> Any:
        return act(action, data=self.number, **settings)[0]

    def __del__(self) -> None:
        try:
            if self.number and not _lib._forked_after_load:
                act("data_close", data=self.number)
        except Exception:  # the program ends
            pass


class Owner:
    """A batch's memory, given back when no array views it any more."""

    __slots__ = ("__weakref__", "number", "release")

    def __init__(self, number: int, release: Any) -> None:
        self.number, self.release = number, release

    def __del__(self) -> None:
        if _lib is not None and not _lib._forked_after_load:  # None: the program ends
            self.release(self.number)


class Reader:
    """The next batch after the next of one epoch."""

    def __init__(self, handle: Handle) -> None:
        self.handle, self.number = handle, handle.number
        lib = _lib.load()
        self.call, self.release = lib.hora_data_next, lib.hora_data_release
        self.out = _abi.DataBatch()

    def next(self, wait: bool = True) -> memoryview | bool | None:
        """The memory of the next batch; None at the end of the epoch. Python's signal handlers run every 50 ms.

        Without wait the answer is False where the batch is not there yet.
        """
        out = self.out
        while True:
            r = self.call(self.number, SLICE_MS if wait else 0, out.reference)
            if r == 1 and not wait:
                return False
            if r == 0:
                return _abi.view(out.memory, out.bytes, Owner(out.batch, self.release))
            if r == 2:
                return None
            if r < 0:
                if _lib._forked_after_load:
                    error = _lib.no_world()
                    assert isinstance(error, ForkedError)
                    raise error
                raise _lib.failure()
