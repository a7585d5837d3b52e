"""Random faults, several to a job, from the first moment of Python workers' processes on, of those that replace others
too.

Each job ends as its policy says, soon. `make soak` has two hundred faults under every policy, the ordinary run one job;
a fault a job, at any moment of it, is what TestFaultsFromTheStartOn in internal/jobtest has.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from beside import TREE
from test_elastic import Run, left_of

SOAK = os.environ.get("HORA_SOAK") == "1"
STEPS = 250
LIMIT = 60.0  # for a job, from its last fault on; it takes about five seconds

OPTIONS = {
    "stop": ["-np", "3"],
    "replace": ["-np", "3", "--restarts", "99", "--on-loss", "replace"],
    "continue": ["-np", "3", "--min-np", "1", "--on-loss", "continue"],
}
KILLS = {"stop": 1, "replace": 4, "continue": 2}  # under continue one goes on alone at least


class Job:
    """A job that faults happen to, by seed."""

    def __init__(self, launcher, folder: Path, policy: str, draw: random.Random) -> None:
        self.policy, self.draw, self.events = policy, draw, folder / "events"
        self.story: list[str] = []
        self.killed: set[int] = set()
        env = {"TMPDIR": str(folder / "tmp")} | ({"SAME": "1"} if policy == "continue" else {})
        (folder / "tmp").mkdir()
        self.mark = f"TMPDIR={folder / 'tmp'}\0"
        self.began = time.monotonic()
        self.run = Run(launcher, [*OPTIONS[policy], "--events", str(self.events)], f"work({STEPS}, 0.01)", env)

    def alive(self) -> list[int]:
        """The workers' processes, the youngest last."""
        text = self.events.read_text() if self.events.exists() else ""
        pids: dict[int, int] = {}
        for line in text.splitlines(keepends=True):
            e = json.loads(line) if line.endswith("\n") else {"event": ""}
            if e["event"] in ("started", "exited"):
                pids.pop(e["rank"], None)
            if e["event"] == "started":
                pids[e["rank"]] = e["pid"]
        return [p for p in pids.values() if p not in self.killed]

    def over(self) -> bool:
        return self.run.lines[-1:] == ["end"] or self.run.count("final") > 0

    def fault(self) -> bool:
        """One, after a while; half of them happen to who was started last. False: the job is over, or nobody is
        there."""
        kinds = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]
        kind = self.draw.choice(kinds if self.policy != "stop" else [signal.SIGKILL, signal.SIGSTOP])
        end = time.monotonic() + self.draw.choice([0.02, 0.4, 1.5]) * self.draw.random()
        youngest, pick = self.draw.random() < 0.5, self.draw.random()
        pids = self.alive()
        while not self.over() and (not pids or time.monotonic() < end) and time.monotonic() < end + 30:
            time.sleep(0.005)
            pids = self.alive()
        if self.over() or not pids:
            return False
        victim = pids[-1] if youngest else pids[int(pick * len(pids))]
        self.story.append(f"{time.monotonic() - self.began:.2f} s: {kind.name} to {victim} of {pids}")
        try:
            os.kill(victim, kind)
            if kind == signal.SIGSTOP:
                time.sleep(self.draw.random() * 0.5)  # far less than the silence after which a rank counts as lost
                os.kill(victim, signal.SIGCONT)
            else:
                self.killed.add(victim)
        except ProcessLookupError:
            self.story.append("(it had ended)")
        return True

    def faults(self) -> int:
        n = 0
        while len(self.killed) < KILLS[self.policy] and n < 8 and self.fault():
            n += 1
        return n

    def ends(self, want: str) -> None:
        """It ends soon, as the policy says."""
        began = time.monotonic()
        finals = self.run.ends(LIMIT)
        code, text = self.run.process.returncode, "\n".join([*self.story, *self.run.lines])
        assert time.monotonic() - began < LIMIT, text
        if self.policy == "stop" and self.killed and code != 0:
            assert any(
                line.startswith("hora: rank ") and "killed by signal 9 (SIGKILL)" in line for line in self.run.lines
            ), text
            return
        assert code == 0, f"exit code {code}\n{text}"
        assert finals and all(f.split()[:4] == want.split()[:4] for f in finals), text
        again = sum("starting it again" in line for line in self.run.lines)
        assert len(finals) >= 3 - (len(self.killed) - again), (
            text
        )  # who is killed when all is done may not come to its last word


@pytest.fixture(scope="module")
def undisturbed(hora_program):
    found = {}
    for policy, same in (("replace", {}), ("continue", {"SAME": "1"})):
        finals = Run(hora_program, ["-np", "3"], f"work({STEPS})", same | {"PYTHONPATH": os.pathsep.join(TREE)}).ends()
        assert len(finals) == 3 and len(set(finals)) == 1
        found[policy] = finals[0]
    return found | {"stop": found["replace"]}


@pytest.mark.parametrize("policy", list(OPTIONS) if SOAK else ["replace"])
def test_faults_from_the_start_on(launcher, undisturbed, tmp_path, policy):
    seed = int(os.environ.get("HORA_SEED", random.randrange(10**6)))
    print(f"HORA_SEED={seed} pytest {__file__} -k 'from_the_start and {policy}'")
    draw = random.Random(seed)
    shared = set(os.listdir("/dev/shm"))
    faults = jobs = 0
    while jobs == 0 or SOAK and faults < 67:
        folder = tmp_path / str(jobs)
        folder.mkdir()
        job = Job(launcher, folder, policy, draw)
        try:
            faults += job.faults()
            job.ends(undisturbed[policy])
        finally:
            job.run.stop()
        jobs += 1
        assert not left_of(job.mark), job.story
        assert not list((folder / "tmp").iterdir()), job.story  # the secret's folder least of all
    assert not [n for n in set(os.listdir("/dev/shm")) - shared if "hora" in n]
    print(f"{faults} faults to {jobs} jobs")
