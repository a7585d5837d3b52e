"""How the tests start ranks: real processes of this interpreter, without a launcher unless a test asks for it."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from beside import PYTHON, TREE, environments
from warm import Nursery

TIMEOUT = 30.0

# Who runs the tests in the background of a shell has them ignore this, and so all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class Ended:
    """How one rank ended."""

    code: int
    out: str
    err: str


def cold(code: str, env: dict[str, str]) -> subprocess.Popen:
    """A rank in an interpreter of its own, which has imported nothing yet."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Job:
    """Ranks that run, each, one function of a test module."""

    def __init__(
        self,
        n: int,
        work,
        tmp: Path,
        env: dict[str, str] | None = None,
        args: tuple = (),
        before: str = "",
        links: str = "",
        start=cold,
    ) -> None:
        module = Path(inspect.getsourcefile(work))
        code = f"import sys; sys.path.insert(0, {str(module.parent)!r}); {before}\nimport {module.stem} as m; m.{work.__name__}(*{args!r})"
        more = (env or {}) | ({"HORA_LINKS": links} if links else {})
        self.processes = [start(code, e | more) for e in environments(n, tmp)]

    def wait(self, timeout: float = TIMEOUT) -> list[Ended]:
        """All ranks' ends; kills them and fails the test when they take too long."""
        end = time.monotonic() + timeout
        try:
            return [Ended(p.returncode, *o) for p, o in self._outputs(end)]
        finally:
            self.kill()

    def _outputs(self, end: float):
        late = []
        done = []
        for r, p in enumerate(self.processes):
            try:
                done.append((p, p.communicate(timeout=max(0.1, end - time.monotonic()))))
            except subprocess.TimeoutExpired:
                late.append(r)
                os.killpg(p.pid, signal.SIGABRT)
                done.append((p, p.communicate()))
        if late:
            said = "\n".join(f"--- rank {r}: {o[0][-1500:]}\n{o[1][-3000:]}" for r, (_, o) in enumerate(done))
            pytest.fail(f"ranks {late} did not end in time\n{said}")
        return done

    def kill(self) -> None:
        for p in self.processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.communicate()


@pytest.fixture(scope="session")
def nursery():
    """Starts ranks that have torch imported."""
    n = Nursery(TREE)
    yield n
    n.close()


@pytest.fixture
def job(tmp_path, request):
    """job(n, work, …) starts n ranks and gives the Job. Torch's tests get theirs from the nursery, others with
    warm=True."""
    jobs: list[Job] = []
    torchs = "torch" in str(request.node.path.relative_to(PYTHON))

    def start(n: int, work, *, env: dict[str, str] | None = None, warm: bool = torchs, **how) -> Job:
        fresh = any(k.startswith("TORCH") for k in env or {})
        starter = request.getfixturevalue("nursery").start if warm and not fresh else cold
        jobs.append(Job(n, work, tmp_path, env=env, start=starter, **how))
        return jobs[-1]

    yield start
    for j in jobs:
        j.kill()


@pytest.fixture
def ranks(job):
    """ranks(n, work, …) runs work on n ranks, which must all end well; their outputs."""

    def go(n: int, work, timeout: float = TIMEOUT, **how) -> list[str]:
        ends = job(n, work, **how).wait(timeout)
        bad = [f"--- rank {r} ended with {e.code}\n{e.out}\n{e.err}" for r, e in enumerate(ends) if e.code]
        assert not bad, "\n".join(bad)
        return [e.out for e in ends]

    return go


@pytest.fixture(scope="session")
def hora_program(tmp_path_factory) -> Path:
    """The program `hora`, built from this tree."""
    folder = tmp_path_factory.mktemp("bin")
    subprocess.run(["go", "build", "-o", folder / "hora", "./cmd/hora"], cwd=PYTHON.parent, check=True)
    return folder / "hora"


@pytest.fixture
def launcher(hora_program, monkeypatch) -> Path:
    """The same, where programs are looked for."""
    monkeypatch.setenv("PATH", f"{hora_program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(TREE))
    return hora_program
