"""What became of another project's own tests, against a list of those that need not pass here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RACES = "now and then"  # begins the reason of a test that may pass
NOTING = Path(__file__).resolve().parent / "noting"  # the folder of the plugin noted_ends

Ends = dict[str, tuple[str, str]]  # a test's name → passed, failed or skipped, and what it said


def run(command: Sequence[Any], seconds: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run, but what takes too long ends with all that it has started.

    Ranks have groups of their own, and what they start in turn outlives the launcher.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes, **more) as top:
        try:
            out, err = top.communicate(timeout=seconds)
        except BaseException:
            while left := session(top.pid):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, top.returncode, out, err)


def session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, _, _, its, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(its) == leader and state not in "ZX":
                found.append(int(entry.name))
    return found


def noted(*files: Path) -> Ends:
    """What noted_ends has written; of ranks, a failure on any of them."""
    ends: Ends = {}
    for file in files:
        own: Ends = {}
        for line in file.read_text().splitlines():
            name, outcome, said = json.loads(line)
            if outcome == "failed" or own.get(name, ("failed", "it has not ended"))[1] == "it has not ended":
                own[name] = outcome, said
        for name, end in own.items():
            if end[0] == "failed" or name not in ends:
                ends[name] = end
    return ends


def left_out(file: Path) -> dict[str, str]:
    """The tests that need not pass, with the reason: a name without its parameters stands for all of them."""
    told = {}
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, why = line.partition(" | ")
            assert why, f"{file.name}: {name} has no reason"
            assert name not in told, f"{file.name}: {name} is there twice"
            told[name] = why
    return told


def differences(ends: Ends, told: dict[str, str]) -> list[str]:
    """What fails and is not in the list, what is in it and passes, and what is in it and is no test."""
    found, seen = [], set()
    for name, (outcome, said) in sorted(ends.items()):
        entry = next((n for n in (name, name.partition("[")[0], name.partition("::")[0]) if n in told), None)
        seen.add(entry)
        if outcome == "failed" and entry is None:
            found.append(f"{name} fails and left_out.txt has no reason for it: {said}")
        if outcome == "passed" and entry is not None and not told[entry].startswith(RACES):
            found.append(f"{name} passes: take {entry} out of left_out.txt")
    return found + [f"{name}: left_out.txt has it, and it is no test" for name in sorted(set(told) - seen)]
