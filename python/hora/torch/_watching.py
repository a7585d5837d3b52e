"""The hooks of DistributedOptimizer: which gradients have come in a backward pass, and buckets that go while it still
runs."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..gradients import Passes
from ._channel import Channel
from .buckets import Bucket

__all__ = ["Watching"]

if TYPE_CHECKING:
    from torch.optim import Optimizer as _Inner
else:
    _Inner = object

# Which wrapper watches a parameter, by the parameter's id; a living wrapper keeps its parameters alive.
_owners: dict[int, weakref.ref] = {}


class Watching(_Inner):
    """Counts passes and gradients. `_buckets`, `_home` and `_stale` are those of the class that is derived from this
    one."""

    _buckets: Any
    _home: dict[torch.nn.Parameter, Bucket]
    _channel: Channel
    _names: dict[torch.nn.Parameter, str]
    _thin: set[torch.nn.Parameter]
    _overlap: bool
    _sparse_as_dense: bool
    _synchronized: bool
    _arriving: threading.Lock  # guards what hooks count: torch calls them on a thread for each device
    _count: Passes
    _next: int  # the bucket to start next, while backward runs
    _hooks: list[Any]

    def _stale(self) -> bool:
        raise NotImplementedError

    def _trainable(self) -> list[torch.nn.Parameter]:
        return [p for g in self.param_groups for p in g["params"] if p.requires_grad]

    def _claim(self) -> list[torch.nn.Parameter]:
        """The parameters to watch; a wrapper that watched them before counts no more: elastic training wraps again in
        each life."""
        params = self._trainable()
        self._unwatch()
        for p in params:
            before = _owners.get(id(p))
            owner = before() if before is not None else None
            if owner is not None and owner is not self:
                owner._unwatch()
            _owners[id(p)] = weakref.ref(self)
        return params if self._channel.size > 1 else []

    def _watch(self) -> None:
        params = self._claim()
        # The first parameter's gradient comes last: it counts the passes. Only overlap needs to know of each one.
        if params:
            self._hooks = [params[0].register_post_accumulate_grad_hook(self._passed)]
        wanted = [p for p in params if self._overlap or (p in self._home and self._home[p].wants(p))]
        self._hooks += [p.register_post_accumulate_grad_hook(self._arrived) for p in wanted]
        self._count.collected()

    def _unwatch(self) -> None:
        for h in self._hooks:
            h.remove()
        self._hooks = []

    def _passed(self, p: torch.nn.Parameter) -> None:
        self._count.ended()
        self._synchronized = False

    def _arrived(self, p: torch.nn.Parameter) -> None:
        """One gradient is complete; the bucket goes when all of its gradients are."""
        bucket = self._home.get(p)
        if bucket is None:
            return
        if self._sparse_as_dense and p.grad is not None and p.grad.is_sparse:
            self._thin.add(p)
        if bucket.takes:
            bucket.take(p)
        if not self._overlap:
            return
        with self._arriving:
            if self._count.came(p, lambda: self._names.get(p), bool(bucket.ticket)):
                bucket.left -= 1
                if bucket.left == 0 and (self._next or not self._stale()):
                    self._submit_ready(wait_for_all=False)

    def _submit_ready(self, wait_for_all: bool) -> None:
        """Start the buckets that are complete, in their order, which is the same on every rank."""
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if bucket.left and not wait_for_all:
                return
            bucket.collect()
            bucket.submit()
            self._next += 1
