"""The example that goes from Petastorm's names to hora.dataset, and where the names may not be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/66-petastorm"


@pytest.mark.parametrize("name", ["before", "after"])
def test_the_example(name, launcher, arrow, tmp_path):
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "python/migration"), arrow])
    env = os.environ | {"PYTHONPATH": paths, "PETASTORM_CACHE_DIR_URL": f"file://{tmp_path}"}
    command = [launcher, "run", "-np", "2", "--no-tag", sys.executable, EXAMPLE / f"{name}.py", tmp_path]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert "done: 4000 rows, each twice: True; weights [2.0, -1.0]" in done.stdout, done.stdout + done.stderr


def test_the_difference_is_what_the_page_shows():
    lines = (ROOT / "docs/petastorm.md").read_text().split("```diff\n")[1].split("```")[0].splitlines()
    files = {sign: (EXAMPLE / name).read_text().splitlines() for sign, name in (("-", "before.py"), ("+", "after.py"))}
    for line in lines:
        assert line[1:] in files[line[0]], line


def test_beside_petastorm_it_refuses(tmp_path):
    info = tmp_path / "petastorm-0.13.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: petastorm\nVersion: 0.13.1\n")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "python/migration"), str(tmp_path)])
    }
    done = subprocess.run(
        [sys.executable, "-c", "import petastorm"], env=env, capture_output=True, text=True, check=False
    )
    assert (
        done.returncode == 1
        and "petastorm 0.13.1 is installed beside hora-petastorm" in done.stderr
        and "pip uninstall petastorm" in done.stderr
    )
