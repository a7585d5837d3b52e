"""For tests of how jobs end: ranks that say who they are and wait, and whether they are gone."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path


def pids(path):
    """Writes who runs, and waits to be ended."""
    import os
    import subprocess
    import time

    import hora

    hora.init()
    child = subprocess.Popen(["sleep", "600"])
    with open(f"{path}/{hora.rank()}~", "w") as f:
        f.write(f"{os.getpid()} {child.pid}")
    os.rename(f"{path}/{hora.rank()}~", f"{path}/{hora.rank()}")
    time.sleep(600)


def told(path: Path, n: int, limit: float = 90, driver: subprocess.Popen | None = None) -> list[int]:
    """The processes of n ranks, when they have all written them."""
    end = time.monotonic() + limit
    while sum(p.name.isdigit() for p in path.iterdir()) < n:
        assert time.monotonic() < end and (driver is None or driver.poll() is None), "the ranks did not start"
        threading.Event().wait(0.02)
    return [int(w) for p in path.iterdir() if p.name.isdigit() for w in p.read_text().split()]


def ended(pids: list[int], limit: float) -> bool:
    """Whether none of the processes is there any more, before the limit."""
    end = time.monotonic() + limit
    while any(os.path.exists(f"/proc/{p}") for p in pids):
        if time.monotonic() > end:
            return False
        threading.Event().wait(0.02)
    return True


def below(top: int) -> list[int]:
    """All processes under one."""
    found = [top]
    for pid in found:
        for name in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{name}/children") as f:
                found += map(int, f.read().split())
    return found[1:]


def words(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return f.read()


FAMILY = "TESTS_FAMILY"  # a variable that all have which these tests started, and nobody else on this machine
os.environ.setdefault(FAMILY, f"{os.getpid()}-{time.time_ns()}")


def serving() -> list[int]:
    """The hubs, agents and guards that run on this machine, those of these tests' jobs."""
    found, mine = [], f"{FAMILY}={os.environ[FAMILY]}".encode()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and (
                b"\0agent\0" in (argv := words(int(name)))
                or b"\0__agent\0" in argv
                or argv.split(b"\0")[1:2] == [b"hub"]
            ):
                with open(f"/proc/{name}/environ", "rb") as f:
                    if mine in f.read().split(b"\0"):
                        found.append(int(name))
        except OSError:  # it has ended
            pass
    return found


def executor_of(pid: int) -> int:
    """The executor's JVM above a worker."""
    while pid > 1:
        if "CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_text():
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    raise AssertionError("no executor is above this process")
