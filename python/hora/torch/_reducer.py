"""Averages a DDP model's gradients when its backward pass ends, while DDP's own reducer sleeps.

DDP's reducer hears of each gradient, copies it into its bucket and hands the bucket on: for small models that costs
more than communicating. Here a gradient that is worth it is moved out of the processor's cache by its hook, the others
together at the end, and the buckets lie in memory that the host's ranks share. DDP still decides when: what it tells
its reducer before and after each forward pass, it tells `Sleeper`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from .. import _lib, _world
from ..errors import HoraError
from ..gradients import cut_short, label
from ..group import Group, Kind, Op, Plan
from . import _arena
from ._channel import Channel
from ._tensor import code
from ._work import failure
from .buckets import Bucket, _like, assign, finish

__all__ = ["Averager"]

# Buckets that were in flight when their model went: the other ranks may still write to them.
_stranded: list[Any] = []

_queue_callback = torch.autograd.Variable._execution_engine.queue_callback
_grad_enabled = torch.is_grad_enabled
_set_grad_enabled = torch._C._set_grad_enabled


def _copy(into: list[torch.Tensor], out: list[torch.Tensor]) -> None:
    """Values only, whatever made them: backward(create_graph=True) gives gradients with a history."""
    enabled = _grad_enabled()
    _set_grad_enabled(False)
    try:
        torch._foreach_copy_(into, out)
    finally:
        _set_grad_enabled(enabled)


class _Channel(Channel):
    """Ordered calls, with the process group's timeout."""

    def __init__(self, group: Group, seconds: float | None) -> None:
        super().__init__(group, named=False)
        self.seconds = seconds

    def plan(self, t: torch.Tensor, op: Op, prescale: float, postscale: float, name: str, shape: list[int]) -> Plan:
        p, n = t.data_ptr(), t.numel()
        return self.group.plan(
            self.call(Kind.ALLREDUCE, op, code(t), 0, p, p, n, name=name, shape=shape, keep=t, timeout=self.seconds)
        )


class _Bucket(Bucket):
    """A bucket whose gradients become views of it (`gradient_as_bucket_view`), or are copied there and back."""

    def __init__(self, key: int, params: list[torch.nn.Parameter], name: str, as_view: bool) -> None:
        super().__init__(key, params, name)
        self.as_view = as_view
        self.missing: set[int] = (
            set()
        )  # ids of the parameters whose gradient this pass has not brought, where it is sent early
        self.taken: set[int] = set()  # and of those copied here, when their gradients stay where they are

    def renew(self) -> None:
        """New views: as a parameter's `.grad`, one got other memory, as `model.double()` gives it."""
        self.views = [_like(self.flat, at, p) for at, p in zip(self.starts, self.params, strict=True)]
        self.pairs = list(zip(self.params, self.views, strict=True))
        self.place = dict(self.pairs)

    def take(self, p: torch.nn.Parameter) -> None:
        if self.as_view:
            super().take(p)
            return
        g, v = p.grad, self.place[p]
        if (
            type(g) is torch.Tensor
            and not g.requires_grad
            and g.dtype is v.dtype
            and g.layout is v.layout
            and g.stride() == v.stride()
        ):
            _lib.copy(v.data_ptr(), g.data_ptr(), v.numel() * v.element_size())
            self.taken.add(id(p))

    def gather(self, name: Any) -> None:
        """Every gradient that is not here yet."""
        if self.moved():
            self.renew()
        into, out = [], []
        for p, v in self.pairs:
            g = p.grad
            if g is v:
                continue
            if g is None:
                v.zero_()  # dropped since its hook fired: as DDP has it, it counts as zeros and stays away
                continue
            if self.as_view:
                try:
                    p.grad = v
                except RuntimeError:
                    raise self.changed(name(p), g, v) from None
            elif id(p) in self.taken:
                continue
            elif g.dtype is not v.dtype or g.layout is not v.layout:
                raise self.changed(name(p), g, v)
            into.append(v)
            out.append(g)
        self.taken.clear()
        if into:
            _copy(into, out)

    @staticmethod
    def changed(name: str, g: torch.Tensor, v: torch.Tensor) -> RuntimeError:
        return RuntimeError(
            f"accelerate: the gradient of {name} is {g.dtype} ({g.layout}), and its parameter was {v.dtype} when DDP wrapped the model; "
            "convert the model first, then wrap it."
        )

    def give(self) -> None:
        """The averages into the gradients' own memory."""
        if not self.as_view:
            both = [(p.grad, v) for p, v in self.pairs if p.grad is not None]
            _copy([g for g, _ in both], [v for _, v in both])


