"""In the tree, the compatibility packages are found beside hora."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMPAT = Path(__file__).resolve().parents[2] / "compat"
sys.path.insert(0, str(COMPAT))
os.environ["PYTHONPATH"] = f"{COMPAT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
