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
from ._profile import leave
from ._tensor import device_of

__all__ = ["BackendError", "TicketWork", "failure", "finished_future", "teach"]

try:
    BackendError: type[RuntimeError] = torch.distributed.DistBackendError
except AttributeError:  # before torch 2.1
    BackendError = RuntimeError


def failure(error: BaseException) -> BaseException:
    """hora's error as the class that torch's callers expect."""
    if not isinstance(error, HoraError) or isinstance(error, ValueError):
        return error
    out = BackendError(str(error))
    out.__cause__ = error
    return out


def finished_future(value: Any) -> torch.futures.Future:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(value)
    return future


# The operation that torch names for a Work written in Python.
_UNKNOWN = 100
_FOREVER = timedelta(0)


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
        self._future: torch.futures.Future | None = None
        self.record: Any = None  # the profiler's event of it
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
            self._ended()
        if first is not None:
            raise failure(first)

    def done(self) -> bool:
        for h in self.handles:
            if not h.done():
                return False
        self._ended()
        return True

    def _ended(self) -> None:
        self._live.discard(self)
        if self.record is not None:
            record, self.record = self.record, None
            leave(record)

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
        if self._future is None or (not self._future.done() and self.done()):
            self._future = self._make_future()
        return self._future

    def _make_future(self) -> torch.futures.Future:
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
                self._ended()
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


def teach() -> None:
    """Let what torch makes of our Work answer as other backends' does.

    torch wraps a Work written in Python in one that says for ever that it has not ended, and has no result: it asks the
    future instead. And the Work that torch makes of a future refuses every timeout, a complete future's too.
    """
    if not getattr(c10d.Work.wait, "hora", False):
        c10d.Work.wait = _patient(c10d.Work.wait)
        if hasattr(c10d.Work, "_get_op_type"):
            c10d.Work.is_completed = _asking(c10d.Work.is_completed)
            c10d.Work.result = _telling(c10d.Work.result)


def _patient(inherited: Any) -> Any:
    def wait(work: Any, timeout: timedelta = _FOREVER) -> bool:
        if not timeout:
            return inherited(work)
        try:
            return inherited(work, timeout)
        except RuntimeError as error:
            if "finite timeout" not in str(error) or not work.get_future().done():
                raise
        return inherited(work)

    wait.hora = True  # type: ignore[attr-defined]
    return wait


def _asking(inherited: Any) -> Any:
    def is_completed(work: Any) -> bool:
        if inherited(work):
            return True
        if work._get_op_type() != _UNKNOWN:  # of a backend in C++, which answers for itself
            return False
        future = work.get_future()
        try:
            # A future of tensors on a GPU is complete before the GPU has come to them.
            return future.done() and device_of(future.value()) is None
        except (RuntimeError, ValueError):  # what has failed has ended
            return True

    return is_completed


def _telling(inherited: Any) -> Any:
    def result(work: Any) -> list[torch.Tensor]:
        if work._get_op_type() != _UNKNOWN:
            return inherited(work)
        future = work.get_future()
        if not future.done():
            raise RuntimeError("result: the operation has not ended yet; call wait() first")
        return _tensors_of(future.value())

    return result


def _tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in value, as torch's own backends list them."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value or () for t in _tensors_of(part)]
