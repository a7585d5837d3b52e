"""What fits one partition, in a process of this machine or in a task on the cluster."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import _members, _travel, _votes
from ._tables import Columns, Layout, rows_of

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Task:
    """What is the same in all partitions."""

    base: bytes
    layout: Layout
    label: str
    vote: str
    weight: str
    subsets: list[list[int] | None]  # one a member
    validation: Columns | None = None  # rows that no member is fitted on
    tried: bool = False  # whether a fitted estimator has told probabilities in this process: others of the same will


def fit(task: Task, part: int, columns: Columns) -> dict[str, Any]:
    """What a partition came to: a model as bytes, or `error`."""
    before, began = resident(), time.monotonic()
    restart_peak()
    try:
        outcome = _fit(task, part, columns)
    except Exception as e:
        last = traceback.format_exc().strip().splitlines()[-12:]
        return {"partition": part, "rows": rows_of(columns), "error": say(e), "traceback": "\n".join(last)}
    return {
        "partition": part, "rows": rows_of(columns), "seconds": time.monotonic() - began,
        "memory": max(0, peak() - before),
        "host": socket.gethostname(), **outcome,
    }  # fmt: skip


def say(e: BaseException) -> str:
    """An exception in one sentence."""
    if isinstance(e, ModuleNotFoundError):
        return f"there is no package {e.name!r} on {socket.gethostname()}; install it in the Python of all workers ({os.sys.executable})"  # type: ignore[attr-defined]
    return f"{type(e).__name__}: {e}" if not isinstance(e, ArgumentError) else str(e)


def _fit(task: Task, part: int, columns: Columns) -> dict[str, Any]:
    base = pickle.loads(task.base)
    subset = task.subsets[part]
    x = task.layout.matrix(columns, subset) if _members.is_estimator(base) else np.empty((0, 0))
    model, encoded, remark = _members.fit(base, task.layout.narrowed(columns, subset), x, task.label)
    member = _votes.Member(_travel.pickled_with_code(model, "the fitted model"), encoded, encoded is not None, subset)
    member.asked = _members.known(model)  # not unpickled again
    known = task.tried and _members.is_estimator(base) and member.asked.classes() is not None
    p = None
    if task.vote != "mean" and not known:
        few = {k: v[:8] for k, v in columns.items()}
        p = member.asked.proba(task.layout.matrix(few, subset), task.layout.narrowed(few, subset))
    if task.vote == "soft" and p is None and not known:
        raise ArgumentError(
            f"its model (a {type(model).__module__}.{type(model).__qualname__}) answers without probabilities, so it cannot vote softly; say "
            "vote='hard' for classes or vote='mean' for values"
        )
    task.tried |= p is not None and not isinstance(model, _members.Constant)
    if member.classes is None and task.vote != "mean":
        member.classes = _classes(member, task, p, columns)
    score, told = 0.0, None
    if task.validation is not None:
        truth = task.validation[task.label]
        said = _votes.answer(member, task.layout, task.validation)
        if member.classes is None:
            score = float(1 / (np.mean((said - truth) ** 2) + 1e-12))
        else:
            score = float(np.mean(said == truth))
        if task.vote == "stack":
            told = _votes._told(member, task.layout, task.validation)
    return {
        "blob": member.blob, "classes": member.classes, "encoded": member.encoded, "subset": subset, "remark": remark,
        "merged": [],
        "score": score, "told": told,
    }  # fmt: skip


def _classes(member: _votes.Member, task: Task, p: np.ndarray | None, columns: Columns) -> np.ndarray | None:
    """What the member's probabilities stand for; None for values."""
    own = member.asked.classes()
    if own is not None:
        return own
    if p is not None:
        return np.arange(p.shape[1])
    if task.vote == "hard":
        if task.label not in columns:
            raise ArgumentError(
                f"vote='hard' needs the classes, and there is no column {task.label!r}; name it in label="
            )
        return np.unique(columns[task.label])
    return None  # stacked values


def resident() -> int:
    """Bytes of memory that this process has."""
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as f:
        return int(f.read().split()[1]) * _PAGE
    return 0


def restart_peak() -> None:
    """From here on `peak` is of what comes; where the kernel lets it."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "wb") as f:
        f.write(b"5")


def peak() -> int:
    """The most bytes of memory that this process had."""
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as f:
        for line in f:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024)


def free() -> int:
    """Bytes of memory that this machine, or the control group that holds this process, can still give."""
    found = 1 << 62
    with contextlib.suppress(OSError), open("/proc/meminfo", "rb") as f:
        for line in f:
            if line.startswith(b"MemAvailable:"):
                found = int(line.split()[1]) * 1024
    for most, now in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError), open(most) as m, open(now) as n:
            found = min(found, int(m.read()) - int(n.read()))
    return max(0, found)


def at_once(first: dict[str, Any], most: int, room: int | None = None) -> int:
    """How many fits go at a time, from what the first one took."""
    return max(1, min(most, int((free() if room is None else room) / (1.2 * max(first.get("memory", 0), 16 << 20)))))


@contextlib.contextmanager
def turn(folder: str, most: int) -> Iterator[int | None]:
    """Waits for one of the places that the fits on this host have: one until the first has told what it took, then as
    many as memory holds.

    A place is a locked file, so that what was killed leaves none taken.
    """
    import fcntl

    if not os.path.isdir(folder):
        _remove_old(folder)
    os.makedirs(folder, exist_ok=True)
    told = os.path.join(folder, "first")
    while True:
        try:
            with open(told) as f:
                places = int(f.read())
        except (OSError, ValueError):
            places = 1
        for i in range(min(places, most)):
            held = open(os.path.join(folder, f"place.{i}"), "w")
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                held.close()
                continue
            try:
                yield None if os.path.exists(told) else i
            finally:
                held.close()
            return
        time.sleep(0.02)


def _remove_old(folder: str) -> None:
    """Removes the folders of fits of more than a day ago: which task of a fit is its last, no task knows."""
    import fcntl
    import glob
    import shutil

    for other in glob.glob(glob.escape(folder.rpartition("-")[0]) + "-*"):
        try:
            if other == folder or time.time() - max(e.stat().st_mtime for e in os.scandir(other)) <= 86400:
                continue
            for place in glob.glob(glob.escape(other) + "/place.*"):
                with open(place) as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error where a fit goes on there
            shutil.rmtree(other, ignore_errors=True)
        except (OSError, ValueError):  # another fit's task removes it, or makes it just now
            continue


def tell_first(folder: str, places: int) -> None:
    """What others that wait go by."""
    path = os.path.join(folder, "first")
    with open(f"{path}.{os.getpid()}", "w") as f:
        f.write(str(places))
    os.replace(f"{path}.{os.getpid()}", path)
