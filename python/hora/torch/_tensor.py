"""What hora needs to know of a torch tensor: its element type's number, its GPU, and flat memory to work on."""

from __future__ import annotations

from typing import Any

import torch

from ..group import DTYPES, Op

__all__ = ["CODES", "REDUCE_OPS", "code", "dense", "device_of", "flatten"]

# torch's element types by their number in the C ABI.
CODES: dict[torch.dtype, int] = {
    getattr(torch, name): number
    for name, number in DTYPES.items()
    if isinstance(getattr(torch, name, None), torch.dtype)
}

_R = torch.distributed.ReduceOp
REDUCE_OPS = {
    _R.SUM: Op.SUM,
    _R.AVG: Op.AVERAGE,
    _R.PRODUCT: Op.PRODUCT,
    _R.MIN: Op.MIN,
    _R.MAX: Op.MAX,
    _R.BAND: Op.AND,
    _R.BOR: Op.OR,
    _R.BXOR: Op.XOR,
}


def code(t: torch.Tensor) -> int:
    """The number of t's element type."""
    try:
        return CODES[t.dtype]
    except KeyError:
        raise TypeError(
            f"tensor of type {t.dtype}: hora has no such element type; convert it first, for example with .float()"
        ) from None


def device_of(keep: Any) -> int | None:
    """The GPU of the first tensor in keep (tensors, nested in tuples and lists), None for host memory."""
    if isinstance(keep, torch.Tensor):
        return keep.device.index if keep.is_cuda else None
    if isinstance(keep, (tuple, list)):
        for k in keep:
            device = device_of(k)
            if device is not None:
                return device
    return None


def dense(t: torch.Tensor, verb: str) -> torch.Tensor:
    """t without autograd history and contiguous, on the host or on a GPU; a copy where it was not contiguous."""
    if t.is_sparse:
        raise ValueError(f"{verb}: sparse tensors go through all_reduce only; call .to_dense() first")
    if t.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f'{verb}: tensor is on {t.device}; backend "hora" takes tensors of the host and of CUDA devices'
        )
    t = t.detach()
    return t if t.is_contiguous() else t.contiguous()


def flatten(tensors: list[torch.Tensor], verb: str) -> torch.Tensor:
    """One flat copy of tensors of one element type, in order."""
    if len({t.dtype for t in tensors}) > 1:
        raise ValueError(f"{verb}: tensors of different types {sorted({str(t.dtype) for t in tensors})} in one list")
    return torch.cat([dense(t, verb).reshape(-1) for t in tensors]) if tensors else torch.empty(0)
