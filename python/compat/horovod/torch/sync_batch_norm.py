"""Batch normalization over all ranks' batches; unlike Horovod's it works on the CPU too."""

from __future__ import annotations

from hora.torch.sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
