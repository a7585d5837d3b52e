"""`import horovod.mxnet as hvd`, on hora: MXNet 1.9, whose last release this is, with arrays of the processor."""

from __future__ import annotations

try:
    import mxnet  # noqa: F401  the reason is told here, not by a line inside
except ImportError as error:
    raise ImportError(
        f"horovod.mxnet needs MXNet: {error}; its last release is 1.9.1 (pip install mxnet==1.9.1 'numpy<1.24'). MXNet is retired upstream: "
        "horovod.torch is where a model can be moved to",
        name="mxnet",
    ) from error

from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_parameters
from .mpi_ops import *  # noqa: F403  the surface is one flat namespace
from .optimizer import DistributedOptimizer, DistributedTrainer

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
]