class _Scattered(_arena.Scattered):
    """One gradient that stays where autograd put it, as DDP's are: what was dropped counts as zeros and stays away."""

    def take(self, p: torch.nn.Parameter) -> None:
        """Nothing is copied."""

    def gather(self, name: Any) -> None:
        """The gradient as it is sent."""
        p = self._param
        g = p.grad
        if g is not None and (g.dtype is not self._like[0] or g.layout is not torch.strided):
            raise _Bucket.changed(name(p), g, torch.empty(0, dtype=self._like[0]))
        self.collect()
        if g is None:
            p.grad = None

    def give(self) -> None:
        """The average is there."""


class Averager:
    """One model's gradients: which have come, and their buckets.

    `asked` says that a forward pass was made whose gradients are to be averaged; the pass that completes them does so.
    """

    def __init__(
        self, group: Group, params: list, names: dict, as_view: bool, overlap: bool, seconds: float | None, limit: int
    ) -> None:
        self.params = params
        self.names = names
        self.as_view = as_view
        self.overlap = overlap
        self.limit = limit
        self.channel = _Channel(group, seconds)
        self.asked = False
        self.cut = ""  # what cut an average short
        self.came: deque = deque(
            maxlen=16 * len(params) + 64
        )  # one more for each hook; backward passes nobody asked for are many
        self.buckets: list[_Bucket | _Scattered] = []
        self.home: dict[torch.nn.Parameter, _Bucket | _Scattered] = {}
        self.next = 0  # the bucket to send next, where they are sent early
        self.hooks: list[Any] = []
        self.late: list[Any] = []
        self.watch()

    # -- hooks

    def watch(self) -> None:
        """A hook on every parameter; where it has nothing to do but to say so, one that runs no Python."""
        self.unwatch()
        for p in self.params:
            busy = p in self.home and (self.overlap or self.home[p].wants(p))
            self.hooks.append(p.register_post_accumulate_grad_hook(self.arrived if busy else self.came.append))
        # What completes the gradients queues the end; a later pass may bring the rest of them.
        self.hooks.append(self.params[0].register_post_accumulate_grad_hook(self.first))

    def unwatch(self) -> None:
        for h in (*self.hooks, *self.late):
            h.remove()
        self.hooks, self.late = [], []

    def arrived(self, p: torch.nn.Parameter) -> None:
        self.came.append(p)
        if not self.asked:
            return
        bucket = self.home[p]
        if not self.overlap:
            bucket.take(p)
            return
        if bucket.ticket:
            raise RuntimeError(
                f"accelerate: the gradient of {self.name(p)} came a second time, after its bucket was sent; use each parameter in one "
                "backward pass of a forward pass, or call accelerate with overlap=False."
            )
        if bucket.wants(p):
            bucket.take(p)
        bucket.missing.discard(id(p))
        if not bucket.missing:
            self.send()

    def first(self, p: torch.nn.Parameter) -> None:
        if self.asked:
            _queue_callback(self.end)

    def send(self) -> None:
        """Start the buckets that are complete, in their order, which is the same on every rank."""
        try:
            while self.next < len(self.buckets) and not self.buckets[self.next].missing:
                bucket = self.buckets[self.next]
                bucket.gather(self.name)
                bucket.submit()
                self.next += 1
        except HoraError as error:
            raise failure(error) from error

    # -- what DDP tells its reducer

    def expect(self) -> None:
        """A forward pass was made: its gradients are to be averaged."""
        self.check()
        self.came.clear()
        self.asked = True
        if self.overlap:
            for bucket in self.buckets:
                bucket.missing = {id(p) for p in bucket.params}

    def check(self) -> None:
        """No forward pass before the gradients of the last one are averaged, or this rank would be one average behind
        the others."""
        if self.cut:
            then = "which does not know what the other ranks do now; wrap the model in DistributedDataParallel again"
            raise cut_short("accelerate", self.cut, "an average of gradients", self.channel.group.rank, then)
        if not self.asked or not self.came:
            return
        absent = [self.name(p) for p in self.absent()]
        rank = self.channel.group.rank
        if not absent:
            raise RuntimeError(
                f"Expected to have finished reduction in the prior iteration: the backward pass on rank {rank} failed."
            )
        few = ", ".join(absent[:8]) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
        raise RuntimeError(
            f"Expected to have finished reduction in the prior iteration before starting a new one: on rank {rank} the last backward pass "
            f"brought no gradient of {few}. Have every parameter take part in the loss, or pass find_unused_parameters=True to "
            "DistributedDataParallel."
        )

    def absent(self) -> list[torch.nn.Parameter]:
        have = set(map(id, self.came))
        return [p for p in self.params if id(p) not in have]

    def name(self, p: torch.nn.Parameter) -> str:
        return self.names.get(p, "a parameter")

    # -- the end of a backward pass

    def end(self) -> None:
        if not self.asked:
            return
        if len(set(map(id, self.came))) < len(self.params):
            if not self.late:
                self.late = [p.register_post_accumulate_grad_hook(self.first) for p in self.absent()]
            return
        self.asked = False
        self.came.clear()
        for h in self.late:
            h.remove()
        self.late = []
        try:
            self.average()
        except HoraError as error:
            raise failure(error) from error
        except BaseException as error:  # a signal handler's, most likely
            self.cut = type(error).__name__
            for p in self.params:
                if self.as_view or isinstance(self.home.get(p), _Scattered):
                    p.grad = None  # its memory may be on its way for a while
            raise

    def average(self) -> None:
        if not self.buckets:
            self.open()
        if self.overlap and self.next:
            self.send()
            self.next = 0
            finish(self.buckets, self.channel)
        else:
            for bucket in self.buckets:
                bucket.gather(self.name)
                bucket.reduce()
        if not self.as_view:
            for bucket in self.buckets:
                bucket.give()

    def open(self) -> None:
        """At the first average: agree on the buckets, take memory, make the plans. Every rank does so."""
        layout = assign(self.params, None, self.limit)
        shape = [n for members in layout for n in (len(members), sum(p.numel() * p.element_size() for p in members))]
        early = torch.tensor([float(self.overlap), float(_arena.open_arena())])
        at = early.data_ptr()
        self.channel.run(
            Kind.ALLREDUCE, Op.MIN, code(early), 0, at, at, 2, name="DistributedDataParallel.buckets", shape=shape,
            timeout=self.channel.seconds, keep=early,
        )  # fmt: skip
        self.overlap, spread = bool(early[0]), bool(early[1])
        if spread:
            layout = _arena.spread(layout)
            _arena.share(self.channel)
        made: list[_Bucket | _Scattered] = []
        for i, members in enumerate(layout):
            name = label(self.name(members[0]), len(members))
            bucket: _Bucket | _Scattered
            if spread and _arena.fits(members[0]):
                bucket = _Scattered(i, members[0], name)
                bucket.open(self.channel, Op.AVERAGE, 1.0, 1.0, self.channel.seconds)
            else:
                bucket = _Bucket(i, members, name, self.as_view)
                bucket.open(self.channel, Op.AVERAGE, 1.0, 1.0, None)
            if len(members) > 1:
                _world.parts(bucket.name, [self.name(p) for p in members])
            made.append(bucket)
        self.buckets = made
        self.home = {p: bucket for bucket in made for p in bucket.params}
        self.watch()

    def close(self) -> None:
        """Leave the parameters alone and give back the plans; gradients stay usable."""
        self.unwatch()
        self.asked = False
        self.came.clear()
        for bucket in self.buckets:
            if bucket.ticket:
                _stranded.append(bucket)
            else:
                bucket.close()
        self.buckets, self.home = [], {}
