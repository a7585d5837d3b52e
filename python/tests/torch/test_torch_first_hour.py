"""The program of docs/first-hour.md runs, goes on from its checkpoint, and its stream is shared out whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "first-hour.md").read_text()

pytestmark = pytest.mark.usefixtures("launcher")


def block(begins: str) -> str:
    found = [b for b in re.findall(r"```python\n(.*?)```", PAGE, re.S) if b.startswith(begins)]
    assert len(found) == 1, begins
    return found[0]


def run(launcher: Path, folder: Path, *command: str) -> str:
    done = subprocess.run(
        [launcher, "run", "-np", "2", sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_whole_program(launcher, tmp_path):
    (tmp_path / "train.py").write_text(block("# train.py"))
    lines = run(launcher, tmp_path, "train.py", "2").splitlines()
    assert [line.split(":")[1] for line in lines] == ["epoch 0", "epoch 1"], lines
    assert all(line.endswith(" of 1003") for line in lines), lines
    (line,) = run(launcher, tmp_path, "train.py", "3").splitlines()
    assert line.startswith("[0]<stdout>:epoch 2: accuracy 0.9"), line


def test_a_stream_is_shared_out(launcher, tmp_path):
    program = (
        "import itertools, torch, torch.distributed as dist, hora.torch\n"
        "dist.init_process_group('hora')\n"
        "def read():\n    yield from range(23)\n"
        + block("class Stream")
        + "mine = [int(x) for x in torch.utils.data.DataLoader(Stream(), batch_size=None, num_workers=2)]\n"
        "all_ = [None] * dist.get_world_size()\n"
        "dist.all_gather_object(all_, mine)\n"
        "assert sorted(sum(all_, [])) == list(range(23)), all_\n"
        "print('shared')\n"
    )
    (tmp_path / "stream.py").write_text(program)
    assert run(launcher, tmp_path, "stream.py").count("shared") == 2
