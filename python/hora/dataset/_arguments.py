"""What open() is told, in the library's words."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _lib
from ..errors import ArgumentError

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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
        raise ArgumentError(f"open data: {columns if isinstance(columns, str) else ragged!r} is one text; give a list of names")
    if columns is None:
        if ragged:
            raise ArgumentError("open data: ragged= names lists among those of columns=; name the columns too")
        return []
    pairs = columns.items() if isinstance(columns, Mapping) else [(c, c) for c in columns]
    unknown = set(ragged) - {n for n, _ in pairs}
    if unknown:
        raise ArgumentError(f"open data: ragged= names {sorted(unknown)[0]!r}, which is not among the arrays that are read")
    return [{"name": n, "columns": [c] if isinstance(c, str) else list(c), "ragged": n in ragged} for n, c in pairs]


def size_of(memory: int | str) -> int:
    if isinstance(memory, str):
        text = memory.strip().upper().removesuffix("IB").removesuffix("B")
        try:
            return int(float(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1))
        except ValueError:
            raise ArgumentError(f'open data: memory={memory!r}; give a number of bytes, or a text such as "512MiB"') from None
    return int(memory)


def keys() -> dict[str, str]:
    """What storage needs of the environment: a C library does not see what Python has put there."""
    begins = ("AWS_", "HORA_S3_", "HORA_ADLS_", "HORA_GCS_", "HORA_DATA_", "AZURE_", "GOOGLE_", "GCS_", "STORAGE_EMULATOR_")
    return {k: v for k, v in os.environ.items() if k.startswith(begins) or k in ("HOME", "XDG_CACHE_HOME")}


def threads_of(size: int) -> int:
    """Threads that decode: at most four, and one core is left to the training."""
    local = (_lib.world or {}).get("local_size") or min(size, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
    return min(4, max(1, len(os.sched_getaffinity(0)) // max(1, local) - 1))
