"""Keras 3 on TensorFlow, JAX or PyTorch.

>>> import keras, hora.keras
>>> hora.init()
>>> model.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.01 * hora.size())), loss="mse")
>>> model.fit(x, y, callbacks=[hora.keras.callbacks.BroadcastGlobalVariables(), hora.keras.callbacks.MetricAverage()],
...           verbose=int(hora.rank() == 0))
"""

import keras

from ..errors import VersionError

if int(keras.__version__.split(".")[0]) < 3:
    raise VersionError(f"import hora.keras: Keras {keras.__version__} is installed; hora.keras needs Keras 3 (pip install 'keras>=3')")

from .. import init, is_initialized, shutdown
from . import callbacks
from ._backend import broadcast_variables
from .elastic import KerasState
from .optimizer import DistributedOptimizer, load_model

__all__ = ["DistributedOptimizer", "KerasState", "broadcast_variables", "callbacks", "init", "is_initialized", "load_model", "shutdown"]
