"""DistributedOptimizer with Adasum: every rank steps by itself, then the changes are combined."""

from __future__ import annotations

from typing import Any

import torch

from ..group import Kind, Op
from ._tensor import code
from .compression import Compression, _Cast
from .optimizer import _Mixin

__all__ = ["DeltaMixin"]


class DeltaMixin(_Mixin):
    """The step of the wrapped optimizer is taken on this rank's own gradients; Adasum combines what it changed.

    The combination depends on the angle between the ranks' changes, tensor by tensor.
    """

    def _watch(self) -> None:
        params = self._claim()
        self._hooks = [params[0].register_post_accumulate_grad_hook(self._passed)] if params else []

    def synchronize(self) -> None:
        """Nothing to do before the step: the changes are combined after it."""

    def skip_synchronize(self) -> Any:
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer: the combination is part of step()")

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._passes >= self._passes_per_step:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super(_Mixin, self).zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        params = self._trainable()
        before = [p.detach().clone() for p in params]
        inner = super(_Mixin, self).step
        if closure is None:
            loss = inner()
        else:
            with torch.enable_grad():
                loss = inner(closure)
        deltas = [(p.detach() - b).contiguous() for p, b in zip(params, before, strict=True)]
        small = self._compression
        cast = small is not Compression.none and isinstance(small, type) and issubclass(small, _Cast)
        sent = [d.to("cpu", small.dtype) if cast else d.to("cpu") for d in deltas]
        calls = []
        for i, (p, t) in enumerate(zip(params, sent, strict=True)):
            at = t.data_ptr()
            calls.append({"kind": Kind.ALLREDUCE, "op": Op.ADASUM, "dtype": code(t), "send": at, "recv": at, "count": t.numel(),
                              "name": f"delta.{self._names.get(p, i)}", "shape": t.shape})  # fmt: skip
        group = self._channel.group
        tickets = group.submit_many(calls, named=self._channel.named) if calls else []
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
        self._passes = 0
        return loss
