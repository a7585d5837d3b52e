"""Fewer bytes per gradient: 16-bit floats."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """Override both to send something smaller; the pair works on one tensor at a time."""

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """What is sent instead of the tensor, and what decompress needs to know."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The reduced tensor in the form it had before."""
        return tensor


class NoneCompressor(Compressor):
    """Sends the gradient as it is."""


class _Cast(Compressor):
    dtype: Any = tf.float16

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        if tensor.dtype.is_floating and tensor.dtype != cls.dtype:
            return tf.cast(tensor, cls.dtype), tensor.dtype
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Cast):
    """Sends 16-bit floats with 5 bits of exponent."""


class BF16Compressor(_Cast):
    """Sends 16-bit floats with float32's range."""

    dtype = tf.bfloat16


class Compression:
    """`Compression.none`, `.fp16`, `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
