"""What open() is told, in the library's words."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import _lib
from ..errors import ArgumentError

_RUNS = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def place() -> tuple[int, int]:
    """This process's rank and the number of ranks: hora's, torch.distributed's, or those of a process alone."""
    world = _lib.world
    if world:
        return world["rank"], world["size"]
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    for name in ("HORA_SIZE", "WORLD_SIZE"):
        if os.environ.get(name, "1") not in ("", "1"):
            raise ArgumentError(
                f"open data: {name} is {os.environ[name]} and this process has not joined the others: call hora.init() "
                "(or init_process_group) first, or give rank= and size="
            )
    return 0, 1


def fields(columns: Any, ragged: Sequence[str]) -> list[dict[str, Any]]:
    if isinstance(columns, str) or isinstance(ragged, str):
        raise ArgumentError(
            f"open data: {columns if isinstance(columns, str) else ragged!r} is one text; give a list of names"
        )
    if columns is None:
        return []
    if not columns:
        raise ArgumentError(f"open data: columns={columns!r} names none; leave columns= out to read all of them")
    pairs = columns.items() if isinstance(columns, Mapping) else [(c, c) for c in columns]
    unknown = set(ragged) - {n for n, _ in pairs}
    if unknown:
        raise ArgumentError(
            f"open data: ragged= names {sorted(unknown)[0]!r}, which is not among the arrays that are read"
        )
    return [
        {
            "name": n,
            "columns": [c] if isinstance(c, str) else list(c),
            "ragged": n in ragged,
            "matrix": not isinstance(c, str),
        }
        for n, c in pairs
    ]


def whole(name: str, number: Any, least: int | None = 0, do: str = "open data") -> int:
    """A whole number of Python's, which one of NumPy is made."""
    try:
        n = operator.index(number)
    except TypeError:
        raise ArgumentError(f"{do}: {name}={number!r}; give a whole number") from None
    if least is not None and n < least:
        raise ArgumentError(f"{do}: {name}={number!r}; give {least} or more")
    return n


def null_values(nulls: Mapping[str, Any] | None) -> dict[str, Any]:
    """nulls= in JSON's words: NaN is the library's "nan", and numbers of NumPy are Python's."""
    out = {}
    for name, value in (nulls or {}).items():
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, float) and not math.isfinite(plain):
            plain = "nan" if math.isnan(plain) else str(plain)
        if not isinstance(plain, (str, int, float)) and plain is not None:
            raise ArgumentError(
                f'open data: nulls={{{name!r}: {value!r}}}; use "nan", "mask", "error", a number, a text or a bool'
            )
        out[name] = plain
    return out


def size_of(memory: int | str) -> int:
    n: int | None = None
    if isinstance(memory, str):
        text = memory.strip().upper().removesuffix("IB").removesuffix("B")
        with contextlib.suppress(ValueError, OverflowError):
            n = int(float(text.rstrip("KMGT")) * _UNITS.get(text[-1:], 1))
    elif not isinstance(memory, bool):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            n = int(memory)
    if n is None or n < 1:
        raise ArgumentError(f'open data: memory={memory!r}; give a number of bytes, or a text such as "512MiB"')
    return min(n, 1 << 62)


def keys() -> dict[str, str]:
    """What storage needs of the environment: a C library does not see what Python has put there."""
    begins = (
        "AWS_",
        "HORA_S3_",
        "HORA_ADLS_",
        "HORA_GCS_",
        "HORA_DATA_",
        "AZURE_",
        "GOOGLE_",
        "GCS_",
        "STORAGE_EMULATOR_",
    )
    return {k: v for k, v in os.environ.items() if k.startswith(begins) or k in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}


def local() -> dict[str, Any]:
    """Which of the job's ranks on this host this is, of how many, and what tells the job from others there."""
    if _lib.world:
        rank, size = _lib.world["local_rank"], _lib.world["local_size"]
    else:
        rank, size = (
            int(os.environ.get(name, "") or default) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
        )
    of = ("HORA_JOB", "HORA_ADDR") if os.environ.get("HORA_ADDR") else _RUNS
    return {"local_rank": rank, "local_size": size, "job": json.dumps([os.environ.get(name, "") for name in of])}


def threads_of(size: int) -> int:
    """Threads that decode: at most four, and one core is left to the training."""
    local = (_lib.world or {}).get("local_size") or min(size, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
    return min(4, max(1, len(os.sched_getaffinity(0)) // max(1, local) - 1))
