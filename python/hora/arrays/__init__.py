"""What the collectives read and write: NumPy, torch and JAX arrays, numbers, buffers, DLPack; a file each.

Frameworks are looked at only if the program has imported them.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import _abi
from ..buffer import Buffer
from ..call import DTYPE_NAMES, DTYPE_SIZES
from ..errors import ArgumentError
from .array import SCATTERED, Array
from .buffer import Buffers
from .dlpack import Foreign
from .number import NUMBERS, Number
from .numpy import NumPy, numpy_family
from .registered import Registered

__all__ = ["DTYPE_NAMES", "DTYPE_SIZES", "Array", "family", "hasten", "read", "write"]

_NUMBER, _BUFFER, _DLPACK, _REGISTERED = Number(), Buffers(), Foreign(), Registered()
_made: dict[str, Any] = {}
_by_type: dict[type, Any] = {}


def family(x: Any) -> Any:
    """Who knows how to read x."""
    known = _by_type.get(type(x))
    if known is None:
        known = _by_type[type(x)] = _find(x)
    return known


def _find(x: Any) -> Any:
    modules = sys.modules
    if type(x) in NUMBERS:
        return _NUMBER
    if isinstance(x, Buffer):
        return _REGISTERED
    torch = modules.get("torch")
    if torch is not None and isinstance(x, getattr(torch, "Tensor", ())):
        from .torch import Torch

        return _made.setdefault("torch", Torch(torch))
    numpy = modules.get("numpy")
    if numpy is not None and isinstance(x, (getattr(numpy, "ndarray", ()), getattr(numpy, "generic", ()))):
        return numpy_family(numpy)
    jax = modules.get("jax")
    if jax is not None and isinstance(x, getattr(jax, "Array", ())):
        from .jax import Jax

        return _made.setdefault("jax", Jax(jax, numpy))
    try:
        memoryview(x)
        return _BUFFER
    except (TypeError, BufferError):
        pass
    if hasattr(x, "__dlpack__"):
        return _DLPACK
    raise ArgumentError(
        f"{type(x).__name__} is no array; pass a NumPy, torch or JAX array, a number, a list of arrays, "
        "or anything with a buffer or DLPack (objects: hora.broadcast_object)"
    )


def read(x: Any) -> Array:
    """Look at an input."""
    return family(x).read(x)


def write(x: Any) -> Array:
    """Look at an array that will be written."""
    try:
        return family(x).write(x)
    except ArgumentError as e:
        if SCATTERED not in str(e):
            raise
        raise ArgumentError(f"out: {str(e).partition(';')[0]}; pass one that is, and copy the result from it") from None


_hastened: set[type] = set()


def hasten(kind: type, how: Any) -> None:
    """Let arrays of a class that was read well go the short way of `_abi.shortcut`, where they can be looked at from
    C."""
    if kind in _hastened:
        return
    _hastened.add(kind)
    if how is _BUFFER or isinstance(how, NumPy):
        _abi.accept(kind)
    elif "torch" in _made and how is _made["torch"] and kind in (how.torch.Tensor, how.torch.nn.Parameter):
        exchange = getattr(kind, "__dlpack_c_exchange_api__", None)  # torch 2.10 and newer
        if exchange is not None:
            _abi.accept(kind, exchange)
