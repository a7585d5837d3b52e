"""What every call checks before anything is sent, with Horovod's classes and first words."""

from __future__ import annotations

from typing import Any

import torch

import hora
from hora.group import DTYPES

from ..common import basics
from ..common.basics import Adasum, Average, Max, Min, Product, Sum
from ..common.process_sets import ProcessSet
from ..common.translate import root_in

__all__ = ["device_of", "dtype_code", "host", "operator", "root_in", "scatter_operator"]


_CODES = {
    getattr(torch, name): number
    for name, number in DTYPES.items()
    if isinstance(getattr(torch, name, None), torch.dtype)
}


def dtype_code(t: torch.Tensor) -> int:
    """The element type's number; ValueError for what cannot be sent, or memory with holes."""
    number = _CODES.get(t.dtype)
    if number is None:
        raise ValueError(f"Tensor type {t.type()} is not supported.")
    if not t.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return number


def device_of(t: torch.Tensor) -> int:
    """0 for the host, 1+i for accelerator i."""
    d = t.device
    return 0 if d.type == "cpu" else 1 + (d.index or 0)


def host(t: torch.Tensor) -> torch.Tensor:
    """t's values in host memory: t itself where they are there already."""
    t = t.detach()
    return t if t.device.type == "cpu" else t.cpu()


def operator(op: Any, average: Any, t: torch.Tensor, process_set: ProcessSet) -> hora.Op:
    """The operator that `average` and `op` ask for."""
    if op is None:
        op = Average if average is None or average else Sum
    elif average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    number = basics.OPERATORS.get(op)
    if number is None:
        raise ValueError(f"Unknown reduction operation {op}: use hvd.Average, Sum, Adasum, Min, Max or Product")
    if op == Adasum:
        if process_set.process_set_id != 0:
            raise NotImplementedError("Adasum does not support non-global process sets yet: use hvd.global_process_set")
        if t.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"Adasum works on floating-point tensors, not on {t.dtype}: convert it first")
    return number


class UnsupportedOperator(ValueError, RuntimeError):
    """An operator that this operation does not have. Horovod's engine found it, so scripts catch a RuntimeError."""


def scatter_operator(op: Any) -> hora.Op:
    """The operator of a reducescatter."""
    if op in (Average, Sum):
        return basics.OPERATORS[op]
    if op in (Adasum, Min, Max, Product):
        raise UnsupportedOperator(
            f"Reducescatter currently only supports Sum and Average, not {basics.OPERATOR_NAMES[op]}."
        )
    raise ValueError(f"Unknown reduction operation {op}: use hvd.Average or hvd.Sum")
