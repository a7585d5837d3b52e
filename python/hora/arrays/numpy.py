"""Arrays and scalars of NumPy."""

from __future__ import annotations

from typing import Any

from .. import _abi, _lib
from ..call import DTYPE_SIZES, DTYPES
from ..errors import ArgumentError
from .array import Array, scattered, supported


class NumPy:
    def __init__(self, numpy: Any) -> None:
        self.numpy = numpy
        self.ndarray = numpy.ndarray
        self.generic = numpy.generic
        self.codes: dict[Any, int] = {}

    def code(self, dtype: Any) -> int:
        code = self.codes.get(dtype)
        if code is None:
            code = DTYPES.get(dtype.name, 0) if dtype.isnative else 0
            if not code or DTYPE_SIZES[code] != dtype.itemsize:
                raise ArgumentError(f"arrays of element type {dtype} are not supported; supported are {supported()}")
            self.codes[dtype] = code
        return code

    def read(self, x: Any) -> Array:
        if isinstance(x, self.generic):  # a NumPy scalar
            held = self.numpy.array(x)
            return Array(x, self, _abi.readable(held), self.code(held.dtype), (), held)
        code = self.code(x.dtype)
        if not x.flags.c_contiguous:
            raise scattered("array", x.shape, "numpy.ascontiguousarray(x)")
        return Array(x, self, x.__array_interface__["data"][0], code, x.shape)

    def write(self, x: Any) -> Array:
        if isinstance(x, self.generic) or not x.flags.writeable:
            raise ArgumentError("out: the array is read-only; pass a writable one")
        return self.read(x)

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        x = self.numpy.empty(shape, dtype=a.obj.dtype)
        return Array(x, self, x.__array_interface__["data"][0], a.dtype, shape)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        return self.numpy.frombuffer(memory.view(), dtype=a.obj.dtype).reshape(shape)

    def value(self, a: Array) -> Any:
        return a.obj


_made: list[NumPy] = []


def numpy_family(module: Any) -> NumPy:
    """The one family of NumPy's arrays."""
    if not _made:
        _made.append(NumPy(module))
    return _made[0]
