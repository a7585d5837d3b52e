"""Gradients side by side in memory that is reduced where it lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .. import _lib
from ..errors import HoraError
from ..gradients import layout
from ..group import Op
from ._channel import Channel

__all__ = ["Bucket", "assign", "finish"]

# From this size on autograd's own new gradient, copied once, is cheaper than adding to one that was zeroed.
_LARGE = 512 << 10

# From this size on a gradient is copied as soon as it is there, out of the cache; below, a hook costs more than that
# saves.
_TAKEN = 64 << 10


_address = torch.Tensor.data_ptr


class Bucket:
    """Some parameters of one element type on one device, their gradients' common memory, and how to reduce it.

    After a reduction a parameter's `.grad` is a view of that memory. When it is None or another tensor, as after
    zero_grad of a large bucket, `collect` puts the gradient where it belongs.
    """

    def __init__(self, key: int, params: Sequence[torch.nn.Parameter], name: str) -> None:
        self.key = key
        self.params = list(params)
        self.name = name
        self.left = len(self.params)  # hooks that have not fired in this backward pass
        self.ticket = 0
        self.starts: list[int] = []  # where each gradient begins in flat
        self.views: list[torch.Tensor] = []
        self.pairs: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self.place: dict[torch.nn.Parameter, torch.Tensor] = {}
        self.gaps: list[torch.Tensor] = []  # what lies between the gradients, zeros
        self.flat: Any = None  # the gradients' memory; a tensor from open() to close()
        self.wire: Any = None  # what travels, when that is not flat itself
        self.plan: Any = None  # a Plan or a Standing, from open() to close()
        self.large = False  # zero_grad drops the gradients instead of zeroing them
        self.takes = False  # each gradient is taken as soon as it is there
        self._where = 0  # the views' addresses, added up
        self._resting: set[int] = set()  # ids of parameters that were frozen meanwhile and have no gradient
        self._again: Any = None  # makes the plan for a list of shapes

    def open(self, channel: Channel, op: Op, prescale: float, postscale: float, dtype: torch.dtype | None) -> None:
        """Take memory and the plan; every rank does so in the same order."""
        first = self.params[0]
        starts, total = layout.starts([p.numel() for p in self.params], first.element_size())
        self.starts = starts
        on_host = first.device.type == "cpu"
        self.large = total * first.element_size() >= _LARGE
        if on_host:
            self.flat = channel.memory(total * first.element_size()).view(first.dtype)
            self.flat.zero_()
        else:
            self.flat = torch.zeros(total, dtype=first.dtype, device=first.device)
        self.views = [_like(self.flat, at, p) for at, p in zip(starts, self.params, strict=True)]
        ends = [*starts[1:], total]
        self.gaps = [
            self.flat[at + p.numel() : end]
            for at, end, p in zip(starts, ends, self.params, strict=True)
            if at + p.numel() < end
        ]
        self.pairs = list(zip(self.params, self.views, strict=True))
        self.place = dict(self.pairs)
        self._where = sum(map(_address, self.views))
        self.takes = self.large and on_host
        sent = dtype if dtype is not None and first.is_floating_point() else first.dtype
        if not on_host or sent != first.dtype:
            self.wire = channel.memory(total * torch.empty(0, dtype=sent).element_size()).view(sent)
        self._again = lambda shape: channel.plan(
            self.flat if self.wire is None else self.wire, op, prescale, postscale, self.name, shape
        )
        self._say(set())

    def _say(self, resting: set[int]) -> None:
        """Make the plan, which tells the other ranks each gradient's shape (the padding would hide a small difference),
        or its absence."""
        shape = [d for p in self.params for d in ((0,) if id(p) in resting else p.shape or (1,))]
        self.close()
        self.plan, self._resting = self._again(shape), resting

    def moved(self) -> bool:
        """Whether views of the common memory got other memory, as a parameter's `.grad` does by `model.double()`."""
        return sum(map(_address, self.views)) != self._where

    def stale(self) -> bool:
        """Whether parameters or gradients are no longer as they were."""
        if self.moved():
            return True
        if self.params[0].grad is self.views[0]:
            return False
        return any(p.dtype is not v.dtype or p.device != v.device for p, v in self.pairs)

    def wants(self, p: torch.nn.Parameter) -> bool:
        """Whether p's gradient is worth a hook of its own; small ones are collected together."""
        return self.takes and p.numel() * p.element_size() >= _TAKEN

    def zero(self, drop: bool) -> None:
        """Make the gradients zeros; where `drop` asks for it and that is cheaper, drop them."""
        if drop and self.large:
            for p in self.params:
                p.grad = None
            return
        if self.params[0].grad is not self.views[0]:
            self.collect()
        self.flat.zero_()
        if drop:
            for p in self.params:
                if not p.requires_grad:  # frozen since: no backward pass makes it a gradient
                    p.grad = None

    def take(self, p: torch.nn.Parameter) -> None:
        """Move p's gradient here as soon as autograd has made it.

        It is in the processor's cache then, and its memory serves the next one: for a network of some megabytes this
        costs half of what collecting all gradients at the end does.
        """
        g, v = p.grad, self.place[p]
        if g is v or g is None or g.is_sparse or g.requires_grad or g.dtype is not v.dtype:
            return
        if (
            type(g) is torch.Tensor
            and g.dtype is v.dtype
            and g.stride() == v.stride()
            and not g.is_neg()
            and not g.is_conj()
        ):
            _lib.copy(v.data_ptr(), g.data_ptr(), v.numel() * v.element_size())  # torch's own copy takes a fifth longer
        else:
            v.copy_(g)
        p.grad = None  # a gradient of another layout may not be replaced directly
        p.grad = v

    def collect(self) -> None:
        """Make every gradient a view of the common memory; a missing one counts as zeros.

        Where a parameter without one is frozen by now it stays without: momentum and weight decay would move it. Were
        it frozen on this rank alone, ranks would drift apart: the plan says so, and what differs is an error.
        """
        resting: set[int] | None = None
        strays: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        for p, v in self.pairs:
            g = p.grad
            if g is v:
                continue
            if g is None:
                v.zero_()
                if not p.requires_grad:
                    resting = resting or set()
                    resting.add(id(p))
                    continue
            elif g.is_sparse:
                v.copy_(g.detach().to_dense())
            else:
                if strays is None:
                    strays = []
                strays.append((v, g.detach() if g.requires_grad else g))  # backward(create_graph=True)
            p.grad = None  # a gradient of another layout may not be replaced directly
            p.grad = v
        if strays is not None:
            torch._foreach_copy_([v for v, _ in strays], [g for _, g in strays])
        if (resting or self._resting) and resting != self._resting:
            self._say(resting or set())

    def reduce(self) -> None:
        """Reduce and wait, on this thread."""
        if self.wire is None:
            self.plan.run()
        else:
            self.wire.copy_(self.flat)
            self.plan.run()
            self.flat.copy_(self.wire)

    def submit(self) -> None:
        """Start to reduce; `finish` waits."""
        if self.wire is not None:
            self.wire.copy_(self.flat)
        self.ticket = self.plan.submit()

    def finish(self, channel: Channel) -> None:
        ticket, self.ticket = self.ticket, 0
        if not ticket:
            return
        try:
            channel.group.wait(ticket)
        finally:
            channel.group.release(ticket)
        if self.wire is not None:
            self.flat.copy_(self.wire)

    def close(self) -> None:
        """Give back the plan; gradients stay usable."""
        plan, self.plan = self.plan, None
        if plan is not None:
            plan.close()


def finish(buckets: Iterable[Any], channel: Channel) -> None:
    """Wait for all that was started, whatever fails; the first error is raised then."""
    first: BaseException | None = None
    for bucket in buckets:
        try:
            bucket.finish(channel)
        except (HoraError, RuntimeError) as error:
            first = first or error
    if first is not None:
        raise first


def _like(flat: torch.Tensor, at: int, p: torch.Tensor) -> torch.Tensor:
    """A view of flat with p's shape, and p's strides where those are dense (channels_last keeps its layout)."""
    part = flat[at : at + p.numel()]
    if not p.is_contiguous() and _dense(p):
        return part.as_strided(p.shape, p.stride(), part.storage_offset())
    return part.view(p.shape)


def _dense(p: torch.Tensor) -> bool:
    expected = 1
    for stride, n in sorted(zip(p.stride(), p.shape, strict=True)):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def assign(
    params: Iterable[torch.nn.Parameter], groups: Sequence[Sequence[Any]] | None, limit: int
) -> list[list[torch.nn.Parameter]]:
    """Which parameters share a bucket; those of one element type and device meet."""
    return layout.assign(params, groups, limit, lambda p: (p.dtype, p.device), lambda p: p.numel() * p.element_size())
