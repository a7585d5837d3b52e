"""`import horovod.tensorflow.keras as hvd`, on hora: tf.keras, which is Keras 3."""

from __future__ import annotations

import tensorflow as tf

if not tf.keras.__version__.startswith("3."):
    raise ImportError(
        f"horovod.tensorflow.keras: tf.keras is Keras {tf.keras.__version__} here, which is not there yet; unset TF_USE_LEGACY_KERAS",
        name="horovod.tensorflow.keras",
    )

from ..._keras import DistributedOptimizer, allgather, allreduce, broadcast, broadcast_global_variables, load_model, reducescatter
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
