"""Registered memory: every rank on the host maps it, and reductions on it copy nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import _world
from .errors import ArgumentError
from .group import DTYPE_NAMES, DTYPE_SIZES, DTYPES, Group, group_of

__all__ = ["Buffer", "buffer"]

# The struct module's letters of the element types that it knows.
_FORMATS = {"bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i",
            "uint64": "Q", "int64": "q", "float32": "f", "float64": "d"}  # fmt: skip

# Short names, as NumPy has them.
_ALIASES = {"float": "float64", "int": "int64", "complex": "complex128", "half": "float16", "single": "float32", "double": "float64",
            "?": "bool", "b1": "bool", "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64",
            "c16": "complex128",
            "e": "float16", "f": "float32", "d": "float64",
            **{f"{sign}{n}": f"{'u' if sign == 'u' else ''}int{8 * n}" for sign in "iu" for n in (1, 2, 4, 8)}}  # fmt: skip


class Buffer:
    """An array in memory that every rank of this host maps; made by `hora.buffer`.

    `numpy()`, `torch()` and `memory` view the same bytes and keep them alive. Collectives take the buffer itself,
    and any contiguous part of a view of it.

    >>> b = hora.buffer(4, "float64")
    >>> b
    <hora.Buffer float64[4]>
    >>> b.numpy()[:] = 1
    >>> hora.allreduce(b, out=b).numpy()
    array([2., 2., 2., 2.])
    """

    def __init__(self, shape: Sequence[int], dtype: str, group: Group) -> None:
        if dtype not in DTYPES:
            raise ArgumentError(f"make buffer: {dtype!r} is no element type; use one of {', '.join(DTYPE_NAMES[1:])}")
        self.shape: tuple[int, ...] = tuple(int(d) for d in shape)
        self.dtype = dtype
        count = 1
        for d in self.shape:
            if d < 0:
                raise ArgumentError(f"make buffer: shape {self.shape} has a negative dimension")
            count *= d
        self.nbytes = count * DTYPE_SIZES[DTYPES[dtype]]
        self._memory = _world.allocate(group.handle, max(1, self.nbytes))
        self.ptr = self._memory.address

    @property
    def memory(self) -> memoryview:
        """The bytes."""
        return self._memory.view()[: self.nbytes]

    def numpy(self) -> Any:
        """As a NumPy array (bfloat16 and 8-bit floats need the package ml_dtypes)."""
        import numpy

        try:
            dtype = numpy.dtype(self.dtype)
        except TypeError:
            import ml_dtypes

            dtype = numpy.dtype(getattr(ml_dtypes, self.dtype))
        return numpy.frombuffer(self.memory, dtype=dtype).reshape(self.shape)

    def torch(self) -> Any:
        """As a torch tensor."""
        import torch

        dtype = getattr(torch, self.dtype)
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(self.memory, dtype=dtype).reshape(self.shape)

    def __buffer__(self, flags: int) -> memoryview:
        letter: Any = _FORMATS.get(self.dtype)
        return self.memory.cast(letter, self.shape) if letter and self.nbytes else self.memory

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array.astype(dtype) if dtype is not None and dtype != array.dtype else array

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 1

    def __repr__(self) -> str:
        return f"<hora.Buffer {self.dtype}{list(self.shape)}>"


def buffer(shape: int | Sequence[int], dtype: Any = "float32", *, group: Group | None = None) -> Buffer:
    """Make registered memory. Every rank of the group makes the same, in the same order.

    >>> x = hora.buffer((2, 3)).numpy()
    >>> x[:] = hora.rank()
    >>> hora.allreduce(x, out=x)
    array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    return Buffer((shape,) if isinstance(shape, int) else shape, _name(dtype), group_of(group))


def _name(dtype: Any) -> str:
    """Our name of an element type as NumPy, torch or Python know it; float and int are 64 bits, as in NumPy."""
    if isinstance(dtype, type):
        dtype = dtype.__name__.rstrip("_")
    if not isinstance(dtype, str):
        return getattr(dtype, "name", None) or str(dtype).rsplit(".", 1)[-1]
    if dtype in DTYPES:
        return dtype
    return _ALIASES.get(dtype.lstrip("=|<" if sys.byteorder == "little" else "=|>"), dtype)
