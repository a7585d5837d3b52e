"""Keras 3 on TensorFlow, JAX or PyTorch, and Keras 2 (of TensorFlow up to 2.15, or tf_keras with
TF_USE_LEGACY_KERAS=1).

>>> import keras, hora.keras
>>> hora.init()
>>> model.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.01 * hora.size())), loss="mse")
>>> model.fit(x, y, callbacks=[hora.keras.callbacks.BroadcastGlobalVariables(), hora.keras.callbacks.MetricAverage()],
...           verbose=int(hora.rank() == 0))
"""

from . import which  # noqa: I001  first: it says which Keras is missing, or too old

from .. import init, is_initialized, shutdown
from . import callbacks
from ._backend import broadcast_variables
from .data import shard
from .elastic import KerasState
from .optimizer import DistributedOptimizer, load_model

__all__ = [
    "DistributedOptimizer",
    "KerasState",
    "broadcast_variables",
    "callbacks",
    "init",
    "is_initialized",
    "load_model",
    "shard",
    "shutdown",
    "which",
]
