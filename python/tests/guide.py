"""The diffs of docs/migrate.md as the scripts that they lead from and to."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "migrate.md"


def scripts(heading: str, number: int = 0) -> tuple[str, str]:
    """What the number-th diff under a heading changes, and what it becomes."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", GUIDE.read_text(encoding="utf-8"), re.S | re.M)
    assert section, heading
    lines = re.findall(r"```diff\n(.*?)```", section[1], re.S)[number].splitlines(True)
    before = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
    after = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
    return before, after
