"""A second device for torch, in this process's memory: what an accelerator looks like to a program.

torch lets a device be written in Python. Every operation that it gets for one is done by the host's kernel on the same
bytes. The device's addresses are no addresses of the host's: who reads one without asking the device dies of it.
"""

from __future__ import annotations

import ctypes
import threading

import torch
from torch import library
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "second"
_AWAY = 1 << 48  # from a host's address to the device's
_EXTERNAL = 12  # DLPack's number of such a device
_KINDS = {
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.int64: (0, 64),
    torch.bool: (6, 8),
}

ops: dict[str, set[int]] = {}  # what the device has done, and on which threads
_memory: list = []  # given back with the process
_kernels = library.Library("_", "IMPL")


class _Tensor(ctypes.Structure):
    """struct DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32), ("dims", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def on_device(host: torch.Tensor) -> torch.Tensor:
    """The device's tensor of a host tensor's bytes."""
    dims = ctypes.c_int64 * max(1, host.dim())
    shape, strides = dims(*host.shape), dims(*host.stride())
    code, bits = _KINDS[host.dtype]
    t = _Tensor(
        (host.data_ptr() or 64) + _AWAY,
        _EXTERNAL,
        0,
        host.dim(),
        code,
        bits,
        1,
        ctypes.addressof(shape),
        ctypes.addressof(strides),
    )
    _memory.append((host, shape, strides, t))
    return torch.from_dlpack(_capsule(ctypes.addressof(t), b"dltensor", None))


def on_host(t: torch.Tensor) -> torch.Tensor:
    """The host's view of a device tensor's bytes."""
    reach = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    memory = (ctypes.c_char * max(1, reach * t.element_size())).from_address(t.data_ptr() - _AWAY if t.numel() else 64)
    if not t.numel():
        return torch.empty(t.shape, dtype=t.dtype)
    return torch.frombuffer(memory, dtype=t.dtype, count=reach).as_strided(t.shape, t.stride())


def _run(op, *args, **kwargs):
    ops.setdefault(op.name(), set()).add(threading.get_ident())
    given = []

    def down(x):
        if isinstance(x, torch.Tensor) and x.device.type == NAME:
            given.append((x, on_host(x)))
            return given[-1][1]
        return torch.device("cpu") if isinstance(x, torch.device) else x

    def up(x):
        if not isinstance(x, torch.Tensor):
            return x
        return (
            next((t for t, host in given if host is x), None) if any(host is x for _, host in given) else on_device(x)
        )

    args, kwargs = tree_map(down, args), tree_map(down, kwargs)
    if op.name() == "aten::_copy_from":
        args[1].copy_(args[0])
        return given[-1][0] if len(given) == 2 or args[1] is given[0][1] else None
    return tree_map(up, op(*args, **kwargs))


def set_up() -> None:
    """Make torch know the device; once a process."""
    _setup_privateuseone_for_python_backend(NAME)
    _kernels.fallback(_run, "PrivateUse1")
