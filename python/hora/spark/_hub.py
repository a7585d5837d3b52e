"""The hub of a job, `hora hub`, as a child beside the driver: in a session of its own, so that Ctrl-C reaches the
driver alone.

It ends with the driver, whatever ends that: its standard input is a pipe that the driver holds.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hora._run import _LAST_LINES, program
from hora.errors import HoraError

from . import _folders, _timeline
from ._status import Status

__all__ = ["Hub", "environment"]

# What names a worker's place, or a file of this machine, is not read from the driver's environment: see docs/spark.md.
_PLACES = frozenset(
    f"{p}_{n}"
    for p in ("HORA", "HOROVOD")
    for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME", "ELASTIC", "CONTROLLER", "CPU_OPERATIONS")
) | {
    "HORA_HOST", "HORA_HOST_ID", "HORA_JOB", "HORA_PROCESS", "HORA_EPOCH", "HORA_ADDR", "HORA_SERVE", "HORA_LISTEN",
    "HORA_SECRET", "HORA_SECRET_FILE",
    "HORA_CALL", "HORA_RESULT", "HORA_LIBRARY", "HORA_PROGRESS", "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_GLOO_IFACE",
}  # fmt: skip
_OURS = ("HOROVOD_", "HORA_", "NCCL_")
# The hub's words about an end that the driver knows: who has stopped the call knows, and the limit's end is an
# exception with what to do on Spark.
_KNOWN = re.compile(
    r"hora: (stopped by SIG\w+( while agents were awaited)?|stopped while agents were awaited|\d+ of \d+ workers? ha(s|ve) come in .*: start more agents, .*)$"
)
_LATE = "this worker was asked to leave the job: SIGTERM"  # what a worker says that joins as the job ends
_PENDING = 10_000  # lines of output that wait for a slow reader, a notebook for one


def environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """What workers get of the driver's environment as it is now, and what the caller adds."""
    own = {k: v for k, v in os.environ.items() if k.startswith(_OURS) and k not in _PLACES}
    return own | {str(k): str(v) for k, v in (more or {}).items()}


