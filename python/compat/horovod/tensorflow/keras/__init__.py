"""`import horovod.tensorflow.keras as hvd`, on hora: tf.keras, which is Keras 3, or Keras 2 with
TF_USE_LEGACY_KERAS=1."""

from __future__ import annotations

import sys

import tensorflow as tf

from ..._keras import (
    DistributedOptimizer,
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from ..._keras import keras as _chosen
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

_ours = sys.modules[tf.keras.layers.Layer.__module__.partition(".")[0]]  # tf.keras itself may have no version
if hasattr(_ours, "ops") != hasattr(_chosen, "ops"):  # which Keras 3 has and Keras 2 has not
    raise ImportError(
        f"horovod.tensorflow.keras: tf.keras is Keras {_ours.__version__} here, and `import keras` gives {_chosen.__version__}; set "
        "TF_USE_LEGACY_KERAS=1 where the script is for Keras 2, else unset it",
        name="horovod.tensorflow.keras",
    )

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "ProcessSet", "Sum", "add_process_set", "allgather",
    "allreduce",
    "broadcast", "broadcast_global_variables", "callbacks", "ccl_built", "cross_rank", "cross_size", "cuda_built",
    "ddl_built",
    "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized",
    "load_model",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reducescatter",
    "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip
