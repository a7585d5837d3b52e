"""TensorFlow: collectives as operations of the graph, and a tape that averages gradients.

>>> import hora.tensorflow
>>> hora.init()
>>> hora.tensorflow.broadcast_variables(model.variables)
>>> @tf.function
... def step(x, y):
...     with tf.GradientTape() as tape:
...         loss = loss_of(model(x), y)
...     tape = hora.tensorflow.DistributedGradientTape(tape)
...     gradients = tape.gradient(loss, model.trainable_variables)
...     optimizer.apply_gradients(zip(gradients, model.trainable_variables))

The operations are stateful, so a tf.function runs them one at a time and in program order, on every rank alike. They run on the
processor; TensorFlow copies tensors of a GPU there and back.
"""

from typing import Any

from .. import init, is_initialized, shutdown
from ..objects import allgather_object, broadcast_object
from ._calls import allgather, allreduce, alltoall, broadcast, broadcast_variables, join, rank, reducescatter, size
from .compression import Compression
from .elastic import TensorFlowState
from .tape import DistributedGradientTape


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # found when it is asked for: Keras takes its time to import
        from .normalization import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module 'hora.tensorflow' has no attribute {name!r}")


__all__ = [
    "Compression",
    "DistributedGradientTape",
    "SyncBatchNormalization",
    "TensorFlowState",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "init",
    "is_initialized",
    "join",
    "rank",
    "reducescatter",
    "shutdown",
    "size",
]
