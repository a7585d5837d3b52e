"""Threads, as test suites of the old launcher start them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["in_thread", "on_event"]


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Run target(*args) in a new thread and return the thread, started."""
    if not isinstance(args, tuple):
        if isinstance(args, str) or not isinstance(args, Sequence):
            raise ValueError(f"args must be a tuple, not {args!r}; write (value,) for one argument")
        args = tuple(args)

    def quiet(*a: Any) -> None:
        try:
            target(*a)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=quiet, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event, func: Callable[..., Any], args: Sequence[Any] = (), stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0, daemon: bool = True, silent: bool = False,
) -> threading.Thread:  # fmt: skip
    """Run func(*args) in a thread once event is set; give up when stop is set first."""

    def wait() -> None:
        if stop is None:
            event.wait()
        else:
            while not event.wait(check_stop_interval_s):
                if stop.is_set():
                    return
        func(*args)

    return in_thread(wait, (), daemon=daemon, silent=silent)
