"""What this package keeps between scripts of one user: named compute targets and environments of each workspace."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _base(variable: str, *below: str) -> Path:
    given = os.environ.get(variable)
    return (Path(given) if given else Path.home().joinpath(*below)) / "hora"


def data_folder(workspace: str) -> Path:
    """Where a workspace's datastores are."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in workspace).lstrip(".") or "_"
    return _base("XDG_DATA_HOME", ".local", "share") / "azureml" / safe


def _path() -> Path:
    return _base("XDG_CONFIG_HOME", ".config") / "azureml.json"


def _read() -> dict[str, Any]:
    try:
        found = json.loads(_path().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def kept(kind: str, server: str, workspace: str) -> dict[str, Any]:
    """What is kept of a kind (computes, environments), by name."""
    found = _read().get(server, {}).get(workspace, {}).get(kind, {})
    return dict(found) if isinstance(found, dict) else {}


@contextlib.contextmanager
def changing(kind: str, server: str, workspace: str) -> Iterator[dict[str, Any]]:
    """The same, to be changed: one script at a time."""
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = _read()
        part = whole.setdefault(server, {}).setdefault(workspace, {}).setdefault(kind, {})
        yield part
        new = path.with_suffix(".new")
        new.write_text(json.dumps(whole, indent=1))
        new.chmod(0o600)
        new.replace(path)
