"""`import horovod.tensorflow.keras as hvd`, on hora: tf.keras, which is Keras 3."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

if not tf.keras.__version__.startswith("3."):
    raise ImportError(
        f"horovod.tensorflow.keras: tf.keras is Keras {tf.keras.__version__} here, which is not there yet; unset TF_USE_LEGACY_KERAS",
        name="horovod.tensorflow.keras",
    )

from ..._keras import allgather, allreduce, broadcast, broadcast_global_variables, distribute, reducescatter
from ..._keras import load_model as _load_model
from ..compression import Compression
from ..mpi_ops import (
    Adasum,
    Average,
    ProcessSet,
    Sum,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from . import callbacks, elastic

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "ProcessSet", "Sum", "add_process_set", "allgather", "allreduce",
    "broadcast", "broadcast_global_variables", "callbacks", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized", "load_model",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "reducescatter",
    "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: Any = Average, backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Any = None, process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A Keras optimizer with its gradients reduced over all ranks (of the process set), in one call a step.

    It keeps the class name and configuration of the one it is made of: saved models load without Horovod. The device and group
    arguments are of no effect: operations run on the processor, and one call has all gradients.
    """
    return distribute(
        optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op, backward_passes_per_step,
        average_aggregated_gradients, num_groups, groups, process_set, scale_local_gradients,
    )  # fmt: skip


def load_model(
    filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, compression: Any = Compression.none, legacy_opts: bool = False
) -> Any:
    """keras.models.load_model, with the saved optimizer made distributed."""
    return _load_model(DistributedOptimizer, filepath, custom_optimizers, custom_objects, compression)
