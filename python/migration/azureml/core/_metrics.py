"""What runs log beside numbers: lines of JSON that come back with outputs/, and how all of it is read again."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exceptions import UserErrorException

if TYPE_CHECKING:
    from hora.server import Client

HIDDEN = ".azureml/"  # below outputs/: what scripts did not write there themselves
_lock = threading.Lock()
_outside: dict[tuple[str, int], bytes] = {}  # what this program has logged to runs that are not its own


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, float):
        return value
    if hasattr(value, "tolist"):  # arrays and tensors
        return value.tolist()
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    try:
        return float(value)
    except (TypeError, ValueError) as e:
        raise UserErrorException(
            f"{type(value).__name__} cannot be logged: give numbers, texts, or lists of them"
        ) from e


def number(value: Any) -> float | None:
    """A value as one number; None where it is none."""
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def record(name: str, kind: str, value: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "value": value, "at": time.time_ns() // 1_000_000}


def append(outputs: Path, said: dict[str, Any]) -> None:
    """Writes a line where this process's lines are."""
    name = f"metrics-{os.environ.get('HORA_SERVER_ATTEMPT', '0')}-{os.environ.get('HORA_RANK', '0')}.jsonl"
    path = outputs / HIDDEN / name
    with _lock:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as f:
            f.write(json.dumps(said) + "\n")


OUTSIDE = HIDDEN + "metrics-outside.jsonl"


def append_outside(client: Client, job: int, said: dict[str, Any]) -> None:
    """The same from outside the run."""
    with _lock:
        key = (client.url, job)
        if key not in _outside:
            _outside[key] = b"".join(client.read(a) for a in client.artifacts(job) if a.path == OUTSIDE)
        _outside[key] += json.dumps(said).encode() + b"\n"
        client.upload(job, OUTSIDE, _outside[key])


def read(client: Client, job: int, name: str | None) -> dict[str, Any]:
    """All that was logged, by name: once as a value, several times as a list; rows and tables as dicts of lists."""
    said: list[tuple[int, int, str, str, Any]] = []
    for m in client.metrics(job, name):
        said += [(at, i, m.name, "value", value) for i, (_, at, value) in enumerate(m.points)]
    for a in client.artifacts(job):
        if a.path.startswith(HIDDEN + "metrics-") and a.path.endswith(".jsonl"):
            for i, line in enumerate(client.read(a).decode(errors="replace").splitlines()):
                try:
                    one = json.loads(line)
                    said.append((one["at"], i, one["name"], one["kind"], one["value"]))
                except (ValueError, KeyError, TypeError):
                    continue  # it was being written
    found: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for _, _, key, kind, value in sorted(said, key=lambda s: s[:2]):
        if name is None or key == name:
            _merge(found, counts, key, kind, value)
    return found


def _merge(found: dict[str, Any], counts: dict[str, int], key: str, kind: str, value: Any) -> None:
    n = counts[key] = counts.get(key, 0) + 1
    if n == 1:
        found[key] = value
    elif isinstance(value, dict) and isinstance(found[key], dict) and kind in ("row", "table"):
        for k, v in value.items():
            before = found[key].get(k, [])
            found[key][k] = (before if isinstance(before, list) else [before]) + (v if isinstance(v, list) else [v])
    elif kind == "list":
        found[key] = (found[key] if isinstance(found[key], list) else [found[key]]) + list(value)
    elif n == 2 and not (isinstance(found[key], list) and kind != "value"):
        found[key] = [found[key], value]
    else:
        found[key].append(value)
