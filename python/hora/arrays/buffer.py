"""Whatever has Python's buffer protocol."""

from __future__ import annotations

from typing import Any

from .. import _abi, _lib
from ..call import DTYPE_SIZES, DTYPES
from ..errors import ArgumentError
from .array import Array, scattered, supported

# The struct module's letters, as buffers name their element type (native order), by size where C leaves it open.
_LETTERS = {
    "?": "bool", "B": "uint8", "b": "int8", "c": "uint8", "H": "uint16", "h": "int16", "e": "float16", "f": "float32",
    "d": "float64", "Zf": "complex64", "Zd": "complex128",
}  # fmt: skip


class Buffers:
    """Whatever has Python's buffer protocol: bytearray, array.array, memoryview, mmap, hora.Buffer, …"""

    def _view(self, x: Any) -> tuple[memoryview, int]:
        view = memoryview(x)
        letter = view.format.lstrip("@=")
        name = _LETTERS.get(letter)
        if name is None and letter in "iIlLqQnN":
            name = ("int" if letter in "ilqn" else "uint") + str(8 * view.itemsize)
        if name is None or DTYPE_SIZES[DTYPES[name]] != view.itemsize:
            raise ArgumentError(
                f"buffers of element format {view.format!r} are not supported; supported are {supported()}"
            )
        if not view.c_contiguous:
            raise scattered("buffer", view.shape or (), "a contiguous copy")
        return view, DTYPES[name]

    def read(self, x: Any) -> Array:
        view, code = self._view(x)
        return Array(x, self, _abi.readable(view), code, tuple(view.shape or ()), view)

    def write(self, x: Any) -> Array:
        view, code = self._view(x)
        if view.readonly:
            raise ArgumentError("out: the buffer is read-only; pass a writable one")
        return Array(x, self, _abi.readable(view), code, tuple(view.shape or ()), view)

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        n = DTYPE_SIZES[a.dtype]
        for d in shape:
            n *= d
        view = memoryview(bytearray(n))
        if n and shape:
            view = view.cast(a.keep.format.lstrip("=") or "B", shape)
        return Array(view, self, _abi.readable(view), a.dtype, shape, view)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        view = memory.view()
        return view.cast(a.keep.format, shape) if memory.nbytes else view

    def value(self, a: Array) -> Any:
        return a.obj
