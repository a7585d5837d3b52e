"""Where the folder that goes along with a job came from, as far as git knows: what the program `hora` notes of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Collection

MOST_DIFF = 1 << 20  # bytes of what is not committed that go along beside the files themselves
MOST_DIFF_FILES = 1000
MOST_CHANGED = 20  # how many changed files are named


def source(folder: str, files: Collection[str]) -> tuple[dict[str, str], bytes]:
    """The folder, its commit, the files that changed since and the hash of their diff; and that diff, of the files that
    go along."""
    noted = {"folder": folder}
    commit, _, below = _git(folder, "rev-parse", "HEAD", "--show-prefix").partition(b"\n")
    if not commit:
        return noted, b""
    noted["commit"] = commit.decode()
    status = _git(folder, "status", "--porcelain", "-z", "--no-renames", ".")
    changed = [
        row[len(b"XY ") :].removeprefix(below.removesuffix(b"\n")).decode(errors="replace")
        for row in status.split(b"\0")
        if row
    ]
    if len(changed) > MOST_CHANGED:
        changed[MOST_CHANGED:] = [f"{len(changed) - MOST_CHANGED} more"]
    if changed:
        noted["changed"] = ", ".join(changed)
    diff = _uncommitted(folder, files)
    if diff:
        noted["diff"] = hashlib.sha256(diff).hexdigest()
    return noted, diff


def _uncommitted(folder: str, files: Collection[str]) -> bytes:
    """What git shows of changes to the files that go along, and to no others; nothing where it is long."""
    diff = ("diff", "--relative", "--no-renames")
    named = map(os.fsdecode, _git(folder, *diff, "--name-only", "-z", "HEAD", "--", ".").split(b"\0"))
    goes = [":(literal)" + name for name in named if name in files]
    if not 0 < len(goes) <= MOST_DIFF_FILES:
        return b""
    text = _git(folder, *diff, "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--", *goes)
    return text if len(text) <= MOST_DIFF else b""


def _git(folder: str, *arguments: str) -> bytes:
    """What git answers; nothing where it does not know the folder, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return b""
    return done.stdout if done.returncode == 0 else b""
