"""Petastorm's published tests, run against hora-petastorm: where they come from, and what became of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import beside

HERE = Path(__file__).resolve().parent
TESTS = ("petastorm/tests", "petastorm/test_util", "petastorm/hdfs/tests", "petastorm/workers_pool/tests")
RACES = "now and then"  # begins the reason of a test that may pass
LONGEST = 60 * 60  # seconds, of one process; six to ten minutes are usual


def tree(into: Path) -> Path:
    """A folder with the distribution of this tree and, below it, the tests that Petastorm's wheel brings; no other file
    of that wheel."""
    shutil.copytree(
        beside.PYTHON / "migration/petastorm", into / "petastorm", ignore=shutil.ignore_patterns("__pycache__")
    )
    wheel = beside.folder("petastorm")
    for tests in TESTS:
        shutil.copytree(wheel / tests, into / tests, ignore=shutil.ignore_patterns("__pycache__"))
    return into


def files(folder: Path) -> tuple[list[str], list[str]]:
    """The files of tests: those that need no TensorFlow, and those that do, which another process runs."""
    without, with_tensorflow = [], []
    for path in sorted(folder.rglob("test_*.py")):
        name = str(path.relative_to(folder))
        (with_tensorflow if "tensorflow" in path.read_text() else without).append(name)
    return without, with_tensorflow


def run(folder: Path, names: list[str], tmp: Path, tensorflow: bool) -> dict[str, tuple[str, str]]:
    """Every test's end, by its name: passed, failed or skipped, and what it said."""
    tmp.mkdir()
    beside_them = [beside.folder(n) for n in ("data", *(("tensorflow", "jax") if tensorflow else ()))]
    path = [folder, HERE, *beside.TREE[:1], *beside_them, *filter(None, [os.environ.get("PYTHONPATH")])]
    ends = tmp / "ends.json"
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PUBLISHED_TESTS": str(folder),
        "PUBLISHED_ENDS": str(ends),
        "HORA_DATA_CACHE": str(tmp / "cache"),
        "TMPDIR": str(tmp),
        "PYSPARK_PYTHON": sys.executable,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "published_names", "-p", "no:cacheprovider", "-W", "ignore",
               "--continue-on-collection-errors", f"--rootdir={folder}", f"--confcutdir={folder}", "-c", os.devnull,
               *names]  # fmt: skip
    said = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LONGEST)
    assert ends.exists(), said.stdout[-4000:] + said.stderr[-4000:]
    return {name: tuple(end) for name, end in json.loads(ends.read_text()).items()}


def left_out() -> dict[str, str]:
    """The tests that need not pass, with the reason: a name without its parameters stands for all of them."""
    told = {}
    for line in (HERE / "left_out.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, why = line.partition(" | ")
            assert why, f"left_out.txt: {name} has no reason"
            assert name not in told, f"left_out.txt: {name} is there twice"
            told[name] = why
    return told


def differences(ends: dict[str, tuple[str, str]], told: dict[str, str]) -> list[str]:
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
