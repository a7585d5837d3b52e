"""Smaller gradients on the wire; `Compression.none` and `Compression.fp16` as in Horovod, `bf16` besides."""

from __future__ import annotations

from hora.torch.compression import BF16Compressor, Compressor, FP16Compressor, Int8, NoneCompressor, PowerSGD

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8  # DistributedOptimizer only
    powersgd = PowerSGD  # DistributedOptimizer only
