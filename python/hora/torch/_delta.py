"""DistributedOptimizer with Adasum: every rank steps by itself, then the changes are combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import _lib
from ..errors import HoraError
from ..group import Kind, Op
from . import _replicas
from ._tensor import code
from .compression import Compression, _Cast

__all__ = ["DeltaMixin"]

if TYPE_CHECKING:
    from torch.optim import Optimizer as _Inner
else:
    _Inner = object


class DeltaMixin(_Inner):
    """The step of the wrapped optimizer is taken on this rank's own gradients; Adasum combines what it changed.

    The combination depends on the angle between the ranks' changes, tensor by tensor. Stands before the optimizer's
    other mixin, whose `step` and `zero_grad` it passes by.
    """

    _hora_inner: Any  # the wrapped optimizer's class

    def _watch(self) -> None:
        params = self._claim()
        self._hooks = [params[0].register_post_accumulate_grad_hook(self._passed)] if params else []

    def synchronize(self) -> None:
        """Nothing to do before the step: the changes are combined after it."""

    def skip_synchronize(self) -> Any:
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer: the combination is part of step()"
        )

    def _hora_ready(self) -> None:
        """Each rank's scaler looks at that rank's own gradients."""

    def _hora_found(self, found: Any) -> None:
        """What it found on one rank holds on all: they skip a step together."""
        if self._channel.size == 1:
            return
        for device in found:
            host = device.detach().to("cpu", copy=True)
            at = host.data_ptr()
            self._channel.run(
                Kind.ALLREDUCE, Op.MAX, code(host), 0, at, at, 1, name="DistributedOptimizer.infinite", keep=host
            )
            device.copy_(host)

    def _hora_compare(self) -> None:
        """Look whether the ranks' parameters are the same, at the first step and where that is asked for."""
        try:
            if not self._steps:
                _replicas.judge(self, self._greatest(_replicas.numbers(self), "replicas"))
            elif self._every and self._steps % self._every == 0:
                _replicas.compare(self)
        except HoraError as error:
            raise self._hora_translate(error) from None
        self._steps += 1

    def _hora_stepped(self) -> None:
        self._count.reduced()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._count.full:
            self._count.refuse_zeroing()
        self._hora_inner.zero_grad(self, set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        self._opt_called = True
        if self._age != _lib.age:
            self._renew()
        if self._channel.size > 1:
            self._hora_compare()
        params = self._trainable()
        before = [p.detach().clone() for p in params]
        if closure is None:
            loss = self._hora_inner.step(self)
        else:
            with torch.enable_grad():
                loss = self._hora_inner.step(self, closure)
        deltas = [(p.detach() - b).contiguous() for p, b in zip(params, before, strict=True)]
        small = self._compression
        cast = small is not Compression.none and isinstance(small, type) and issubclass(small, _Cast)
        sent = [d.to("cpu", small.dtype) if cast else d.to("cpu") for d in deltas]
        calls = []
        for i, (p, t) in enumerate(zip(params, sent, strict=True)):
            at = t.data_ptr()
            name = f"delta.{self._names.get(p, i)}"
            calls.append(
                self._channel.call(
                    Kind.ALLREDUCE, Op.ADASUM, code(t), 0, at, at, t.numel(), name=name, shape=t.shape, keep=t
                )
            )
        group = self._channel.group
        tickets = group.submit_many(calls, awaited=True) if calls else []
        error: BaseException | None = None
        for ticket in tickets:
            try:
                group.wait(ticket)
            except RuntimeError as e:
                error = error or e
            finally:
                group.release(ticket)
        if error is not None:
            raise self._hora_translate(error)
        for p, b, t in zip(params, before, sent, strict=True):
            p.copy_(b + t.to(b))
        self._count.reduced()
        return loss

    step._wrapped_by_lr_sched = step.hooked = True  # as the other mixin's
