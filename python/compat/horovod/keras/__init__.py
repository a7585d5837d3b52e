"""`import horovod.keras as hvd`, on hora: Keras 3 on whichever backend it runs, or Keras 2."""

from __future__ import annotations

from typing import Any

from .._keras import (
    Compression,
    DistributedOptimizer,
    _basics,
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from ..common.basics import Adasum, Average, Sum
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from . import callbacks, elastic

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "ProcessSet", "Sum",
    "add_process_set",
    "allgather", "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "ccl_built", "cross_rank",
    "cross_size",
    "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous",
    "is_initialized", "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built",
    "rank", "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip

init, shutdown, is_initialized = _basics.init, _basics.shutdown, _basics.is_initialized
start_timeline, stop_timeline = _basics.start_timeline, _basics.stop_timeline
size, local_size, cross_size = _basics.size, _basics.local_size, _basics.cross_size
rank, local_rank, cross_rank = _basics.rank, _basics.local_rank, _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported, mpi_enabled, mpi_built = _basics.mpi_threads_supported, _basics.mpi_enabled, _basics.mpi_built
gloo_enabled, gloo_built = _basics.gloo_enabled, _basics.gloo_built
nccl_built, ddl_built, ccl_built = _basics.nccl_built, _basics.ddl_built, _basics.ccl_built
cuda_built, rocm_built = _basics.cuda_built, _basics.rocm_built


def PartialDistributedOptimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: Any = Average, groups: Any = None,
    process_set: ProcessSet = global_process_set, local_layers: Any = None, scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """DistributedOptimizer but for the variables of `local_layers`, whose gradients stay each rank's own."""
    layers = (
        []
        if local_layers is None
        else list(local_layers)
        if isinstance(local_layers, (list, tuple, set))
        else [local_layers]
    )
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError(
            "local_layers holds something that is no layer: give Keras layers, as in local_layers=[model.layers[0]]"
        )
    made = DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        groups=groups,
        process_set=process_set, scale_local_gradients=scale_local_gradients,
    )  # fmt: skip
    for layer in layers:
        for v in layer.trainable_weights:
            made.register_local_var(v)
    return made
