"""Weights as a safetensors file: a head of JSON that says where each tensor lies, and their bytes one after the
other."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def dumps(tensors: Mapping[str, Any]) -> bytes:
    """The file's bytes, of torch tensors or NumPy arrays by name."""
    head: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        kind, shape, data = _plain(name, tensor)
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    said = json.dumps(head).encode()
    said += b" " * (-len(said) % 8)
    return struct.pack("<Q", len(said)) + said + b"".join(parts)


def _plain(name: str, tensor: Any) -> tuple[str, list[int], bytes]:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().contiguous()
        kind = str(tensor.dtype).removeprefix("torch.")
        shape = list(tensor.shape)
        if kind == "bfloat16":  # which NumPy has not
            import torch

            tensor = tensor.view(torch.int16)
        array = tensor.numpy()
    else:
        array = np.asarray(tensor)
        kind, shape = str(array.dtype), list(array.shape)
    if kind not in _NAMES:
        raise ArgumentError(f"safetensors has no type for {name!r}, which is {kind}")
    return _NAMES[kind], shape, np.ascontiguousarray(array).tobytes()


def loads(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of such a file; bfloat16 as uint16."""
    (length,) = struct.unpack_from("<Q", data)
    kinds = {v: np.dtype(k if k != "bfloat16" else "uint16") for k, v in _NAMES.items()}
    found = {}
    for name, said in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            start, end = said["data_offsets"]
            found[name] = np.frombuffer(data[8 + length + start : 8 + length + end], kinds[said["dtype"]]).reshape(
                said["shape"]
            )
    return found
