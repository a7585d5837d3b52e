"""What an asynchronous collective returns to torch."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from ..errors import HoraError
from ..handle import Handle

__all__ = ["TicketWork", "failure", "finished_future"]

try:
    _BackendError: type[RuntimeError] = torch.distributed.DistBackendError
except AttributeError:  # before torch 2.1
    _BackendError = RuntimeError


def failure(error: BaseException) -> BaseException:
    """hora's error as the class that torch's callers expect."""
    if not isinstance(error, HoraError) or isinstance(error, ValueError):
        return error
    out = _BackendError(str(error))
    out.__cause__ = error
    return out


def finished_future(value: Any) -> torch.futures.Future:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(value)
    return future


class TicketWork(c10d.Work):
    """Operations in flight that end together.

    `value` is what the future carries. The owner keeps it in `live` until the end, since torch's C++ side may hold
    it longer than any Python name does.
    """

    def __init__(self, handles: list[Handle], value: Any, live: set, patience: float) -> None:
        super().__init__()
        self.handles = handles
        self.value = value
        self.source = -1
        self._live = live
        self._patience = patience
        live.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout else None
        self._settle(seconds if seconds and seconds > 0 else None)
        return True

    def _settle(self, seconds: float | None) -> None:
        first: BaseException | None = None
        until = None if seconds is None else time.monotonic() + seconds
        for h in self.handles:
            try:
                h.wait(None if until is None else max(0.0, until - time.monotonic()))
            except HoraError as error:
                first = first or error
        if all(h.done() for h in self.handles):
            self._live.discard(self)
        if first is not None:
            raise failure(first)

    def done(self) -> bool:
        for h in self.handles:
            if not h.done():
                return False
        self._live.discard(self)
        return True

    is_completed = done

    def exception(self) -> BaseException | None:
        for h in self.handles:
            if h.done() and (error := h.exception()) is not None:
                return failure(error)
        return None

    def is_success(self) -> bool:
        return self.done() and self.exception() is None

    def result(self) -> Any:
        self._settle(None)
        return self.value

    def synchronize(self) -> None:
        self._settle(None)

    def source_rank(self) -> int:
        return self.source

    def get_future(self) -> torch.futures.Future:
        """A future of the value; it is completed before it is returned where waiting a moment does that."""
        future: torch.futures.Future = torch.futures.Future()
        if self._patience > 0:
            until = time.monotonic() + self._patience
            for h in self.handles:
                try:
                    h.wait(max(0.0, until - time.monotonic()))
                except HoraError:
                    break
        if self.done():
            if self.exception() is None:
                future.set_result(self.value)
                return future
            future.set_result(None)
            return future.then(self._outcome)
        waiting = set(map(id, self.handles))
        lock = threading.Lock()

        def one_ended(h: Handle) -> None:
            with lock:
                waiting.discard(id(h))
                last = not waiting
            if last:
                self._live.discard(self)
                future.set_result(None)

        outcome = future.then(self._outcome)
        for h in self.handles:
            h.add_done_callback(one_ended)
        return outcome

    def _outcome(self, _: torch.futures.Future) -> Any:
        """The value, or the error raised: only what `then` raises is a failure for torch's C++ side too.

        A future's own set_exception leaves the exception there as a value, which DDP's reducer takes for tensors.
        """
        error = self.exception()
        if error is not None:
            raise error
        return self.value
