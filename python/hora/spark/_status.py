"""The line under a job's output that says how it stands: on a terminal, and as one in a notebook's cell.

What it shows comes from the hub's events and from what ranks tell with hora.report. Whoever prints on the same terminal
does so within `aside`, which takes the line away and puts it back.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hora._run import _shown

__all__ = ["Status"]

_AFTER = 1.0  # seconds that a job runs before its line appears
_OVER = 6  # reports of a rank, about a second apart, that its pace is taken over
_BEHIND = 0.05  # by how much more of their time others wait for a rank before it is named


class Status:
    """The line of one call. Any thread may tell it news; `draw` and `close` belong to the caller's."""

    def __init__(self, to: Any, wanted: int, now: Callable[[], float] = time.monotonic) -> None:
        self._to, self._wanted, self._now = to, wanted, now
        self._began = now()
        self._lock = threading.RLock()  # guards what follows and the terminal
        self._up: set[int] = set()
        self._started: set[int] = set()
        self._work: dict[int, deque[dict[str, Any]]] = {}
        self._said: dict[int, tuple[int, dict[str, Any]]] = {}
        self._dropped = 0
        self._drawn = ""
        self._show = _cell() if _in_notebook() else None
        self._terminal = self._show is None and bool(getattr(to, "isatty", lambda: False)())

    @property
    def shown(self) -> bool:
        """Whether anybody would see it."""
        return self._terminal or self._show is not None

    def event(self, kind: str, e: dict[str, Any]) -> None:
        rank = int(e.get("rank", -1))
        with self._lock:
            if kind == "started":
                self._started.add(rank)
            elif kind == "admitted":
                self._up.add(rank)
            elif kind == "opened":  # ranks have other numbers, and another pace
                self._up.clear()
                self._work.clear()
                self._wanted = int(e.get("size", self._wanted))
            elif kind == "exited":
                for known in (self._started, self._up):
                    known.discard(rank)
                self._work.pop(rank, None)
            elif kind == "progress":
                work = self._work.setdefault(rank, deque(maxlen=_OVER))
                if work and e["elapsed_ns"] <= work[-1]["elapsed_ns"]:  # another process
                    work.clear()
                work.append(e)

    def told(self, rank: int, step: int, metrics: dict[str, Any]) -> None:
        """What a rank has reported."""
        with self._lock:
            self._said[rank] = step, metrics

    def dropped(self, lines: int) -> None:
        with self._lock:
            self._dropped = lines

    def text(self) -> str:
        with self._lock:
            parts = [f"hora: {len(self._up)} of {self._wanted} ranks up, {self._now() - self._began:.0f} s"]
            if self._said:
                step, metrics = self._said[min(self._said)]
                parts += [f"step {step}", *(f"{k} {_number(v)}" for k, v in list(metrics.items())[:4])]
            slow = self._slowest()
            if slow is not None:
                parts.append(slow)
            if self._dropped:
                parts.append(f"{self._dropped} lines not shown")
            return _shown(", ".join(parts))

    def _slowest(self) -> str | None:
        """The rank that the others wait for: who comes last to a collective waits least in it."""
        shares = {}
        for rank, work in self._work.items():
            span = work[-1]["elapsed_ns"] - work[0]["elapsed_ns"]
            if span > 0 and work[-1]["operations"] > work[0]["operations"]:
                shares[rank] = (work[-1]["inside_ns"] - work[0]["inside_ns"]) / span, work[-1].get("host", "")
        if len(shares) < 2:
            return None
        rank = min(shares, key=lambda r: (shares[r][0], r))
        waits = sorted(s for s, _ in shares.values())[len(shares) // 2] - shares[rank][0]
        if waits < _BEHIND:
            return None
        where = f" on {shares[rank][1]}" if len({h for _, h in shares.values()}) > 1 else ""
        return f"slowest: rank {rank}{where} (others wait {100 * min(waits, 1):.0f} %)"

    def draw(self) -> None:
        if not self.shown or self._now() - self._began < _AFTER:
            return
        with self._lock:
            text = self.text()
            if self._show is not None:
                if text != self._drawn:
                    self._drawn = text
                    self._show(text)
                return
            self._clear()
            self._drawn = text[
                : max(0, shutil.get_terminal_size().columns - 1)
            ]  # a line that wraps could not be taken away
            self._to.write(self._drawn)
            self._to.flush()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Around what others print."""
        with self._lock:
            had = self._drawn if self._terminal else ""
            self._clear()
            try:
                yield
            finally:
                if had:
                    self._drawn = had
                    self._to.write(had)
                    self._to.flush()

    def _clear(self) -> None:
        if self._terminal and self._drawn:
            self._to.write("\r\x1b[K")
            self._to.flush()
            self._drawn = ""

    def close(self) -> None:
        """Takes it away from a terminal; a cell keeps the last one."""
        with self._lock:
            self._clear()


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _in_notebook() -> bool:
    """Whether this is a kernel, whose output is a cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def _cell() -> Callable[[str], None]:
    """A line in the cell that is running, which changes where it stands."""
    from IPython.display import display

    handle: list[Any] = []

    def show(text: str) -> None:
        content = {"text/plain": text}
        if handle:
            handle[0].update(content, raw=True)
        else:
            handle.append(display(content, raw=True, display_id=True))

    return show
