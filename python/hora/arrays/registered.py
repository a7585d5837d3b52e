"""hora.Buffer."""

from __future__ import annotations

from typing import Any

from ..call import DTYPES
from .array import Array
from .dlpack import Foreign


class Registered(Foreign):
    """hora.Buffer; results of other shapes come as NumPy arrays or buffers."""

    def read(self, x: Any) -> Array:
        return Array(x, self, x.ptr, DTYPES[x.dtype], x.shape, x)

    write = read
