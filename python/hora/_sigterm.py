"""SIGTERM to a rank of an elastic job."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _world


@contextmanager
def drained_by_sigterm() -> Iterator[None]:
    """SIGTERM drains this rank, unless the program has a handler of its own."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours or not _world.is_elastic():
        yield
        return

    trainer = os.getpid()

    def drain(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process
        if os.getpid() != trainer:
            os.kill(os.getpid(), signal.SIGTERM)  # a forked child, such as a loader's worker, is not part of the job
            return
        # On another thread: what the library says of a failure is kept for each, and this one may be about to read it.
        _thread.start_new_thread(_world.drain, ("SIGTERM",))

    signal.signal(signal.SIGTERM, drain)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
