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

The operations are stateful, so a tf.function runs them one at a time and in program order, on every rank alike. They
run on the processor; TensorFlow copies tensors of a GPU there and back.
"""

from typing import Any

from .. import _framework
from . import _needs

_framework.need("hora.tensorflow", "tensorflow", (2, 12), "TensorFlow", "tensorflow", _needs.lacks)

from .. import init, is_initialized, shutdown  # noqa: E402
from ..objects import allgather_object, broadcast_object  # noqa: E402
from ._calls import (  # noqa: E402
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_variables,
    join,
    rank,
    reducescatter,
    size,
)
from .compression import Compression  # noqa: E402
from .data import shard  # noqa: E402
from .elastic import TensorFlowState  # noqa: E402
from .optimizer import DistributedOptimizer  # noqa: E402
from .tape import DistributedGradientTape  # noqa: E402


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # found when it is asked for: Keras takes its time to import
        from .normalization import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module 'hora.tensorflow' has no attribute {name!r}")


__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
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
    "shard",
    "shutdown",
    "size",
]
