"""What the collectives read and write: NumPy, torch and JAX arrays, numbers, buffers, DLPack.

Frameworks are looked at only if the program has imported them.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Any

from . import _abi, _lib
from ._dlpack import DLPack
from .buffer import Buffer
from .errors import ArgumentError
from .group import DTYPE_NAMES, DTYPE_SIZES, DTYPES

__all__ = ["Array", "read", "write"]

# The struct module's letters, as buffers name their element type (native order), by size where C leaves it open.
_LETTERS = {
    "?": "bool", "B": "uint8", "b": "int8", "c": "uint8", "H": "uint16", "h": "int16", "e": "float16", "f": "float32",
    "d": "float64", "Zf": "complex64", "Zd": "complex128",
}  # fmt: skip
_NUMBERS = {int: ("q", "int64"), float: ("d", "float64"), bool: ("B", "bool"), complex: ("d", "complex128")}
_DL = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
       (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
       (4, 16): "bfloat16", (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool", (10, 8): "float8_e4m3fn",
       (12, 8): "float8_e5m2"}  # fmt: skip


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


_SCATTERED = "is not contiguous in memory"


def _contiguous(what: str, shape: Sequence[int], how: str) -> ArgumentError:
    """Not in one piece. What is read may be copied; what is written may not, the result would be lost."""
    return ArgumentError(f"the {what} of shape {tuple(shape)} {_SCATTERED}; pass {how}")


class _Torch:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.Tensor = torch.Tensor
        self.codes = {getattr(torch, name): code for name, code in DTYPES.items() if hasattr(torch, name)}

    def read(self, x: Any) -> Array:
        code = self.codes.get(x.dtype)
        if code is None:
            raise ArgumentError(f"tensors of element type {x.dtype} are not supported; supported are {_supported()}")
        if x.device.type != "cpu":
            raise ArgumentError(f"the tensor lies on {x.device}; hora.torch moves tensors of accelerators, or pass x.cpu()")
        if x.layout is not self.torch.strided:
            raise ArgumentError(f"the tensor's layout is {x.layout}; pass x.to_dense()")
        if not x.is_contiguous():
            raise _contiguous("tensor", x.shape, "x.contiguous()")
        if x.is_conj() or x.is_neg():
            raise ArgumentError("the tensor is a lazy conjugate or negative; pass x.resolve_conj().resolve_neg()")
        return Array(x, self, x.data_ptr(), code, tuple(x.shape), x.untyped_storage())  # x.data = … takes x's storage from it

    write = read

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        t = self.torch.empty(shape, dtype=a.obj.dtype)
        return Array(t, self, t.data_ptr(), a.dtype, shape)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        if not memory.nbytes:
            return self.torch.empty(shape, dtype=a.obj.dtype)
        return self.torch.frombuffer(memory.view(), dtype=a.obj.dtype).reshape(shape)

    def value(self, a: Array) -> Any:
        return a.obj


class _NumPy:
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
                raise ArgumentError(f"arrays of element type {dtype} are not supported; supported are {_supported()}")
            self.codes[dtype] = code
        return code

    def read(self, x: Any) -> Array:
        if isinstance(x, self.generic):  # a NumPy scalar
            held = self.numpy.array(x)
            return Array(x, self, _abi.readable(held), self.code(held.dtype), (), held)
        code = self.code(x.dtype)
        if not x.flags.c_contiguous:
            raise _contiguous("array", x.shape, "numpy.ascontiguousarray(x)")
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


class _Jax:
    """JAX arrays on the CPU: read in place, never written; results are new arrays."""

    def __init__(self, jax: Any, numpy: Any) -> None:
        self.jax = jax
        self.numpy = _numpy(numpy)
        self.Array = jax.Array

    def read(self, x: Any) -> Array:
        if isinstance(x, self.jax.core.Tracer):
            raise ArgumentError("the array is being traced by jax.jit; call hora.jax inside jit, or move the call out of it")
        a = self.numpy.read(self.numpy.numpy.asarray(x))
        return Array(x, self, a.ptr, a.dtype, a.shape, a.obj)

    def write(self, x: Any) -> Array:
        raise ArgumentError("out: JAX arrays cannot be changed; leave out=None and use what is returned")

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        b = self.numpy.new(Array(a.keep, self.numpy, 0, a.dtype, ()), shape)
        return Array(None, self, b.ptr, b.dtype, shape, b.obj)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        return self.jax.numpy.array(self.numpy.numpy.frombuffer(memory.view(), dtype=a.keep.dtype).reshape(shape))

    def value(self, a: Array) -> Any:
        return self.jax.numpy.asarray(a.keep) if a.obj is None else a.obj


class _Number:
    """Python's own numbers, as arrays of no dimension."""

    def read(self, x: Any) -> Array:
        letter, name = _NUMBERS[type(x)]
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
        values = [complex(*p) for p in zip(a.keep[::2], a.keep[1::2], strict=True)] if kind is complex else list(map(kind, a.keep))
        return values[0] if a.shape == () else values


