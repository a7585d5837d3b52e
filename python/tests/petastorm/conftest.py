"""Where the tests of Petastorm's names find pyarrow, pandas and Pillow, and the names themselves: in folders of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session", autouse=True)
def arrow():
    """The folder with pyarrow, which is importable from now on."""
    folder = subprocess.run(
        ["sh", "tools/deps.sh", "path", "data"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()  # fmt: skip
    for path in (folder, str(ROOT / "python/migration")):
        if path not in sys.path:
            sys.path.append(path)
    return folder
