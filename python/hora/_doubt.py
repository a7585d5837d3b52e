"""Who may yet free a rank that waits: what the library's watch cannot see of this process.

Ranks that wait for each other are ended where it is proved that they can never go on. A thread that has not called hora
so far, or a signal's handler that raises, could still end a wait: then they are told, and left.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

__all__ = ["doubt"]

# Threads that watch or show, and make no calls of their own.
_HARMLESS = {"TMonitor", "HistorySavingThread", "Heartbeat", "ParentPollerUnix"}
# Signals that somebody outside sends to end, suspend or resize a program, or a child's end does.
_OUTSIDE = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT}
_TIMERS = {
    signal.SIGALRM: signal.ITIMER_REAL,
    signal.SIGVTALRM: signal.ITIMER_VIRTUAL,
    signal.SIGPROF: signal.ITIMER_PROF,
}


def _handled() -> str:
    """A signal that may come by itself or from a scheduler, and runs code of the program's."""
    for s in signal.valid_signals() - _OUTSIDE:
        if s in _TIMERS and signal.getitimer(_TIMERS[s])[0] == 0:  # type: ignore[index]
            continue
        h = signal.getsignal(s)
        if callable(h) and not str(getattr(h, "__module__", "")).startswith("hora"):
            return getattr(s, "name", f"signal {int(s)}")
    return ""


def doubt(lib: Any) -> None:
    """Tell the library what there is; it knows which threads have called it."""
    named = {t.ident: t for t in threading.enumerate()}
    idents = [i for i in sys._current_frames() if type(named.get(i)).__name__ not in _HARMLESS]
    names = [getattr(named.get(i), "name", str(i)) for i in idents]
    lib.hora_action(json.dumps({"action": "doubt", "strangers": idents, "names": names, "signal": _handled()}).encode())
