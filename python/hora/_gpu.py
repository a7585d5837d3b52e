"""Collectives on memory of a GPU, given as addresses, in the order of the caller's stream.

`Gpu` is one group's way between its members' GPUs: NCCL where each has a GPU of its own, else through pinned host
memory. It knows no framework: pointers and streams are integers. `hora.torch` sits on it.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

from . import _lib
from .errors import ArgumentError, DeadlineError
from .group import Call, Group

__all__ = ["Gpu", "nccl_beside"]


def nccl_beside() -> str:
    """Where a wheel of NVIDIA's has put NCCL, "" when there is none; a copy that is loaded already is preferred to
    it."""
    for folder in sys.path:
        for found in glob.glob(os.path.join(folder, "nvidia", "nccl", "lib", "libnccl.so.2")):
            return found
    return ""


class Gpu:
    """The GPUs of a group. All members make it, in one order.

    `path` is "auto", "nccl" or "staged" (HORA_GPU_PATH wins); `nccl` and `cuda` are where the libraries lie if the
    process has not loaded them.
    """

    def __init__(
        self,
        group: Group,
        device: int,
        *,
        path: str = "auto",
        nccl: str | None = None,
        cuda: str = "",
        chunk: int = 4 << 20,
        timeout: float | None = None,
    ) -> None:
        self.group, self.device, self.handle = group, device, 0
        if _lib.world is None:
            raise _lib.no_world()
        settings = {
            "group": group.handle,
            "device": device,
            "path": os.environ.get("HORA_GPU_PATH") or path,
            "nccl": nccl_beside() if nccl is None else nccl,
            "cuda": cuda,
            "chunk": chunk,
            "timeout": timeout or 0,
        }
        ticket = _lib.own("hora_gpu", json.dumps(settings).encode())
        if ticket < 0:
            raise _lib.failure("hora_gpu")
        out = _lib.outcome(ticket)
        if out.memory is None:
            raise ArgumentError("make GPU group: the library gave no report")
        self.handle = out.value
        self.report: dict[str, Any] = json.loads(bytes(out.memory.view()))
        if self.report["warning"]:
            warnings.warn(f"hora: {self.report['warning']}", RuntimeWarning, stacklevel=3)

    @property
    def path(self) -> str:
        """The path that was taken: "nccl" or "staged"."""
        return self.report["path"]

    def submit(self, calls: Sequence[Call], stream: int, keep: Any = None) -> int:
        """Start calls on this GPU's memory as one operation and return its ticket.

        It begins when `stream` has come to this point. `keep` stays referenced until it has ended on the GPU.
        """
        if _lib.world is None:
            raise _lib.no_world()
        if _lib.orphans:
            _lib.reap()
        ops = b"".join([call.on(1 + self.device) for call in calls])
        ticket = _lib.own("hora_gpu_submit", self.handle, ops, len(calls), stream, keep=(calls, keep))
        if ticket < 0:
            raise _lib.failure("hora_gpu_submit")
        return ticket

    def follow(self, ticket: int, stream: int, timeout: float | None = None) -> None:
        """Let what `stream` does from now on come after the operation; returns before that has ended on the GPU.

        Raises the operation's error if it has failed, DeadlineError if it could not be started within `timeout`.
        """
        lib = _lib.load()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            r = lib.hora_gpu_wait(self.handle, ticket, stream)
            if r == 0:
                return
            if r < 0:
                raise _lib.failure("hora_gpu_wait")
            if end is not None and time.monotonic() > end:
                raise DeadlineError(
                    f"wait for operation on GPU {self.device}: it had not begun within the timeout of {timeout:g} s"
                )

    def wait(self, ticket: int, timeout: float | None = None) -> bool:
        """Wait on the host until the operation has ended on the GPU; False after `timeout` seconds."""
        return self.group.wait(ticket, timeout)

    def done(self, ticket: int) -> bool:
        """Whether the operation has ended on the GPU, well or not."""
        return _lib.poll(ticket)

    def release(self, ticket: int) -> None:
        """Forget a ticket; what the operation works on is kept until it has ended."""
        _lib.release(ticket)

    def close(self) -> None:
        """End what is in flight and give everything back."""
        handle, self.handle = self.handle, 0
        if handle and _lib.world is not None:
            _lib.load().hora_gpu_close(handle)
