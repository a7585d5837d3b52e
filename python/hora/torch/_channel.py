"""One group's calls as the optimizer makes them: in place, on memory that stays where it is."""

from __future__ import annotations

import mmap
import os
from typing import Any

import torch

from .. import _world
from ..call import NAMED, Call, Kind, Op
from ..errors import HoraError
from ..group import Group, Plan
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
    """A named operation that is started again and again: its arguments are read once."""

    __slots__ = ("_call", "_group")

    def __init__(self, group: Group, call: Call) -> None:
        self._group, self._call = group, call

    def run(self) -> None:
        """Start and wait."""
        self._group.run(self._call)

    def submit(self) -> int:
        """Start and return the ticket."""
        return self._group.submit(self._call)

    def close(self) -> None:
        """Nothing is held but memory."""


class Channel:
    """Ordered calls, or with `named` calls that match by name and that joined ranks answer with zeros."""

    def __init__(self, group: Group, named: bool) -> None:
        self.group = group
        self.named = named
        self.size = group.size
        self._flags = NAMED if named else 0

    @staticmethod
    def of(group: Channel | Group) -> Channel:
        """The group's ordered calls, or the channel that it is already."""
        return group if isinstance(group, Channel) else Channel(group, named=False)

    def call(self, *args: Any, **more: Any) -> Call:
        """A Call in this channel's manner."""
        return Call(*args, flags=self._flags, **more)

    def run(self, *args: Any, **more: Any) -> None:
        """Run a Call of these arguments."""
        self.group.run(self.call(*args, **more))

    def plan(
        self, t: torch.Tensor, op: Op, prescale: float, postscale: float, name: str, shape: list[int]
    ) -> Plan | Standing:
        """What reduces t in place, again and again; ranks whose shapes differ get an error that says so."""
        p = t.data_ptr()
        call = self.call(
            Kind.ALLREDUCE,
            op,
            code(t),
            0,
            p,
            p,
            t.numel(),
            prescale=prescale,
            postscale=postscale,
            name=name,
            shape=shape,
            keep=t,
        )
        return Standing(self.group, call) if self.named else self.group.plan(call)

    def start(self, t: torch.Tensor, op: Op, prescale: float, postscale: float, name: str) -> int:
        """Start to reduce t in place."""
        p = t.data_ptr()
        return self.group.submit(
            self.call(
                Kind.ALLREDUCE,
                op,
                code(t),
                0,
                p,
                p,
                t.numel(),
                prescale=prescale,
                postscale=postscale,
                name=name,
                shape=t.shape,
                keep=t,
            )
        )

    def memory(self, nbytes: int) -> torch.Tensor:
        """Bytes that all ranks of this host map; every rank of the group asks for the same. They stay as long as a view
        of them does, also when the group goes: a parameter's `.grad` lies there."""
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