class Hub:
    """The running hub. `happened(kind, event)` is called, by threads of its own, with its events and at last with
    "hub", {"code": …}."""

    def __init__(
        self, np: int, payload: bytes, env: Mapping[str, str], happened: Callable[[str, dict[str, Any]], None],
        flags: Sequence[str] = (), show: Callable[[str], str | None] | None = None,
        streams: tuple[Any, Any] = (None, None),
        *, secret: str = "", path: str = "", worker: str = "_worker",
    ) -> None:  # fmt: skip
        self.secret = secret or secrets.token_hex(32)
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self.dropped = 0
        self.folder = _folders.make("hora-spark-")
        self.results, self.report = os.path.join(self.folder, "results"), os.path.join(self.folder, "report")
        self._happened, self._show = happened, show
        self._streams = (streams[0] or sys.stdout, streams[1] or sys.stderr)
        self.status = Status(self._streams[1], np)
        self._word = f"<{secrets.token_hex(8)}>"
        env = _timeline.hidden(env) | {"HORA_SPARK_TOLD": self._word}
        os.mkdir(self.results)
        self._write("secret", self.secret.encode())
        self._write("call", payload)
        self._events = os.path.join(self.folder, "events")
        command = [
            path or program(), "hub", "-np", str(np), "--secret-file", os.path.join(self.folder, "secret"),
            "--call", os.path.join(self.folder, "call"), "--results", self.results, "--events", self._events,
            "--report", self.report, "--until-stdin-ends", *flags,
            "--", "sh", "-c", f'exec "$HORA_SPARK_PYTHON" -m hora.spark.{worker}',
        ]  # fmt: skip
        try:
            self.process = subprocess.Popen(
                command, env=dict(env), cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            _folders.remove(self.folder)
            raise
        self._noted = [
            word.encode() for word in ("hora: ", self._word, _LATE)
        ]  # lines with none of them are shown as they are
        self._lines: list[tuple[Any, list[str]]] = []
        self._held: list[tuple[Any, list[str]]] = []  # shown where the job does not end well
        self._waiting = threading.Condition()
        self._read = [
            threading.Thread(target=self._take, args=(self.process.stdout, self._streams[0]), daemon=True),
            threading.Thread(target=self._take, args=(self.process.stderr, self._streams[1]), daemon=True),
        ]
        self._shown = threading.Thread(target=self._print, daemon=True)
        self._over = False
        for t in (*self._read, self._shown, threading.Thread(target=self._follow, daemon=True)):
            t.start()

    def _write(self, name: str, data: bytes) -> None:
        with open(os.open(os.path.join(self.folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(data)

    def _take(self, source: Any, to: Any) -> None:
        """Read what the hub prints as fast as it comes: a reader that is slow must not hold the job up."""
        rest: list[bytes] = []  # of the line that has not ended
        while True:
            piece = os.read(source.fileno(), 1 << 18)
            rest.append(piece)
            if piece and b"\n" not in piece:
                continue
            text, end, last = b"".join(rest).rpartition(b"\n")
            rest = [last]
            text += end if piece else end + last
            lines = io.StringIO(text.decode(errors="replace"), newline="\n").readlines()
            if self._show is not None or any(word in text for word in self._noted):
                lines = [shown for line in lines if (shown := self._shown_of(line, to))]
            else:
                self.last.extend(lines[-_LAST_LINES:])
            if lines:
                self._pass_on(lines, to)
            if not piece:
                return

    def _shown_of(self, line: str, to: Any) -> str:
        """What is shown of a line: none where it is nobody's business, or waits for how the job ends."""
        if line.startswith("hora: "):
            line = line.replace("(--start-timeout)", "(HORA_START_TIMEOUT)")
        if self._word in line:
            line = self._told(line)
            if not line:
                return ""
        if self._show is not None:
            kept = self._show(line)
            if kept is None:
                self.last.append(line)
                return ""
            line = kept
        self.last.append(line)
        if _KNOWN.match(line):
            return ""
        if line.rstrip().endswith(_LATE):
            self._held.append((to, [line]))
            return ""
        return line

    def _pass_on(self, lines: list[str], to: Any) -> None:
        """Have them printed, those for which there is room."""
        with self._waiting:
            room = _PENDING - sum(len(some) for _, some in self._lines)
            self.dropped += max(0, len(lines) - room)
            if room > 0:
                self._lines.append((to, lines[:room]))
                self._waiting.notify()

    def _told(self, line: str) -> str:
        """Take what a rank reports out of its output; what the rank had printed before it in the same line is left."""
        before, _, text = line.partition(self._word)
        try:
            said = json.loads(text)
            self.status.told(int(said["rank"]), int(said["step"]), said["metrics"])
        except (ValueError, KeyError, TypeError):
            pass
        return "" if before.endswith(("<stdout>:", "<stdout>: ")) else before + "\n"

    def _print(self) -> None:
        told = 0
        while True:
            with self._waiting:
                while not self._lines:
                    if self._over:
                        return
                    self._waiting.wait()
                batch, self._lines = self._lines, []
                lost, told = self.dropped - told, self.dropped
            self.status.dropped(told)
            with self.status.aside():
                for to in dict.fromkeys(self._streams):
                    lines = [line for where, some in batch if where is to for line in some]
                    if lines:
                        to.write("".join(lines))
                        to.flush()
                if lost:
                    self._streams[1].write(
                        f"hora: {lost} lines of output came faster than this program prints them and are not shown\n"
                    )
                    self._streams[1].flush()

    def _follow(self) -> None:
        """Hand the hub's events on, and its end."""
        at, rest, kinds = 0, "", 0
        while True:
            ended = self.process.poll() is not None
            try:
                with open(self._events, encoding="utf-8") as f:
                    f.seek(at)
                    text = f.read()
                    at = f.tell()
            except OSError:
                text = ""
            *whole, rest = (rest + text).split("\n")
            for line in whole:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                kind = str(event.get("event", ""))
                kinds += kind in ("opened", "started")
                self.status.event(kind, event)
                if kind != "progress":
                    self._happened(kind, event)
            if ended:
                self._happened("hub", {"code": self.process.returncode})
                return
            try:
                self.process.wait(0.02 if not kinds else 0.2)
            except subprocess.TimeoutExpired:
                pass

    def stop(self) -> None:
        """End the job: the hub ends the workers when its input ends, before Spark is asked to cancel anything."""
        try:
            self.process.stdin.close()  # type: ignore[union-attr]
        except OSError:
            pass

    def finish(self) -> None:
        """The hub is over: its last lines are printed."""
        self.stop()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        end = time.monotonic() + 5
        for t in self._read:
            t.join(max(0, end - time.monotonic()))
        with self._waiting:
            if self.process.returncode:
                self._lines.extend(self._held)
            self._held = []
            self._over = True
            self._waiting.notify()
        self._shown.join(max(0.1, end - time.monotonic()))
        self.status.close()

    def close(self) -> None:
        """Its files are removed too."""
        self.finish()
        _folders.remove(self.folder)

    def said(self) -> str:
        return "".join(self.last).strip()

    def stopped(self) -> HoraError:
        """What to say of a hub that has ended before it listened."""
        return HoraError(
            f"spark.run: the hub ended with exit code {self.process.returncode}; it said:\n{self.said() or '(nothing)'}"
        )
