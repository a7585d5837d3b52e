"""Smaller gradients on the wire; `Compression.none` and `Compression.fp16` as in Horovod, `bf16` besides."""

from __future__ import annotations

from hora.tensorflow.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
