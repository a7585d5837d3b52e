"""`hvd.elastic`: run, TorchState and ElasticSampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...common.elastic import run_fn
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a state.

    >>> @hvd.elastic.run
    ... def train(state): ...
    """
    return run_fn(func, _reset)


def _reset() -> None:
    from ..mpi_ops import _basics

    _basics.rejoin()
