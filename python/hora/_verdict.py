"""What a trial in another process has found, for this user's other processes on this host.

Ranks that start together make one trial, for which the others wait, and ranks that come later make none. What is kept
lies beside the host's temporary files and not in the user's home: it goes with the host, and no lock has to hold on a
file system of several hosts. A folder that is not this user's alone is not used; without one each process tries itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator

_WELL = b"well\n"  # as a whole; a file that was not written to its end says nothing
_ILL = b"ill: "
_MOST = 4096
_LOOK_S = 0.02


def shared(about: str, trial: Callable[[], str], patience: float) -> str:
    """What `trial` answers, or has answered a process with the same `about`: why something does not work, "" if it does.

    An answer that it works is kept. One that it does not is for those only who wait while it is found, at most for
    `patience` seconds: another time it may work.
    """
    with contextlib.ExitStack() as held:
        try:
            file, waited = held.enter_context(_mine(about, patience))
            said = os.pread(file, _MOST, 0)
            if said == _WELL:
                return ""
            if waited and said.startswith(_ILL) and said.endswith(b"\n"):
                return said[len(_ILL) : -1].decode("utf-8", "replace")
            os.ftruncate(file, 0)  # whoever ends in the middle has found nothing
        except OSError:
            return trial()
        why = trial()
        with contextlib.suppress(OSError):
            text = why.replace("\n", " ").encode()[: _MOST - len(_ILL) - 1]
            os.pwrite(file, _ILL + text + b"\n" if why else _WELL, 0)
        return why


@contextlib.contextmanager
def _mine(about: str, patience: float) -> Iterator[tuple[int, bool]]:
    """The file of what is kept about something, which no other process has meanwhile, and whether one had it first."""
    file = _opened(hashlib.sha256(about.encode()).hexdigest())
    try:
        yield file, _locked(file, patience)
    finally:
        os.close(file)  # and with it the lock


def _opened(name: str) -> int:
    user = os.geteuid()
    folder = os.path.join(tempfile.gettempdir(), f"hora-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(at)
        if found.st_uid != user or found.st_mode & 0o077:
            raise PermissionError(f"{folder} is not this user's alone")
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=at)
    finally:
        os.close(at)


def _locked(file: int, patience: float) -> bool:
    """Whether the lock had to be waited for."""
    end, waited = time.monotonic() + patience, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return waited
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            waited = True
        time.sleep(_LOOK_S)
