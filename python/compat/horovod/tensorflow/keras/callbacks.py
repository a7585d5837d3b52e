"""Callbacks for `fit`, as horovod.tensorflow.keras has them."""

from ..._keras.callbacks import *  # noqa: F403  both have the same
