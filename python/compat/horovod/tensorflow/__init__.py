"""`import horovod.tensorflow as hvd`, on hora."""

from __future__ import annotations

from typing import Any

from ..common.util import check_extension, extension_available

if not extension_available("tensorflow"):
    check_extension("horovod.tensorflow")

from . import elastic
from ._optimizer import DistributedOptimizer
from ._reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from ._tapes import DistributedGradientTape, PartialDistributedGradientTape
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables
from .mpi_ops import *  # noqa: F403  the surface is one flat namespace
from .mpi_ops import _allreduce, _basics, _grouped_allreduce
from .util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
    "refs_to_vars",
    "vars_to_refs",
]

_ = (_allreduce, _basics, _cache, _executing_eagerly, _grouped_allreduce, _make_subgraph)

_GONE = "graphs and sessions of TensorFlow 1 are not there yet; call hvd.broadcast_variables(model.variables, root_rank=0)"


def broadcast_global_variables(root_rank: int) -> Any:
    """Of TensorFlow 1's graphs, which are refused."""
    raise RuntimeError(f"hvd.broadcast_global_variables() does not support eager execution: {_GONE}")


class BroadcastGlobalVariablesHook:
    """Of TensorFlow 1's sessions, which are refused."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        raise RuntimeError(f"BroadcastGlobalVariablesHook: {_GONE}")


def __getattr__(name: str) -> Any:
    if name in ("SyncBatchNormalization", "LocalGradientAggregationHelper"):
        raise AttributeError(f"horovod.tensorflow.{name} is not there yet; docs/horovod.md lists every name")
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r}")
