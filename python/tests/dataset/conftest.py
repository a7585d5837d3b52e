"""Where the tests of data find pyarrow: in a folder of its own (tools/deps.sh), so that nothing else depends on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def arrow():
    """The folder with pyarrow, which is importable from now on."""
    folder = subprocess.run(
        ["sh", "tools/deps.sh", "path", "data"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()  # fmt: skip
    if folder not in sys.path:
        sys.path.append(folder)
    return folder
