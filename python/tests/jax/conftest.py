"""Ranks with the JAX that `make deps` installs beside the tests' environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def jax_folder() -> Path:
    folder = Path(
        subprocess.run(["sh", "tools/deps.sh", "path", "jax"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    )
    assert (folder / ".complete").exists(), "JAX is not installed; run make deps"
    return folder


@pytest.fixture
def run(jax_folder, launcher, tmp_path):
    """run(program, flags…) runs a program's text under `hora run` with JAX on the CPU; what it printed."""

    def go(program: str, *flags: str, args: tuple[str, ...] = (), code: int = 0, timeout: float = 150, **env: str):
        path = tmp_path / "program.py"
        path.write_text(program)
        return start(launcher, jax_folder, path, flags, args, code, timeout, env)

    return go


def start(launcher, jax_folder, path, flags, args, code, timeout, env):
    # The first import of JAX compiles much, and takes its time beside other tests.
    given = os.environ | {"HORA_START_TIMEOUT": "120", "JAX_PLATFORMS": "cpu", **env}
    given["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH", "")]), str(jax_folder)])
    done = subprocess.run(
        [launcher, "run", *(flags or ("-np", "2")), sys.executable, path, *args], env=given, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
