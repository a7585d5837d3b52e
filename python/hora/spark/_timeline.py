"""The timeline of a job on a cluster: rank 0 writes it beside itself, and the driver keeps it where the path lies that
was asked for."""

from __future__ import annotations

import errno
import glob
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from hora.errors import ArgumentError

__all__ = ["asked", "borrow", "check", "hidden", "joined", "keep", "taken"]

_NAMES = ("HORA_TIMELINE", "HOROVOD_TIMELINE")
_DYNAMIC = "DYNAMIC"  # the program starts one itself
_START = "start_time_since_epoch_in_micros"


def asked(env: Mapping[str, str]) -> str | None:
    """The file that a job's variables name."""
    path = next((env[n] for n in _NAMES if env.get(n)), None)
    return None if path is None or path == _DYNAMIC else os.path.abspath(path)


def hidden(env: Mapping[str, str]) -> dict[str, str]:
    """The variables as the hub hands them on: it must not look for a file that workers write elsewhere."""
    return {k: os.devnull if k in _NAMES and v and v != _DYNAMIC else v for k, v in env.items()}


def check(path: str) -> None:
    """Whether it can be written, before the job has done its work for it; opened so that a file system which only
    appends has no objection."""
    there = os.path.lexists(path)
    try:
        open(path, "ab").close()
        if not there:
            os.unlink(path)
    except OSError as e:
        if e.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS) and not there:
            return  # it was made, and what only appends does not take it away
        raise ArgumentError(
            f"spark.run: write the timeline: {path}: {e.strerror}: name a file in a folder of this machine that you may write to"
        ) from None


def borrow(left: str) -> str | None:
    """In a worker: where it writes a timeline if it is, or becomes, rank 0. The agent removes what lies there with the
    worker's result."""
    names = [n for n in _NAMES if os.environ.get(n)]
    if not names or os.environ[names[0]] == _DYNAMIC:
        return None
    path = f"{left}.timeline"
    for n in names:
        os.environ[n] = path
    return path


def taken(path: str) -> list[bytes]:
    """What the worker has written there: one file, or one an epoch of those in which it was rank 0."""
    found = []
    for name in (path, *sorted(glob.glob(glob.escape(path) + ".*"))):
        try:
            with open(name, "rb") as f:
                text = f.read()
            os.unlink(name)
        except OSError:
            continue
        if text:
            found.append(text)
    return found


def joined(pieces: list[bytes]) -> bytes:
    """One timeline of several, on the clock of the earliest."""
    if len(pieces) == 1:
        return pieces[0]
    read = sorted((_records(p) for p in pieces), key=_begin)
    first, top = _begin(read[0]), 0
    lines = []
    for n, records in enumerate(read):
        shift, under = _begin(records) - first, top
        for r in records:
            if n and _START in str(r.get("args", "")):
                continue
            if "ts" in r:
                r["ts"] += shift
            if r.get("pid"):
                r["pid"] += under
                top = max(top, r["pid"])
            lines.append(json.dumps(r, separators=(",", ":"), ensure_ascii=False))
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


def _records(piece: bytes) -> list[dict[str, Any]]:
    text = piece.decode(errors="replace").rstrip()
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except ValueError:  # cut off within its last write
        return json.loads(text[: text.rfind("},\n") + 1] + "]")  # type: ignore[no-any-return]


def _begin(records: list[dict[str, Any]]) -> int:
    return next((int(r["args"][_START]) for r in records if _START in r.get("args", {})), 0)


def keep(path: str, pieces: list[bytes]) -> None:
    """Write it from its begin to its end, once: a mount that cannot seek takes that too. What only appends keeps what
    it had, and gets a file beside it."""
    if not pieces:
        print(
            f"hora: warning: no rank wrote the timeline {path}: the function has not joined the job by hora.init() or hvd.init(), or rank 0 was killed",
            file=sys.stderr,
        )
        return
    text = joined(pieces)
    for n in range(1, 1000):
        name = path if n == 1 else f"{path}.{n}"
        try:
            with open(name, "ab" if not os.path.exists(name) or os.path.getsize(name) == 0 else "wb") as f:
                f.write(text)
        except OSError as e:
            if e.errno == errno.EPERM and os.path.exists(name):  # it may only grow
                continue
            print(f"hora: warning: the timeline cannot be written to {name}: {e.strerror}", file=sys.stderr)
            return
        if n > 1:
            print(f"hora: {path} can only be appended to and has another timeline: this one is {name}", file=sys.stderr)
        return