class _Buffer:
    """Whatever has Python's buffer protocol: bytearray, array.array, memoryview, mmap, hora.Buffer, …"""

    def _view(self, x: Any) -> tuple[memoryview, int]:
        view = memoryview(x)
        letter = view.format.lstrip("@=")
        name = _LETTERS.get(letter)
        if name is None and letter in "iIlLqQnN":
            name = ("int" if letter in "ilqn" else "uint") + str(8 * view.itemsize)
        if name is None or DTYPE_SIZES[DTYPES[name]] != view.itemsize:
            raise ArgumentError(f"buffers of element format {view.format!r} are not supported; supported are {_supported()}")
        if not view.c_contiguous:
            raise _contiguous("buffer", view.shape or (), "a contiguous copy")
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


class _Registered:
    """hora.Buffer; results of other shapes come as NumPy arrays or buffers."""

    def read(self, x: Any) -> Array:
        return Array(x, self, x.ptr, DTYPES[x.dtype], x.shape, x)

    write = read

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        return _DLPACK.new(a, shape)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        return _DLPACK.wrap(a, memory, shape)

    def value(self, a: Array) -> Any:
        return a.obj


class _DLPack:
    """Whatever else speaks DLPack and lies in this host's memory; results come as NumPy arrays or buffers."""

    def read(self, x: Any) -> Array:
        d = DLPack(x)
        name = _DL.get((d.code, d.bits)) if d.lanes == 1 else None
        if name is None:
            raise ArgumentError(f"arrays of DLPack element type ({d.code}, {d.bits} bits) are not supported; supported are {_supported()}")
        if not d.on_host:
            raise ArgumentError("the array lies on an accelerator; copy it to the host first")
        if not d.contiguous:
            raise _contiguous("array", d.shape, "a contiguous copy")
        return Array(x, self, d.ptr, DTYPES[name], d.shape, d)

    def write(self, x: Any) -> Array:
        a = self.read(x)
        if a.keep.read_only:
            raise ArgumentError("out: the array is read-only; pass a writable one")
        return a

    def new(self, a: Array, shape: tuple[int, ...]) -> Array:
        import numpy

        x: Any = numpy.empty(shape, dtype=DTYPE_NAMES[a.dtype])
        return Array(x, _numpy(numpy), x.__array_interface__["data"][0], a.dtype, shape)

    def wrap(self, a: Array, memory: _lib.Memory, shape: tuple[int, ...]) -> Any:
        import numpy

        return numpy.frombuffer(memory.view(), dtype=DTYPE_NAMES[a.dtype]).reshape(shape)

    def value(self, a: Array) -> Any:
        return a.obj


_NUMBER, _BUFFER, _DLPACK, _REGISTERED = _Number(), _Buffer(), _DLPack(), _Registered()
_made: dict[str, Any] = {}
_by_type: dict[type, Any] = {}


def _numpy(module: Any) -> _NumPy:
    if "numpy" not in _made:
        _made["numpy"] = _NumPy(module)
    return _made["numpy"]


def _supported() -> str:
    return ", ".join(DTYPE_NAMES[1:])


def family(x: Any) -> Any:
    """Who knows how to read x."""
    known = _by_type.get(type(x))
    if known is None:
        known = _by_type[type(x)] = _find(x)
    return known


def _find(x: Any) -> Any:
    modules = sys.modules
    if type(x) in _NUMBERS:
        return _NUMBER
    if isinstance(x, Buffer):
        return _REGISTERED
    torch = modules.get("torch")
    if torch is not None and isinstance(x, getattr(torch, "Tensor", ())):
        return _made.setdefault("torch", _Torch(torch))
    numpy = modules.get("numpy")
    if numpy is not None and isinstance(x, (getattr(numpy, "ndarray", ()), getattr(numpy, "generic", ()))):
        return _numpy(numpy)
    jax = modules.get("jax")
    if jax is not None and isinstance(x, getattr(jax, "Array", ())):
        return _made.setdefault("jax", _Jax(jax, numpy))
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
        if _SCATTERED not in str(e):
            raise
        raise ArgumentError(f"out: {str(e).partition(';')[0]}; pass one that is, and copy the result from it") from None


_hastened: set[type] = set()


def hasten(kind: type, how: Any) -> None:
    """Let arrays of a class that was read well go the short way of `_abi.shortcut`, where they can be looked at from C."""
    if kind in _hastened:
        return
    _hastened.add(kind)
    if how is _BUFFER or how is _made.get("numpy"):
        _abi.accept(kind)
    elif isinstance(how, _Torch) and kind in (how.torch.Tensor, how.torch.nn.Parameter):
        exchange = getattr(kind, "__dlpack_c_exchange_api__", None)  # torch 2.10 and newer
        if exchange is not None:
            _abi.accept(kind, exchange)
