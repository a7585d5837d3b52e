"""Numbers."""

from __future__ import annotations

import array
from typing import Any

from .. import _lib
from ..call import DTYPE_SIZES, DTYPES
from ..errors import ArgumentError
from .array import Array

NUMBERS = {int: ("q", "int64"), float: ("d", "float64"), bool: ("B", "bool"), complex: ("d", "complex128")}


class Number:
    """Python's own numbers, as arrays of no dimension."""

    def read(self, x: Any) -> Array:
        letter, name = NUMBERS[type(x)]
        try:
            held = array.array(letter, (x.real, x.imag) if name == "complex128" else (x,))
        except OverflowError:
            raise ArgumentError(f"the number {x} does not fit into 64 bits; pass a float or an array") from None
        return Array(x, self, held.buffer_info()[0], DTYPES[name], (), held)

    def write(self, x: Any) -> Array:
        raise ArgumentError("out: a number cannot be changed; leave out=None and use what is returned")

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        n = 1
        for d in shape:
            n *= d
        held = array.array(a.keep.typecode, bytes(n * DTYPE_SIZES[a.dtype]))
        return Array(a.obj, self, held.buffer_info()[0], a.dtype, shape, held)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        held = array.array(a.keep.typecode, bytes(memory.view()))
        return self.value(Array(a.obj, self, 0, a.dtype, shape, held))

    def value(self, a: Array) -> Any:
        kind = type(a.obj)
        values = (
            [complex(*p) for p in zip(a.keep[::2], a.keep[1::2], strict=True)]
            if kind is complex
            else list(map(kind, a.keep))
        )
        return values[0] if a.shape == () else values
