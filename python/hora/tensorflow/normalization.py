"""Batch normalization over the batches of all ranks, for Keras on TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..errors import ArgumentError
from ..group import Group
from ..keras.which import LEGACY, keras
from ._calls import _number
from ._ops import ops

__all__ = ["SyncBatchNormalization"]

# Keras before 2.13 has it in utils alone.
_named: Any = (
    getattr(getattr(keras, "saving", None), "register_keras_serializable", None)
    or keras.utils.register_keras_serializable
)


@_named(package="hora")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization whose mean and variance in training are those of all ranks' batches together.

    One call a layer and pass has each rank's count, mean and variance; they are put together without the cancellation
    that a difference of squares has. Batches may differ in size. In evaluation it is the layer that it is made of.

    >>> layer = hora.tensorflow.SyncBatchNormalization()
    """

    def __init__(self, fused: Any = False, *, group: Group | None = None, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True: leave fused away")
        if kwargs.get("renorm"):
            raise ValueError("SyncBatchNormalization does not support renorm=True: leave it away")
        if keras.backend.backend() != "tensorflow":
            raise ArgumentError(
                "SyncBatchNormalization of hora.tensorflow is for Keras on TensorFlow; set KERAS_BACKEND=tensorflow"
            )
        kwargs.pop("synchronized", None)
        if LEGACY:
            kwargs["fused"] = False
        super().__init__(**kwargs)
        self._hora_group = group

    def _moments(self, inputs: Any, *how: Any, **also: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *how, **also)
        mask = also.get("mask") if LEGACY or not how else how[0]  # Keras 2 has axes before it
        if mask is None:
            count = tf.cast(tf.size(inputs) / tf.maximum(tf.size(mean), 1), inputs.dtype)
        else:
            shape = tf.shape(inputs)
            kept = tf.broadcast_to(tf.cast(mask, inputs.dtype)[..., None], shape)
            count = tf.reduce_sum(kept) / tf.cast(shape[-1], inputs.dtype)
        mine = tf.stack([tf.fill(tf.shape(mean), count), mean, variance])[None]
        label = f"SyncBatchNormalization_{self.name}"
        all_ranks = ops().hora_allgather(mine, group=_number(self._hora_group), label=label, named=True)
        all_ranks = tf.ensure_shape(all_ranks, [None, 3, *mean.shape])
        weights, means, variances = all_ranks[:, 0], all_ranks[:, 1], all_ranks[:, 2]
        weights = weights / tf.maximum(tf.reduce_sum(weights, 0), 1)
        mean = tf.reduce_sum(weights * means, 0)
        return mean, tf.reduce_sum(weights * (variances + tf.square(means - mean)), 0)
