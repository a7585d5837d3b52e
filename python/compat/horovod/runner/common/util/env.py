"""Rank and size from the environment, whoever started the process."""

from __future__ import annotations

import os

__all__ = ["get_env_rank_and_size"]

_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("HORA_RANK", "HORA_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """(rank, size) as the launcher set them; (0, 1) without one."""
    for rank, size in _PAIRS:
        r, s = os.environ.get(rank), os.environ.get(size)
        if r is not None and s is not None:
            return int(r), int(s)
        if r is not None or s is not None:
            raise RuntimeError(
                f"environment has {rank}={r} but {size}={s}: the launcher sets both; set both or neither"
            )
    return 0, 1
