"""init → shutdown → init, a hundred times on four ranks, and with a rank killed in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import hora

LIVES = 100


def live(killed: str) -> None:
    """A hundred lives of the job; in the middle of the fiftieth rank 2 is killed, unless `killed` is there."""
    from horovod.common.basics import HorovodBasics
    from horovod.common.exceptions import HorovodInternalError

    hvd = HorovodBasics()
    done = broken = 0
    while done < LIVES:
        try:
            hvd.init()
            done = int(hora.allreduce(float(done), hora.MAX)) + 1  # who replaces a rank counts on from the others'
            if done == LIVES // 2 and hvd.rank() == 2 and not os.path.exists(killed):
                Path(killed).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            hora.barrier()
        except (hora.HoraError, HorovodInternalError):
            broken += 1
        hvd.shutdown()
    print(f"lived {done} broken {broken}", flush=True)


def _run(launcher: Path, killed: Path, *options: str) -> list[str]:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_horovod_lives as m; m.live({str(killed)!r})"
    done = subprocess.run(
        [launcher, "run", "-np", "4", *options, sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return sorted(line.partition(":")[2] for line in done.stdout.splitlines())


def test_a_hundred_lives(launcher, tmp_path):
    killed = tmp_path / "killed"
    killed.touch()
    assert _run(launcher, killed) == [f"lived {LIVES} broken 0"] * 4


def test_a_hundred_lives_and_a_kill(launcher, tmp_path):
    ends = _run(launcher, tmp_path / "killed", "--restarts", "1")
    assert len(ends) == 4 and all(e.startswith(f"lived {LIVES} broken ") for e in ends), ends
