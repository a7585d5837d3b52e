"""Tensors of PyTorch in host memory."""

from __future__ import annotations

from typing import Any

from .. import _lib
from ..call import DTYPES
from ..errors import ArgumentError
from .array import Array, scattered, supported


class Torch:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.Tensor = torch.Tensor
        self.codes = {getattr(torch, name): code for name, code in DTYPES.items() if hasattr(torch, name)}

    def read(self, x: Any) -> Array:
        code = self.codes.get(x.dtype)
        if code is None:
            raise ArgumentError(f"tensors of element type {x.dtype} are not supported; supported are {supported()}")
        if x.device.type != "cpu":
            raise ArgumentError(
                f"the tensor lies on {x.device}; pass x.cpu(), or reduce it with torch.distributed and its backend 'hora'"
            )
        if x.layout is not self.torch.strided:
            raise ArgumentError(f"the tensor's layout is {x.layout}; pass x.to_dense()")
        if not x.is_contiguous():
            raise scattered("tensor", x.shape, "x.contiguous()")
        if x.is_conj() or x.is_neg():
            raise ArgumentError("the tensor is a lazy conjugate or negative; pass x.resolve_conj().resolve_neg()")
        return Array(
            x, self, x.data_ptr(), code, tuple(x.shape), x.untyped_storage()
        )  # x.data = … takes x's storage from it

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
