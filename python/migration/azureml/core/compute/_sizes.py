"""Sizes of nodes by the names that scripts use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Cores, GiB and GPUs of a node."""

    name: str
    cores: int
    memory: int
    gpus: int = 0


SIZES = {
    s.name.lower(): s
    for s in (
        Size("Standard_D2_v2", 2, 7),
        Size("Standard_D3_v2", 4, 14),
        Size("Standard_DS3_v2", 4, 14),
        Size("Standard_D12_v2", 4, 28),
        Size("Standard_NC6", 6, 56, 1),
        Size("Standard_NC12", 12, 112, 2),
        Size("Standard_NC24", 24, 224, 4),
    )
}
