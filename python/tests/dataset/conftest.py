"""Where the tests of data find pyarrow: in a folder of its own (tools/deps.sh), so that nothing else depends on it."""

from __future__ import annotations

import os
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


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    """A cache of the tests' own."""
    before = os.environ.get("HORA_DATA_CACHE")
    os.environ["HORA_DATA_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield os.environ["HORA_DATA_CACHE"]
    os.environ.pop("HORA_DATA_CACHE")
    if before is not None:
        os.environ["HORA_DATA_CACHE"] = before
