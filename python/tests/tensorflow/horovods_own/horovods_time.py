"""A plugin of pytest for Horovod's own tests, which are of 2023: what their time had and today's has not."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
import unittest.mock

import numpy as np

if importlib.util.find_spec("mock") is None:  # Python's own since 3.3
    _mock = sys.modules["mock"] = types.ModuleType("mock")
    _mock.__dict__.update(vars(unittest.mock), version_info=(5,), __name__="mock", __spec__=None)
for _old, _now in (("float", float), ("int", int), ("bool", bool), ("object", object)):
    if _old not in vars(np):
        setattr(np, _old, _now)

if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    # `import keras` and tf.keras were one Keras.
    import tensorflow as tf
    import tf_keras

    tf.keras.__version__ = tf_keras.__version__
    sys.modules["keras"] = tf_keras
    from tf_keras.src.optimizers.legacy import optimizer_v2

    _legacy = types.ModuleType("keras.optimizers.legacy")
    _legacy.__dict__.update(vars(tf_keras.optimizers.legacy), optimizer_v2=optimizer_v2)
    sys.modules["keras.optimizers"] = tf_keras.optimizers
    sys.modules["keras.optimizers.legacy"] = _legacy
    _older = sys.modules["keras.optimizers.optimizer_v2"] = types.ModuleType("keras.optimizers.optimizer_v2")
    _older.optimizer_v2 = optimizer_v2  # where it was until Keras 2.10
