"""Gradients that are reduced where autograd put them, for HORA_TORCH_ARENA=1.

Then torch's larger tensors on the CPU lie in memory that the ranks of a host can map (arena.c), all of it registered at
once with each group that asks. A gradient in it needs no bucket: it is an operation of its own, whose header tells the
other ranks where it is. One that lies elsewhere, as on a rank whose arena is full, is reduced all the same, only
slower.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from .. import _abi, _lib
from ..call import NAMED, Call, Kind, Op
from ..errors import SettingsError
from ._channel import Channel, register
from ._tensor import code

__all__ = ["LARGE", "Scattered", "asked", "bytes_in_use", "fits", "open_arena", "share", "spread"]

# From this size on a tensor lies in the arena (SMALLEST of arena.c).
LARGE = 64 << 10

_about: tuple[int, int, int] | None = None  # address, bytes and file of what is open
_shared: dict[tuple[int, int, bool], Any] = {}  # registrations by life of the world, group and whether for names


def asked() -> int:
    """The bytes that HORA_TORCH_ARENA asks for, 0 for none."""
    text = os.environ.get("HORA_TORCH_ARENA") or "0"
    if not text.isdecimal():
        raise SettingsError(
            f"HORA_TORCH_ARENA={text!r} is no number; give 1 for 1 GiB a rank, a greater number for so many MiB, or 0"
        )
    n = int(text)
    return n << 30 if n < 2 else n << 20


def open_arena() -> bool:
    """Whether torch's larger tensors lie in memory that can be shared; they do from the first call on where it was
    asked for."""
    global _about
    wanted = asked()
    if _about is None and wanted:
        error, about = _call(b"libc10.so", wanted)
        if error:
            why = "no such entries were found" if error == 38 else os.strerror(error)
            raise SettingsError(
                f"HORA_TORCH_ARENA: the memory of this torch ({torch.__version__}) cannot be had ({why}); train without the variable"
            )
        _about = about[0], about[1], about[2]
    return _about is not None


def bytes_in_use() -> int:
    """What torch's tensors take of the arena."""
    return _call(None, 0)[1][3]


def _call(library: bytes | None, wanted: int) -> tuple[int, list[int]]:
    about = (_abi.c_uint64 * 4)()
    error = _abi.bridge(_lib.load()).hora_arena(library, wanted, about)
    return error, list(about)


def share(channel: Channel) -> None:
    """Register the arena with the channel's group; all of its ranks do so together, once in each life of the world."""
    assert _about is not None
    key = _lib.age, channel.group.handle, channel.named
    for old in [k for k in _shared if k[0] != _lib.age]:
        del _shared[old]
    if key not in _shared:
        at, nbytes, fd = _about
        _shared[key] = register(channel.group, at, nbytes, fd, channel.named, torch.empty(0))


def fits(p: torch.Tensor) -> bool:
    """Whether p's gradient is reduced where it lies; alike on ranks whose parameters are."""
    return (
        p.device.type == "cpu" and type(p.data) is torch.Tensor and p.layout is torch.strided
        and p.numel() * p.element_size() >= LARGE and torch.empty_like(p, device="meta").stride() == p.stride()
    )  # fmt: skip


def spread(layout: list[list[torch.nn.Parameter]]) -> list[list[torch.nn.Parameter]]:
    """The buckets with each gradient that fits in one of its own, before those that it was with."""
    out: list[list[torch.nn.Parameter]] = []
    for members in layout:
        out += [[p] for p in members if fits(p)]
        if packed := [p for p in members if not fits(p)]:
            out.append(packed)
    return out


class Scattered:
    """One parameter's gradient in the place of a bucket: it stays where autograd put it."""

    def __init__(self, key: int, param: torch.nn.Parameter, name: str) -> None:
        self.key = key
        self.params = [param]
        self.name = name
        self.left = 1  # hooks that have not fired in this backward pass
        self.ticket = 0
        self.large = True
        self.takes = False
        self.missing: set[int] = set()  # as a bucket of DDP's has it
        self._param = param
        self._like = param.dtype, param.device, param.stride()
        self._sent: torch.Tensor | None = None
        self._rests = False  # frozen, and without a gradient: the others are told
        self._call: Any = None

    def open(self, channel: Channel, op: Op, prescale: float, postscale: float, timeout: float | None = None) -> None:
        """Say how it is reduced."""
        self._group = channel.group
        p = self._param
        shape, number, flags = list(p.shape), code(p), NAMED if channel.named else 0

        def call(g: torch.Tensor, rests: bool) -> Call:
            at = g.data_ptr()
            return Call(
                Kind.ALLREDUCE, op, number, 0, at, at, g.numel(), prescale=prescale, postscale=postscale,
                name=self.name,
                shape=[0] if rests else shape, flags=flags, timeout=timeout, keep=g,
            )  # fmt: skip

        self._call = call

    def stale(self) -> bool:
        """Whether the parameter is no longer as it was."""
        p = self._param
        return (p.dtype, p.device, p.stride()) != self._like

    def wants(self, p: torch.nn.Parameter) -> bool:
        """Nothing is to be done when a gradient comes."""
        return False

    def zero(self, drop: bool) -> None:
        """Drop the gradient, or make it zeros."""
        g = self._param.grad
        if drop:
            self._param.grad = None
        elif g is not None:
            self._param.grad = torch.zeros_like(self._param)

    def _lies_well(self, g: torch.Tensor) -> bool:
        """Whether its elements lie as the parameter's do, and nothing else hangs on them."""
        dtype, _, stride = self._like
        return (
            type(g) is torch.Tensor and g.layout is torch.strided and g.stride() == stride and g.dtype is dtype
            and not (g.requires_grad or g.is_neg() or g.is_conj())
        )  # fmt: skip

    def collect(self) -> None:
        """Have a gradient that lies as the parameter does; a missing one counts as zeros, and stays away where the
        parameter is frozen."""
        p = self._param
        g = p.grad
        if g is None:
            self._rests = not p.requires_grad
            self._sent = torch.zeros_like(p, requires_grad=False)
            if p.requires_grad:
                p.grad = self._sent
            return
        self._rests = False
        if not self._lies_well(g):
            own = torch.empty_like(p, requires_grad=False)
            own.copy_(g.detach().to_dense() if g.layout is not torch.strided else g.detach())
            p.grad = None  # a gradient of another layout may not be replaced directly
            p.grad = g = own
        self._sent = g

    def _next(self) -> Call:
        g, self._sent = self._sent, None
        assert g is not None
        return self._call(g, self._rests)  # type: ignore[no-any-return]

    def reduce(self) -> None:
        """Reduce and wait, on this thread."""
        self._group.run(self._next())

    def submit(self) -> None:
        """Start to reduce; `finish` waits."""
        self.ticket = self._group.submit(self._next())

    def finish(self, channel: Channel) -> None:
        """Wait for what was started."""
        ticket, self.ticket = self.ticket, 0
        if not ticket:
            return
        try:
            channel.group.wait(ticket)
        finally:
            channel.group.release(ticket)

    def close(self) -> None:
        """Nothing is held but memory."""
