"""Temporary folders of drivers and tasks. Who is killed removes none; the next one on the machine does, since nobody
holds their lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from typing import Any

__all__ = ["make", "remove"]

_PREFIXES = ("hora-ship-", "hora-spark-", "hora-seat-", "hora-rows-")
_YOUNG = 60.0  # seconds in which a folder may not be locked yet
_held: dict[str, Any] = {}
_swept: set[str] = set()


def make(prefix: str) -> str:
    """A folder of mode 0700, whose lock this process holds."""
    folder = tempfile.mkdtemp(prefix=prefix)
    lock = open(os.path.join(folder, ".lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:  # a file system without locks: without its file nobody takes the folder for an abandoned one
        lock.close()
        os.remove(lock.name)
        return folder
    _held[folder] = lock
    parent = os.path.dirname(folder)
    if parent not in _swept:
        _swept.add(parent)
        with contextlib.suppress(OSError):  # whose names may not be listed
            _sweep(parent)
    return folder


def remove(folder: str) -> None:
    """Remove a folder, and let go of its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _held.pop(folder, None)
    if lock is not None:
        lock.close()


def _sweep(parent: str) -> None:
    for entry in os.scandir(parent):
        with contextlib.suppress(OSError):  # another's, or another driver sweeps too
            if (
                not entry.name.startswith(_PREFIXES)
                or entry.path in _held
                or entry.stat(follow_symlinks=False).st_uid != os.geteuid()
            ):
                continue
            path = os.path.join(entry.path, ".lock")
            if time.time() - os.lstat(path).st_mtime < _YOUNG:
                continue
            with open(path) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
