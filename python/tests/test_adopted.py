"""hora.run of a program that is killed: another takes its workers over, and gets what they return."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import hora

pytestmark = pytest.mark.usefixtures("launcher")

KILLS = 20 if os.environ.get("HORA_SOAK") else 3
SIZE = 3_000_000  # of arguments and results, in bytes: more than is on its way at once

DRIVER = textwrap.dedent("""
    import hora

    def work(text):
        import os, time
        import hora
        with open("pids", "a") as f:
            print(os.getpid(), file=f)
        hora.init()
        with open(f"up.{hora.rank()}", "w"):
            pass
        while not os.path.exists("go"):
            time.sleep(0.01)
        return hora.rank(), hora.allreduce(1.0), text

    if __name__ == "__main__":
        hora.run(work, args=("x" * %d,), np=2, coordinator_state="state")
        print("here too")
""")
HEIR = "import hora; hora.run(adopt='state')"


def begun(folder: Path, script: str = DRIVER) -> subprocess.Popen:
    """A program in whose job all ranks have met, and which can be adopted."""
    (folder / "driver.py").write_text(script % SIZE)
    driver = program(folder, "driver.py")
    ledger = folder / "state" / "launcher"
    until(lambda: all((folder / f"up.{rank}").exists() for rank in range(2)) and ledger.stat().st_size)
    return driver


def until(so) -> None:
    end = time.monotonic() + 60
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def program(folder: Path, *command: str) -> subprocess.Popen:
    env = os.environ | {"HORA_ADOPT_TIMEOUT": "30"}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, *command], cwd=folder, env=env, **output)


def kill(p: subprocess.Popen) -> bool:
    """Whether it had not ended by itself. What it has said is not waited for: the agents have its output too."""
    p.kill()
    return p.wait() == -signal.SIGKILL


def returned(results) -> None:
    assert [r[:2] for r in results] == [(0, 2.0), (1, 2.0)] and all(r[2] == "x" * SIZE for r in results)


def test_a_killed_program_is_adopted(tmp_path, monkeypatch):
    """At random moments, while the ranks wait and while they end; the program that takes over may be killed too. No
    worker is started again."""
    seed = int(os.environ.get("HORA_SEED") or random.randrange(1 << 32))
    print(f"HORA_SEED={seed}")
    draw = random.Random(seed)
    killed = turn = 0
    while killed < KILLS:
        folder = tmp_path / str(turn := turn + 1)
        folder.mkdir()
        monkeypatch.chdir(folder)
        early = draw.random() < 0.5  # the workers go on before the first is killed
        for k in range(draw.randint(1, 3)):
            p = program(folder, "-c", HEIR) if k else begun(folder)
            if early:
                Path("go").touch()
            try:
                p.wait(draw.random() * 0.6)
            except subprocess.TimeoutExpired:
                killed += kill(p)
        Path("go").touch()
        returned(hora.run(adopt="state", timeout=60))
        assert len(Path("pids").read_text().split()) == 2
        assert not Path("state", "call").exists()
    returned(hora.run(adopt="state", timeout=60))  # whoever adopts may be killed before it has read them


def test_a_program_that_is_killed_takes_its_job_along(tmp_path):
    """Where nobody could adopt it."""
    script = DRIVER.replace(', coordinator_state="state"', "")
    (tmp_path / "driver.py").write_text(script % 1)
    driver = program(tmp_path, "driver.py")
    pids = tmp_path / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    assert kill(driver)
    left = [Path("/proc", pid) for pid in pids.read_text().split()]
    until(lambda: not any(p.exists() for p in left))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"func": len}, "adopt goes on with a job as it was started, with the same function: leave func away"),
        ({"np": 2}, "leave np away"),
        ({"restarts": 1}, "leave restarts away"),
    ],
)
def test_adopt_stands_alone(given, words):
    with pytest.raises(hora.ArgumentError, match=words):
        hora.run(adopt="state", **given)


def test_what_cannot_be_adopted(tmp_path):
    with pytest.raises(hora.HoraError, match=r"(?s)no result has come from the job of .*there is no such folder"):
        hora.run(adopt=tmp_path / "none")


def test_an_elastic_job_is_adopted(tmp_path, monkeypatch):
    """It is known by what its workers leave how many must."""
    monkeypatch.chdir(tmp_path)
    assert kill(begun(tmp_path, DRIVER.replace("np=2", "np=2, min_np=1")))
    Path("go").touch()
    returned(hora.run(adopt="state", timeout=60))
