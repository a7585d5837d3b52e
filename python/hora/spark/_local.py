"""The partitions of a table, fitted by processes of this machine."""

from __future__ import annotations

import os
import pickle
import queue
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import HoraError
from . import _work
from ._tables import Columns, take

_LENGTH = struct.Struct("<Q")


def fit_parts(
    task: _work.Task,
    columns: Columns,
    parts: Sequence[np.ndarray],
    workers: int | None,
    progress: Callable[[int, int], Any] | None = None,
) -> list[dict[str, Any]]:
    """What the partitions came to, in order. `workers` 0 fits in this process; None takes a process a core."""
    done: list[dict[str, Any] | None] = [None] * len(parts)

    def one(i: int, outcome: dict[str, Any]) -> None:
        done[i] = outcome
        if progress is not None and "error" not in outcome:
            progress(sum(o is not None for o in done), len(parts))

    if workers == 0:
        for i, at in enumerate(parts):
            one(i, _work.fit(task, i, take(columns, at)))
            if "error" in done[i]:  # type: ignore[operator]
                break
    else:
        _in_processes(task, columns, parts, min(workers or cores(), len(parts)), one)
    return raise_errors(done)


def raise_errors(outcomes: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The outcomes, unless one is an error."""
    bad = [o for o in outcomes if o is not None and "error" in o]
    if bad:
        first = bad[0]
        more = f" ({len(bad)} of {len(outcomes)} partitions failed)" if len(bad) > 1 else ""
        raise HoraError(
            f"PartitionEnsemble.fit: partition {first['partition']} ({first['rows']:,} rows) failed: {first['error']}{more}"
            + (f"\n{first['traceback']}" if first.get("traceback") else "")
        )
    assert all(o is not None for o in outcomes)
    return list(outcomes)  # type: ignore[arg-type]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(
    task: _work.Task,
    columns: Columns,
    parts: Sequence[np.ndarray],
    most: int,
    one: Callable[[int, dict[str, Any]], None],
) -> None:
    with tempfile.TemporaryDirectory(prefix="hora-ensemble-") as folder:
        for name, values in enumerate(columns.values()):
            np.save(os.path.join(folder, f"{name}.npy"), values, allow_pickle=True)
        given = pickle.dumps((task, folder, list(columns), [p for p in sys.path if p]), protocol=5)
        failed = threading.Event()
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        children: list[_Child] = []

        def work(child: _Child) -> None:
            while not failed.is_set():
                try:
                    i = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = child.fit(i, parts[i])
                one(i, outcome)
                if "error" in outcome:
                    failed.set()

        try:
            children.append(_Child(given, max(1, cores() // most)))
            first = children[0].fit(0, parts[0])
            one(0, first)
            if "error" in first:
                return
            for i in range(1, len(parts)):
                waiting.put(i)
            # Each process has a place of its own from now on: its memory is what the first took.
            children += [_Child(given, max(1, cores() // most)) for _ in range(_work.at_once(first, most) - 1)]
            threads = [threading.Thread(target=work, args=(c,), daemon=True) for c in children]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        finally:
            for c in children:
                c.end()


class _Child:
    """A process that fits one partition after the other."""

    def __init__(self, given: bytes, threads: int) -> None:
        told = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from hora.spark import _local; _local.child()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | told,
        )  # fmt: skip
        self.given: bytes | None = given

    def fit(self, part: int, at: np.ndarray) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        try:
            if self.given is not None:
                _write(self.process.stdin, self.given)
                self.given = None
            _write(self.process.stdin, pickle.dumps((part, at), protocol=5))
            return pickle.loads(_read(self.process.stdout))
        except (EOFError, OSError):
            code = self.process.wait()
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            hint = (
                "; perhaps memory ran out: give workers= a lower number, or n= a higher one"
                if code == -9
                else "; its output says why"
            )
            return {"partition": part, "rows": len(at), "error": f"its process {how}{hint}"}

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def _write(stream: Any, blob: bytes) -> None:
    stream.write(_LENGTH.pack(len(blob)))
    stream.write(blob)
    stream.flush()


def _read(stream: Any) -> bytes:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    blob = stream.read(_LENGTH.unpack(head)[0])
    if len(blob) < _LENGTH.unpack(head)[0]:
        raise EOFError
    return blob


def child() -> None:
    """What such a process does: standard input and output are its parent's pipes, so what models print goes to standard
    error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        task, folder, names, path = pickle.loads(_read(source))
        sys.path.extend(p for p in path if p not in sys.path)
        columns = {name: _load(os.path.join(folder, f"{i}.npy")) for i, name in enumerate(names)}
        while True:
            part, at = pickle.loads(_read(source))
            _write(sink, pickle.dumps(_work.fit(task, part, take(columns, at)), protocol=5))
    except (EOFError, BrokenPipeError):
        pass


def _load(path: str) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except ValueError:  # text, as objects, which its parent wrote
        return np.load(path, allow_pickle=True)
