"""DistributedOptimizer with Horovod's arguments and checks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import hora
from hora.torch.optimizer import DistributedOptimizer as _distribute

from ..common.basics import OPERATORS, Adasum, Average
from ..common.process_sets import ProcessSet, global_process_set
from ._handles import group_of, internal
from .compression import Compression

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.nn.Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wrap an optimizer so that step() uses the gradients reduced over all ranks (of the process set).

    It stays an instance of the wrapped class, with the same class name.
    """
    if op not in OPERATORS:
        raise ValueError(f"Unknown reduction operation {op}: use hvd.Average, hvd.Sum or hvd.Adasum")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if groups is not None and not (isinstance(groups, list) or (isinstance(groups, int) and groups >= 0)):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor")
    if op == Adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet: use hvd.global_process_set")
    wrapped = _distribute(
        optimizer, named_parameters, compression, backward_passes_per_step, OPERATORS[op], gradient_predivide_factor,
        num_groups, groups, sparse_as_dense, _members(process_set),
    )  # fmt: skip
    _dress(process_set, wrapped)
    return wrapped


class _Alone:
    """The group of a rank outside the process set: its optimizer is a plain local one."""

    size, rank, handle = 1, 0, 0

    def __init__(self) -> None:
        self.ranks, self.tag = (hora.rank(),), "horovod/alone"


def _members(process_set: ProcessSet) -> Any:
    return _Alone() if process_set.included() is False else group_of(process_set)


def _dress(process_set: ProcessSet, wrapped: Any) -> None:
    """What Horovod's optimizer has besides."""
    wrapped.process_set = process_set
    wrapped._parameter_names = wrapped._names
    wrapped._hora_translate = _translate
    wrapped._hora_regroup = lambda _: _members(process_set)
    wrapped._hora_dress = functools.partial(_dress, process_set)


def _translate(error: BaseException) -> BaseException:
    return internal(error) if isinstance(error, hora.HoraError) else error
