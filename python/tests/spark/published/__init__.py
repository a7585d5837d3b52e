"""Petastorm's published tests, run against hora-petastorm: where they come from, and what became of them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import beside
import own_tests
from own_tests import differences

__all__ = ["differences", "files", "left_out", "run", "tree"]

HERE = Path(__file__).resolve().parent
TESTS = ("petastorm/tests", "petastorm/test_util", "petastorm/hdfs/tests", "petastorm/workers_pool/tests")
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


def run(folder: Path, names: list[str], tmp: Path, tensorflow: bool) -> own_tests.Ends:
    """Every test's end, by its name: passed, failed or skipped, and what it said."""
    tmp.mkdir()
    beside_them = [beside.folder(n) for n in ("data", *(("tensorflow", "jax") if tensorflow else ()))]
    path = [
        folder,
        HERE,
        own_tests.NOTING,
        *beside.TREE[:1],
        *beside_them,
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    ends = tmp / "ends"
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PUBLISHED_TESTS": str(folder),
        "PUBLISHED_ENDS": str(ends),
        "HORA_DATA_CACHE": str(tmp / "cache"),
        "TMPDIR": str(tmp),
        "PYSPARK_PYTHON": sys.executable,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "published_names", "-p", "noted_ends", "-p", "no:cacheprovider", "-W", "ignore",
               "--continue-on-collection-errors", f"--rootdir={folder}", f"--confcutdir={folder}", "-c", os.devnull,
               *names]  # fmt: skip
    said = own_tests.run(command, LONGEST, cwd=folder, env=env)
    assert ends.exists(), said.stdout[-4000:] + said.stderr[-4000:]
    return own_tests.noted(ends)


def left_out() -> dict[str, str]:
    """The tests that need not pass, with the reason."""
    return own_tests.left_out(HERE / "left_out.txt")
