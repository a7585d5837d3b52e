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
        Size("Standard_D4_v2", 8, 28),
        Size("Standard_D12_v2", 4, 28),
        Size("Standard_DS2_v2", 2, 7),
        Size("Standard_DS3_v2", 4, 14),
        Size("Standard_DS4_v2", 8, 28),
        Size("Standard_DS11_v2", 2, 14),
        Size("Standard_DS12_v2", 4, 28),
        Size("Standard_F2s_v2", 2, 4),
        Size("Standard_F4s_v2", 4, 8),
        Size("Standard_NC6", 6, 56, 1),
        Size("Standard_NC12", 12, 112, 2),
        Size("Standard_NC24", 24, 224, 4),
        Size("Standard_NC24r", 24, 224, 4),
        Size("Standard_NC6s_v2", 6, 112, 1),
        Size("Standard_NC12s_v2", 12, 224, 2),
        Size("Standard_NC24s_v2", 24, 448, 4),
        Size("Standard_NC6s_v3", 6, 112, 1),
        Size("Standard_NC12s_v3", 12, 224, 2),
        Size("Standard_NC24s_v3", 24, 448, 4),
        Size("Standard_NC24rs_v3", 24, 448, 4),
        Size("Standard_NC4as_T4_v3", 4, 28, 1),
        Size("Standard_ND40rs_v2", 40, 672, 8),
        Size("Standard_NV6", 6, 56, 1),
        Size("Standard_NV12", 12, 112, 2),
        Size("Standard_NV24", 24, 224, 4),
    )
}
