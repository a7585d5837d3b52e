"""DLPack capsules, read from Python: where an array of any framework lies, and of what type it is."""

from __future__ import annotations

import struct
from typing import Any

from . import _abi

# struct DLTensor: data, device type and number, dimensions, type code, bits and lanes, shape, strides, offset.
_TENSOR = struct.Struct("@QiiiBBHQQQ")
_VERSIONED = struct.Struct("@IIQQQ")  # what lies before it in a capsule of version 1: version, manager, deleter, flags
_READ_ONLY = 1


class DLPack:
    """A look at an array through DLPack; it keeps the capsule, and so the memory, alive."""

    __slots__ = ("bits", "capsule", "code", "contiguous", "lanes", "on_host", "ptr", "read_only", "shape")

    def __init__(self, x: Any) -> None:
        try:
            self.capsule = x.__dlpack__(max_version=(1, 0))
        except TypeError:  # older than version 1
            self.capsule = x.__dlpack__()
        flags = 0
        if "dltensor_versioned" in repr(self.capsule):
            at = _abi.capsule_pointer(self.capsule, b"dltensor_versioned")
            flags = _VERSIONED.unpack(_abi.peek(at, _VERSIONED.size))[4]
            at += _VERSIONED.size
        else:
            at = _abi.capsule_pointer(self.capsule, b"dltensor")
        self.read_only = bool(flags & _READ_ONLY)
        data, device, _, ndim, self.code, self.bits, self.lanes, shape, strides, offset = _TENSOR.unpack(
            _abi.peek(at, _TENSOR.size)
        )
        self.on_host = device in (1, 3, 11)  # the host's own, and what CUDA and ROCm have pinned there
        self.shape: tuple[int, ...] = struct.unpack(f"@{ndim}q", _abi.peek(shape, 8 * ndim))
        self.ptr = data + offset
        self.contiguous = True
        if strides:
            step = 1
            steps = struct.unpack(f"@{ndim}q", _abi.peek(strides, 8 * ndim))
            for n, stride in reversed(list(zip(self.shape, steps, strict=True))):
                if n > 1 and stride != step:
                    self.contiguous = 0 in self.shape
                step *= n
