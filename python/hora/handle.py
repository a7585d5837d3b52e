"""Handles of operations in flight: wait, poll, await, callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

from . import _lib
from .errors import DeadlineError, HoraError

__all__ = ["Handle", "wait_all"]


class Handle:
    """An operation in flight.

    It keeps the arrays of the operation alive until the operation has ended, so dropping a handle is
    harmless: the operation still completes. `await handle` works inside asyncio.

    >>> x = np.ones(3)
    >>> h = hora.allreduce(x, out=x, async_=True)
    >>> h.wait()
    array([2., 2., 2.])
    """

    __slots__ = ("_callbacks", "_error", "_finish", "_keep", "_lock", "_result", "_ticket")

    def __init__(self, ticket: int, finish: Callable[[int], Any] | None = None, keep: Any = None) -> None:
        self._ticket = ticket  # 0 once it has ended; it releases itself when this handle goes
        self._finish = finish  # makes the result out of the ticket; called once, before the release
        self._keep = keep
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Handle], Any]] | None = None
        self._lock = threading.Lock()
        if ticket:
            if keep is not None:
                _lib.in_flight[int(ticket)] = (_lib.in_flight.get(ticket), keep)
        elif finish is not None:
            self._result = finish(0)
            self._finish = None

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the operation has ended and return its result.

        Raises what the operation raised, or `DeadlineError` when `timeout` seconds have passed; the operation
        itself then goes on and can be waited for again.
        """
        ticket = self._ticket
        if ticket and not self._settle(timeout):
            raise DeadlineError(
                f"wait for operation: not finished within the timeout of {timeout:g} s; it goes on, wait again or end the job"
            )
        if self._error is not None:
            raise self._error
        return self._result

    def done(self) -> bool:
        """Whether the operation has ended (well or not); never blocks."""
        return not self._ticket or self._settle(0.0)

    @property
    def result(self) -> Any:
        """The operation's result; blocks like `wait()`."""
        return self.wait()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what the operation raised, or None."""
        if self._ticket and not self._settle(timeout):
            raise DeadlineError(
                f"wait for operation: not finished within the timeout of {timeout:g} s; it goes on, wait again or end the job"
            )
        return self._error

    def add_done_callback(self, fn: Callable[[Handle], Any]) -> None:
        """Call `fn(handle)` once the operation has ended, on a thread of hora's own that may block."""
        with self._lock:
            if self._ticket:
                if self._callbacks is None:
                    self._callbacks = []
                    from . import _notify

                    _notify.watch(self)
                self._callbacks.append(fn)
                return
        fn(self)

    def _settle(self, timeout: float | None) -> bool:
        """Wait for the ticket and take its outcome; False when it is still pending.

        An exception of a signal handler may come anywhere in here: then nothing is settled, and the next call does it
        again.
        """
        ticket = self._ticket
        try:
            if not _lib.wait(ticket, timeout):
                return False
            error: BaseException | None = None
        except _lib.OperationFailed as failed:
            error = failed.error
        with self._lock:
            if self._ticket:
                if error is None and self._finish is not None:
                    try:
                        self._result = self._finish(ticket)
                    except Exception as e:
                        if threading.current_thread() is threading.main_thread() and not isinstance(e, HoraError):
                            raise  # perhaps a handler's, and perhaps the result cannot be made: then it is raised again
                        error = e
                self._error = error
                self._ticket = 0
                self._finish = self._keep = None
                _lib.release(ticket)
        self._call_back()
        return True

    def _call_back(self) -> None:
        """Run what is to run at the end, on whichever thread comes first."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        while callbacks:
            try:
                callbacks[0](self)
            except (
                BaseException
            ):  # the others', and this one if a handler cut it short, run on a thread without handlers
                from . import _notify

                self._callbacks = callbacks
                _notify.watch(self)
                raise
            del callbacks[0]

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()

            def finish() -> None:
                if not future.done():  # it may have been cancelled
                    future.set_result(None)

            def wake(_: Handle) -> None:
                loop.call_soon_threadsafe(finish)

            self.add_done_callback(wake)
            yield from future.__await__()
        return self.wait()

    def __repr__(self) -> str:
        state = "pending" if self._ticket else "failed" if self._error is not None else "done"
        return f"<hora.Handle {state}>"


def wait_all(handles: Iterable[Handle], timeout: float | None = None) -> list[Any]:
    """Wait for every handle and return the results in order; the first error is raised after all have ended.

    >>> gradients = [np.ones(1), np.ones(2)]
    >>> hora.wait_all([hora.allreduce(g, out=g, async_=True) for g in gradients])
    [array([2.]), array([2., 2.])]
    """
    handles = list(handles)
    if timeout is not None:
        import time

        end = time.monotonic() + timeout
    first: BaseException | None = None
    for h in handles:
        error = h.exception(None if timeout is None else max(0.0, end - time.monotonic()))
        first = first or error
    if first is not None:
        raise first
    return [h.wait() for h in handles]
