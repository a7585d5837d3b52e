"""What gradients are sent as."""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["Compression"]


class NoneCompressor:
    """As they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor, and what decompress needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """What came back, as it was before."""
        return tensor


class FP16Compressor:
    """Real numbers with 16 bits."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor, and what decompress needs to know."""
        wide = numpy.dtype(tensor.dtype) in (numpy.float32, numpy.float64)
        return (tensor.astype("float16"), tensor.dtype) if wide else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """What came back, as it was before."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
