"""Calling back when an operation has ended: threads of hora's own that wait for handles.

Nobody who blocks or polls pays for this. A callback may start and await operations of its own: it never runs on a
thread that others need to make progress.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

_work: queue.SimpleQueue[Any] = queue.SimpleQueue()
_lock = threading.Lock()
_idle = 0


def watch(handle: Any) -> None:
    """Settle handle on some thread, which runs its callbacks."""
    global _idle
    with _lock:
        if _idle > 0:
            _idle -= 1
        else:
            threading.Thread(target=_run, name="hora-callbacks", daemon=True).start()
    _work.put(handle)


def _run() -> None:
    global _idle
    while True:
        handle = _work.get()
        try:
            handle.exception()
            handle._call_back()  # of one that was settled elsewhere, by who was interrupted there
        except BaseException:  # the callback's own fault, or the library is gone: the thread lives on
            import traceback

            traceback.print_exc()
        del handle
        with _lock:
            _idle += 1
