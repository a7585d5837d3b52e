"""What tests of every folder need: where the tree is, and programs under `hora run` with frameworks that `make deps` installs beside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
# A tree that has its library (build.py --library-only) is tested as it stands; else what is installed is.
TREE = [str(PYTHON), str(PYTHON / "compat")] if (PYTHON / "hora" / "libhora.so").exists() else []


def folder(name: str) -> Path:
    """Where a framework lies."""
    said = subprocess.run(["sh", "tools/deps.sh", "path", name], cwd=ROOT, capture_output=True, text=True, check=True)
    path = Path(said.stdout.strip())
    assert (path / ".complete").exists(), f"{name} is not installed; run make deps"
    return path


def runner(launcher: Path, tmp_path: Path, folders: list[Path], settings: dict[str, str]):
    """run(program, flags…) runs a program's text and gives how it ended, which must be with `code`."""

    def run(program: str, *flags: str, args: tuple[str, ...] = (), code: int = 0, timeout: float = 150, **env: str):
        path = tmp_path / "program.py"
        path.write_text(program)
        # The first import of a framework takes its time beside other tests.
        given = os.environ | {"HORA_START_TIMEOUT": "120", **settings, **env}
        given["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH", "")]), *map(str, folders)])
        command = [launcher, "run", *(flags or ("-np", "2")), sys.executable, path, *args]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
