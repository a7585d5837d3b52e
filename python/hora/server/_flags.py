"""What a job is submitted with: the names of the server's document, and those of the flags of `hora submit`."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from .._settings import FLAGS, Settings
from ._keys import keys


class Asked(Settings, total=False):
    """The arguments of Client.submit beside those that it names itself."""

    min_np: int
    max_np: int
    nodes: int
    per_node: int
    pool: str
    node: str
    fresh: bool
    memory: int | str
    priority: int
    preemptible: bool
    time_limit: float | str
    retries: int
    project: str
    held: bool
    whole: bool
    no_code: bool
    secret: str | Iterable[str]
    secrets: str | Iterable[str]
    credentials: Mapping[str, str]
    storage_credentials: bool


# As the server's document has them.
_QUEUE = (
    "nodes", "per_node", "pool", "node", "fresh", "memory", "priority", "preemptible", "time_limit", "retries", "project",
    "held", "whole", "secrets", "credentials",
)  # fmt: skip
_JOB = ("min_np", "max_np", *FLAGS)
_OWN = ("np", "folder", "env", "pip", "env_file", "environment", "tags", "spec")
_INSTEAD = {
    "follow": "for line in server.logs(job.id, follow=True) shows what it writes, and server.wait(job.id) its end",
    "file": "read the file and give its fields as spec={...}",
    "code": "give the folder as folder=...",
    "source": "give the folder as folder=...",
}
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {f"{u}ib": n for u, n in _SIZES.items() if u not in ("", "b")}
_SIZES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def words(command: Sequence[str]) -> list[str]:
    """A command's words; a text is refused, whose letters would be taken for them."""
    if isinstance(command, (str, bytes)):
        raise TypeError(
            f'a command is a list of words, and {command!r} is one text: write it as ["python", "train.py"], '
            "or give shlex.split(...) of it"
        )
    return [os.fspath(c) if isinstance(c, os.PathLike) else str(c) for c in command]


def names(given: str | Iterable[str]) -> list[str]:
    """One name or several: a text is one, and no list of its letters."""
    return [given] if isinstance(given, str) else [str(x) for x in given]


def job_number(id: int) -> int:
    """A job's number."""
    try:
        n = int(id)
    except (TypeError, ValueError, OverflowError):
        n = 0
    if n < 1 or isinstance(id, (bool, float)):
        raise ValueError(f"{id!r} is no number of a job: give job.id, as submit and jobs() answer it")
    return n


def size(given: int | str) -> int:
    """Bytes: a number, or a text as 8GiB; 0 for none. A number that no process begins in lacks its unit."""
    n, least = math.nan, 1 << 20
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        n = float(given)
    elif isinstance(given, str):
        found = re.fullmatch(r"\s*([0-9.]+(?:e\+?[0-9]+)?)\s*([a-z]*)\s*", given.lower())
        with contextlib.suppress(KeyError, ValueError):
            n, least = (float(found[1]) * _SIZES[found[2]], 1 if found[2] else least) if found else (n, least)
    if n == 0 or least <= n < 1 << 60:
        return int(n)
    raise ValueError(f"memory={given!r} is no size: give bytes, or a text as '500MiB' or '8GiB'")


def seconds(given: float | str) -> float:
    """Seconds: a number, or a text as 90m, 4h or 1h30m."""
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given >= 0 and math.isfinite(given):
        return float(given)
    if isinstance(given, str):
        text = given.strip().lower()
        if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text):
            return float(text)
        parts = re.findall(r"([0-9]+(?:\.[0-9]*)?)(ms|s|m|h|d)", text)
        if parts and "".join(n + unit for n, unit in parts) == text:
            return float(sum(float(n) * _TIMES[unit] for n, unit in parts))
    raise ValueError(f"time_limit={given!r} is no time: give seconds, or a text as '90m' or '4h'")


def sort(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is a job's own among these arguments, and what its queue's, by the document's names."""
    job: dict[str, Any] = {}
    queue: dict[str, Any] = {}
    secrets: list[str] = []
    for name, value in given.items():
        if name in _INSTEAD:
            raise TypeError(f"submit has no argument {name}: {_INSTEAD[name]}")
        if name not in (*_QUEUE, *_JOB, "secret", "storage_credentials", "no_code"):
            known = [*_OWN, *_QUEUE, *_JOB, "secret", "storage_credentials", "no_code"]
            near = get_close_matches(name.replace("-", "_"), known, 1)
            raise TypeError(
                f"submit has no argument {name}: "
                + (f"did you mean {near[0]}?" if near else "docs/server.md has them, and spec={...} takes a job file's")
            )
        if value is None:
            continue
        if name in ("secret", "secrets"):
            secrets += [s for s in names(value) if s not in secrets]
        elif name == "storage_credentials":
            if value:
                queue["credentials"] = {**keys(os.environ), **queue.get("credentials", {})}
        elif name == "credentials":
            queue["credentials"] = {**queue.get("credentials", {}), **value}
        elif name in _JOB:
            job[name] = list(value) if isinstance(value, tuple) else value
        elif name != "no_code":
            queue[name] = {"memory": size, "time_limit": seconds}.get(name, lambda v: v)(value)
    if secrets:
        queue["secrets"] = secrets
    return job, queue
