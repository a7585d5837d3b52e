"""horovodrun's elastic jobs under schedules of hosts: what each epoch ran on, and how the job ended.

All schedules are part of `make soak`; the ordinary run has those marked so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("elastic_diary.py")
BOTH = ["localhost:2", "127.0.0.1:2"]


class Job:
    """What such a job has left: its exit code, the diary of its epochs, and what the launcher said."""

    def __init__(self, launcher, folder, *flags: str, hosts=(), **plan):
        diary = folder / "diary"
        plan = {
            "hosts": hosts,
            "ends": {},
            "how": "raise",
            "epochs": 3,
            "pause": 0,
            "patience": 5,
            "diary": str(diary),
        } | plan
        command = [launcher, "horovodrun", *flags]
        if hosts:  # the last of them stays
            cases = "".join(
                f"{'*' if i == len(hosts) - 1 else i}) printf '%s\\n' {' '.join(h)};; " for i, h in enumerate(hosts)
            )
            script = folder / "hosts.sh"
            script.write_text(f"#!/bin/sh\ncase $(cat {diary} 2>/dev/null | wc -l) in {cases}esac\n")
            script.chmod(0o755)
            command += ["--host-discovery-script", str(script)]
        command += [sys.executable, str(PROGRAM), json.dumps(plan)]
        done = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
        )
        self.code, self.said = done.returncode, done.stderr
        self.story = f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        self.epochs = [json.loads(line) for line in diary.read_text().splitlines()] if diary.exists() else []

    def is_like(self, *epochs: tuple) -> None:
        """It ended well, and each epoch's rank 0, by its first number, its host, the size and the lives are these; None
        is any."""
        assert self.code == 0, self.story
        got = [(e["born"], e["host"], e["size"], e["lives"]) for e in self.epochs]
        assert len(got) == len(epochs), (got, self.story)
        for have, want in zip(got, epochs, strict=True):
            assert all(w is None or w == h for h, w in zip(have, want, strict=True)), (got, self.story)

    def failed(self, words: str = "") -> None:
        assert self.code not in (0, 124) and words in self.said, self.story


def added_and_removed(launcher, folder, slots, *flags):
    here, there = f"localhost:{slots}", f"127.0.0.1:{slots}"
    return Job(
        launcher, folder, "-np", str(slots), "--min-np", str(slots), *flags, hosts=[[here], [here, there], [there]]
    )


def hosts_come_and_go(launcher, folder, slots=2):
    """Both workers of the host that comes are in one epoch, and those of the one that goes leave in one."""
    job = added_and_removed(launcher, folder, slots, "--max-np", str(2 * slots))
    job.is_like((0, "localhost", slots, 1), (0, "localhost", 2 * slots, 2), (slots, "127.0.0.1", slots, 3))


def one_slot_each(launcher, folder):
    hosts_come_and_go(launcher, folder, 1)


def a_rank_fails(launcher, folder, how="raise"):
    """Its host goes with it; the first epoch was done, so the diary has that on four ranks."""
    job = Job(launcher, folder, "-np", "2", "--min-np", "2", "--max-np", "4", hosts=[BOTH], ends={"1.0": [0]}, how=how)
    job.is_like((0, "localhost", None, 1), (2, "127.0.0.1", 2, 2), (2, "127.0.0.1", 2, 2))
    assert job.epochs[0]["size"] == 4, job.story


def a_rank_is_killed(launcher, folder):
    a_rank_fails(launcher, folder, "kill")


def fixed_hosts(launcher, folder, how="kill"):
    """Without a discovery the job has all slots of its hosts from the start, and goes on with those that are left."""
    job = Job(launcher, folder, "-np", "2", "--min-np", "2", "-H", ",".join(BOTH), ends={"1.0": [0]}, how=how)
    job.is_like((0, "localhost", 4, 1), (2, "127.0.0.1", 2, 2), (2, "127.0.0.1", 2, 2))


def fixed_hosts_and_an_exception(launcher, folder):
    fixed_hosts(launcher, folder, "raise")


def all_ranks_fail(launcher, folder):
    Job(
        launcher, folder, "-np", "2", "--min-np", "2", "--max-np", "4", hosts=[BOTH], ends={"1.0": [0, 1, 2, 3]}
    ).failed()


def all_hosts_are_given_up(launcher, folder):
    Job(launcher, folder, "-np", "2", "--min-np", "2", "--max-np", "4", hosts=[BOTH], ends={"1.0": [0, 2]}).failed()


def too_few_are_left(launcher, folder):
    flags = ("-np", "4", "--min-np", "4", "--max-np", "4", "--elastic-timeout", "2")
    Job(launcher, folder, *flags, hosts=[BOTH], ends={"1.0": [0]}).failed("--min-np is 4")


def one_reset_is_too_few(launcher, folder):
    job = added_and_removed(launcher, folder, 1, "--max-np", "2", "--reset-limit", "1")
    job.failed("--reset-limit")
    assert len(job.epochs) == 2, job.story


def two_resets_are_enough(launcher, folder):
    job = added_and_removed(launcher, folder, 2, "--max-np", "4", "--reset-limit", "2")
    assert job.code == 0 and len(job.epochs) == 3, job.story


def a_host_that_fails_twice_rests_longer(launcher, folder):
    flags = ("-np", "4", "--min-np", "2", "--max-np", "4", "--blacklist-cooldown-range", "2", "60")
    ends = {f"{epoch}.0": [3] for epoch in range(1, 40)}  # whoever is started as rank 3 fails at its first step
    job = Job(launcher, folder, *flags, hosts=[BOTH], ends=ends, epochs=40, pause=0.5)
    rests = [float(s) for s in re.findall(r"127\.0\.0\.1: .*it is tried again in ([\d.]+)s", job.said)]
    assert job.code == 0 and len(job.epochs) == 40, job.story
    assert len(rests) >= 2 and 2 <= rests[0] <= 2.4 and 4 <= rests[1] <= 4.8, (rests, job.story)
    assert job.epochs[0]["size"] == 4 and job.epochs[1]["size"] == 2, job.story


ORDINARY = [hosts_come_and_go, fixed_hosts]
SOAK = [
    one_slot_each, a_rank_fails, a_rank_is_killed, fixed_hosts_and_an_exception, all_ranks_fail, all_hosts_are_given_up,
    too_few_are_left, one_reset_is_too_few, two_resets_are_enough, a_host_that_fails_twice_rests_longer,
]  # fmt: skip


@pytest.mark.parametrize("schedule", ORDINARY + (SOAK if os.environ.get("HORA_SOAK") else []), ids=lambda s: s.__name__)
def test_schedule(launcher, tmp_path, schedule):
    schedule(launcher, tmp_path)
