"""One array as the collectives see it, and what every family says about arrays that it cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _lib
from ..call import DTYPE_NAMES
from ..errors import ArgumentError

__all__ = ["SCATTERED", "Array", "scattered", "supported"]


class Array:
    """Contiguous memory of one element type, and the object that it belongs to."""

    __slots__ = ("count", "dtype", "family", "keep", "obj", "ptr", "shape")

    def __init__(self, obj: Any, family: Any, ptr: int, dtype: int, shape: tuple[int, ...], keep: Any = None) -> None:
        self.obj, self.family, self.ptr, self.dtype, self.shape, self.keep = obj, family, ptr, dtype, shape, keep
        count = 1
        for d in shape:
            count *= d
        self.count = count

    @property
    def rows(self) -> int:
        """The first dimension; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def row(self) -> int:
        """Elements of one row."""
        n = 1
        for d in self.shape[1:]:
            n *= d
        return n

    def with_rows(self, rows: int) -> tuple[int, ...]:
        """This array's shape with another first dimension."""
        return (rows, *self.shape[1:])

    def new(self, shape: Sequence[int]) -> Array:
        """A fresh array of the same family and element type."""
        return self.family.new(self, tuple(shape))

    def wrap(self, memory: _lib.Memory, shape: Sequence[int]) -> Any:
        """The user's object over memory of the library's."""
        return self.family.wrap(self, memory, tuple(shape))

    def value(self) -> Any:
        """What the user gets for this array as a result."""
        return self.family.value(self)


SCATTERED = "is not contiguous in memory"


def scattered(what: str, shape: Sequence[int], how: str) -> ArgumentError:
    """Not in one piece. What is read may be copied; what is written may not, the result would be lost."""
    return ArgumentError(f"the {what} of shape {tuple(shape)} {SCATTERED}; pass {how}")


def supported() -> str:
    """The element types, for messages."""
    return ", ".join(DTYPE_NAMES[1:])
