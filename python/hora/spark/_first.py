"""The hub in a gang's first task: where executors cannot reach the machine of a Spark Connect client.

The tasks hear where it is at the barrier, and prove the same secret to it. What it came to are the rows of the Spark
job: so output, results and the timeline come when the job has ended, and are bounded by what Spark returns.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hora._run import _LAST_LINES
from hora.errors import ArgumentError, HoraError

from . import _cluster, _folders
from ._hub import Hub

__all__ = ["SCHEMA", "WHERE", "Told", "meet", "unreached", "wanted"]

SCHEMA = "kind string, part long, data binary"
_PIECE = 1 << 18  # bytes in a row
_LINES = 20_000  # of output that the driver is told, the last ones
_BEAT, _FILLING = (
    0.1,
    1 << 16,
)  # seconds from one row without meaning to the next, and bytes in it: what a Python worker buffers
WHERE = "kind <> 'beat'"  # the rows that mean something
unreached: set[str] = set()  # sessions of Connect clients whose machine the executors do not reach


def wanted(session: Any, elastic: bool) -> bool:
    """Whether the hub is to run in the first task, by HORA_SPARK_HUB or from what the session has shown."""
    place = os.environ.get("HORA_SPARK_HUB", "")
    if place not in ("", "driver", "task"):
        raise ArgumentError(f"spark.run: HORA_SPARK_HUB={place!r}: use 'driver' or 'task', or unset it")
    if place == "task" and elastic:
        raise ArgumentError(
            "spark.run: HORA_SPARK_HUB=task and an elastic job: ordinary tasks have no first one that stays; run the driver where executors "
            "reach it, or have a gang, without limits of how many ranks there are"
        )
    return place == "task" or (not place and not elastic and _cluster.key(session) in unreached)


def meet(config: dict[str, Any], program: str) -> tuple[str, Here | None]:
    """In every task of the gang: where the hub is, and in the first one the hub."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    here = None
    if context.partitionId() == 0:
        here = Here(config, program, context.getTaskInfos()[0].address.rsplit(":", 1)[0])
    try:
        return context.allGather(here.where if here is not None else "")[0], here
    except BaseException:
        if here is not None:
            here.close()
        raise


class Here:
    """The hub and what it came to."""

    def __init__(self, config: dict[str, Any], program: str, near: str) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        self._count = 0
        self._exits: list[dict[str, Any]] = []
        self._opened = False
        self._code: int | None = None
        self._port: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        first = config["first"]
        self.hub = Hub(
            first["np"], first["payload"], first["env"], self._happened, first["flags"], None,
            (_Kept(self, 0), _Kept(self, 1)),
            secret=config["secret"], path=program, worker=first["worker"],
        )  # fmt: skip
        try:
            at = self._port.get(timeout=30)
        except queue.Empty:
            at = None
        if at is None:
            self.close()
            raise RuntimeError(
                f"hora.spark: the hub did not start in the first task: {self.hub.said() or 'it said nothing'} [end]"
            )
        self.where = ",".join(
            dict.fromkeys([f"[{near}]:{at['port']}" if ":" in near else f"{near}:{at['port']}", *at["addrs"]])
        )

    def _happened(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "listening":
            self._port.put(event)
        elif kind in ("opened", "started"):
            self._opened = True
        elif kind == "exited":
            self._exits.append(event)
        elif kind == "hub":
            self._code = int(event["code"])
            self._port.put(None)
            self._ended.set()

    def keep(self, stream: int, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._lines.append((stream, line))
            self._count += 1

    def beats(self, agent: subprocess.Popen[bytes]) -> Iterator[Any]:
        """Rows without meaning until the agent beside the hub has ended.

        A task that Spark has cancelled ends as its next row comes; one that waits for none is looked after two seconds
        later, and its Python worker, and so the hub and the ranks, ends after two more.
        """
        while True:
            try:
                agent.wait(_BEAT)
                return
            except subprocess.TimeoutExpired:
                yield _row("beat", 0, bytes(_FILLING))

    def rows(self) -> Iterator[Any]:
        """What the driver has to know, when the agent beside the hub has ended."""
        self._ended.wait(30)
        self.hub.finish()
        lost = self._count - len(self._lines) + self.hub.dropped
        end = {
            "code": 1 if self._code is None else self._code, "exits": self._exits, "opened": self._opened, "lost": lost,
            "came": {name: os.stat(os.path.join(self.hub.results, name)).st_mtime for name in os.listdir(self.hub.results)},
        }  # fmt: skip
        yield from _pieces("end", json.dumps(end).encode())
        yield from _pieces("lines", json.dumps(list(self._lines)).encode())
        for name in sorted(os.listdir(self.hub.results)):
            with open(os.path.join(self.hub.results, name), "rb") as f:
                yield from _read(name, f)
        if os.path.exists(self.hub.report):
            with open(self.hub.report, "rb") as f:
                yield from _read("report", f)

    def close(self) -> None:
        self.hub.close()


class _Kept:
    """A stream whose lines the first task keeps."""

    def __init__(self, here: Here, number: int) -> None:
        self._here, self._number = here, number

    def write(self, text: str) -> None:
        self._here.keep(self._number, text)

    def flush(self) -> None:
        pass


def _read(kind: str, f: Any) -> Iterator[Any]:
    part = 0
    while data := f.read(_PIECE):
        yield _row(kind, part, data)
        part += 1


def _pieces(kind: str, data: bytes) -> Iterator[Any]:
    for part, at in enumerate(range(0, len(data), _PIECE)):
        yield _row(kind, part, data[at : at + _PIECE])


def _row(kind: str, part: int, data: bytes) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({
        "kind": pa.array([kind], pa.string()), "part": pa.array([part], pa.int64()),
        "data": pa.array([data], pa.binary()),
    })  # fmt: skip


class Told:
    """On the driver: what the rows tell of such a hub, where a hub of its own would have it."""

    def __init__(self, show: Callable[[str], str | None] | None, streams: tuple[Any, Any]) -> None:
        self.folder = _folders.make("hora-spark-")
        self.results, self.report = os.path.join(self.folder, "results"), os.path.join(self.folder, "report")
        os.mkdir(self.results)
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._show, self._streams = show, streams

    def take(self, rows: list[Any]) -> dict[str, Any]:
        """Keep results where they are looked for and print the output; how it ended."""
        kinds: dict[str, list[Any]] = {}
        for r in sorted(rows, key=lambda r: r.part):
            kinds.setdefault(r.kind, []).append(r.data)
        if "end" not in kinds:
            raise HoraError("spark.run: the first task ended without a word of its hub: look at its executor's log")
        for name, pieces in kinds.items():
            if name == "report" or (name.startswith("rank.") and name[5:].isdigit()):
                with open(self.report if name == "report" else os.path.join(self.results, name), "wb") as f:
                    for piece in pieces:
                        f.write(piece)
        for stream, line in json.loads(b"".join(bytes(p) for p in kinds.get("lines", [])) or b"[]"):
            kept = line if self._show is None else self._show(line)
            self.last.append(line)
            if kept is not None:
                self._streams[stream].write(kept)
        end: dict[str, Any] = json.loads(b"".join(bytes(p) for p in kinds["end"]))
        for name in os.listdir(self.results):
            os.utime(os.path.join(self.results, name), (end["came"][name],) * 2)
        if end["lost"]:
            self._streams[1].write(
                f"hora: {end['lost']} lines of output before these were more than the first task keeps and are not shown\n"
            )
        for s in self._streams:
            s.flush()
        return end

    def said(self) -> str:
        return "".join(self.last).strip()

    def close(self) -> None:
        _folders.remove(self.folder)
