"""In a tree that has its library the compatibility packages are found beside hora; else the installed ones are
tested."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2]
if (PYTHON / "hora" / "libhora.so").exists():
    sys.path.insert(0, str(PYTHON / "compat"))
    os.environ["PYTHONPATH"] = f"{PYTHON / 'compat'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
