"""Whatever else speaks DLPack, and registered buffers, whose results in other shapes are such arrays."""

from __future__ import annotations

from typing import Any

from .. import _lib
from .._dlpack import DLPack
from ..call import DTYPE_NAMES, DTYPES
from ..errors import ArgumentError
from .array import Array, scattered, supported
from .numpy import numpy_family

_DL = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
       (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
       (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool", (10, 8): "float8_e4m3fn",
       (12, 8): "float8_e5m2"}  # fmt: skip


class Foreign:
    """Whatever else speaks DLPack and lies in this host's memory; results come as NumPy arrays or buffers."""

    def read(self, x: Any) -> Array:
        d = DLPack(x)
        name = _DL.get((d.code, d.bits)) if d.lanes == 1 else None
        if name is None:
            raise ArgumentError(
                f"arrays of DLPack element type ({d.code}, {d.bits} bits) are not supported; supported are {supported()}"
            )
        if not d.on_host:
            raise ArgumentError("the array lies on an accelerator; copy it to the host first")
        if not d.contiguous:
            raise scattered("array", d.shape, "a contiguous copy")
        return Array(x, self, d.ptr, DTYPES[name], d.shape, d)

    def write(self, x: Any) -> Array:
        a = self.read(x)
        if a.keep.read_only:
            raise ArgumentError("out: the array is read-only; pass a writable one")
        return a

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        import numpy

        x: Any = numpy.empty(shape, dtype=DTYPE_NAMES[a.dtype])
        return Array(x, numpy_family(numpy), x.__array_interface__["data"][0], a.dtype, shape)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        import numpy

        return numpy.frombuffer(memory.view(), dtype=DTYPE_NAMES[a.dtype]).reshape(shape)

    def value(self, a: Array) -> Any:
        return a.obj
