"""The launcher's old entry points; the launcher itself is the program `hora`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

__all__ = ["main", "program", "run_commandline"]


def program() -> str:
    """Where the program hora lies: beside this Python, else on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "hora")
    found = beside if os.access(beside, os.X_OK) else shutil.which("hora")
    if not found:
        raise FileNotFoundError(
            "horovodrun: the program hora is not beside Python nor on PATH: reinstall its wheel: `pip install --force-reinstall --no-index --find-links dist hora`"
        )
    return found


def run_commandline(argv: list[str] | None = None) -> int:
    """What `horovodrun …` does; returns its exit code."""
    return subprocess.call([program(), "horovodrun", *(sys.argv[1:] if argv is None else argv)])


def main() -> None:
    sys.exit(run_commandline())


if __name__ == "__main__":
    main()
