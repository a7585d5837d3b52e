"""Batch normalization over the batches of all ranks."""

from hora.tensorflow.normalization import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
