"""One group's calls as the optimizer makes them: in place, on memory that stays where it is."""

from __future__ import annotations

import mmap
import os
from typing import Any

import torch

from .. import _lib, _world
from ..errors import HoraError
from ..group import FLAG_NAMED, Group, Kind, Op, Plan, _pack
from ._tensor import code

__all__ = ["Channel", "Standing", "register"]


_unsure: list[torch.Tensor] = []  # what was being registered when an exception came


def register(group: Group, address: int, nbytes: int, fd: int, named: bool, memory: torch.Tensor) -> Any:
    """Have the host's ranks map memory."""
    try:
        return _world.register(group.handle, address, nbytes, fd, 0, named=named, keep=memory)
    except HoraError:
        raise
    except BaseException:  # a signal handler's: the library may know this memory for good
        _unsure.append(memory)
        raise


class _Mapped(mmap.mmap):
    """Mapped memory that is registered as long as it lives."""

    registration: Any = None


class Standing:
    """A named operation that is started again and again: its arguments are packed once."""

    __slots__ = ("_keep", "_op", "handle")

    def __init__(self, handle: int, op: bytes, keep: Any) -> None:
        self.handle, self._op, self._keep = handle, op, keep

    def run(self) -> None:
        """Start and wait."""
        _lib.run(self.handle, self._op, self._keep)

    def submit(self) -> int:
        """Start and return the ticket."""
        return _lib.submit(self.handle, self._op, 1, self._keep)[0]

    def close(self) -> None:
        """Nothing is held but memory."""


class Channel:
    """Ordered calls, or with `named` calls that match by name and that joined ranks answer with zeros."""

    def __init__(self, group: Group, named: bool) -> None:
        self.group = group
        self.named = named
        self.size = group.size
        self._flags = FLAG_NAMED if named else 0

    def run(self, *args: Any, **more: Any) -> None:
        """group.run, in this channel's manner."""
        self.group.run(*args, flags=self._flags | more.pop("flags", 0), **more)

    def plan(self, t: torch.Tensor, op: Op, prescale: float, postscale: float, name: str, shape: list[int]) -> Plan | Standing:
        """What reduces t in place, again and again; ranks whose shapes differ get an error that says so."""
        p, n = t.data_ptr(), t.numel()
        if not self.named:
            return self.group.plan(
                Kind.ALLREDUCE, op, code(t), 0, p, p, n, prescale=prescale, postscale=postscale, name=name, shape=shape, keep=t
            )
        packed, held = _pack(
            Kind.ALLREDUCE, op, code(t), 0, p, p, n, n, prescale, postscale, name, None, None, None, FLAG_NAMED, 0, 0, shape, 0
        )
        return Standing(self.group.handle, packed, (held, t))

    def start(self, t: torch.Tensor, op: Op, prescale: float, postscale: float, name: str) -> int:
        """Start to reduce t in place."""
        p = t.data_ptr()
        call = {
            "kind": Kind.ALLREDUCE, "op": op, "dtype": code(t), "send": p, "recv": p, "count": t.numel(), "prescale": prescale,
            "postscale": postscale, "name": name, "shape": t.shape, "keep": t,
        }  # fmt: skip
        return self.group.submit_many([call], named=self.named)[0]

    def memory(self, nbytes: int) -> torch.Tensor:
        """Bytes that all ranks of this host map; every rank of the group asks for the same. They stay as long as a view of them
        does, also when the group goes: a parameter's `.grad` lies there."""
        if self.size == 1 or nbytes == 0 or not hasattr(os, "memfd_create"):
            return torch.empty(nbytes, dtype=torch.uint8)
        fd = os.memfd_create("hora-bucket")
        try:
            os.ftruncate(fd, nbytes)
            mapped = _Mapped(fd, nbytes)
            memory = torch.frombuffer(mapped, dtype=torch.uint8)
            mapped.registration = register(self.group, memory.data_ptr(), nbytes, fd, self.named, memory)
        finally:
            os.close(fd)
        return memory
