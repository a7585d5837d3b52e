"""`import horovod.tensorflow as hvd`, on hora."""

from __future__ import annotations

import importlib
from typing import Any

from ..common.util import check_extension, extension_available, gpu_available

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
from .sessions import BroadcastGlobalVariablesHook, broadcast_global_variables
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
    "gpu_available",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
    "refs_to_vars",
    "vars_to_refs",
]

_ = (_allreduce, _basics, _cache, _executing_eagerly, _grouped_allreduce, _make_subgraph)

_LATER = {
    "LocalGradientAggregationHelper": "gradient_aggregation",
    "LocalGradientAggregationHelperEager": "gradient_aggregation_eager",
    "SyncBatchNormalization": "sync_batch_norm",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:  # found when they are asked for: Keras takes its time to import
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r}")
