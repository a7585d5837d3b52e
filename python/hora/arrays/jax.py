"""Arrays of JAX on the processor."""

from __future__ import annotations

from typing import Any

from .. import _lib
from ..errors import ArgumentError
from .array import Array
from .numpy import numpy_family


class Jax:
    """JAX arrays on the CPU: read in place, never written; results are new arrays."""

    def __init__(self, jax: Any, numpy: Any) -> None:
        self.jax = jax
        self.numpy = numpy_family(numpy)
        self.Array = jax.Array

    def read(self, x: Any) -> Array:
        if isinstance(x, self.jax.core.Tracer):
            raise ArgumentError(
                "the array is being traced by jax.jit; call hora.jax inside jit, or move the call out of it"
            )
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
