"""DDP's gradient buckets on hora's shortest path."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import HoraError
from ..group import Group, Kind, Op, Plan
from ._tensor import code
from ._work import failure, finished_future

__all__ = ["accelerate"]


class _Hook:
    """Averages a bucket in place. Plans are kept by the bucket's memory, which DDP keeps from the second step on."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.plans: dict[tuple[int, int], Plan] = {}
        self.__name__ = self.__qualname__ = "hora_accelerate"  # DDP's log names its hook

    def __call__(self, state, bucket):  # no annotations: torch compares them, and here they are text
        t = bucket.buffer()
        key = (t.data_ptr(), t.numel())
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) > 256:  # buckets that were rebuilt
                self.plans.clear()
            p = t.data_ptr()
            plan = self.plans[key] = self.group.plan(
                Kind.ALLREDUCE, Op.AVERAGE, code(t), 0, p, p, t.numel(), name=f"ddp.bucket.{bucket.index()}"
            )
        try:
            plan.run()
        except HoraError as error:
            raise failure(error) from error
        return finished_future(t)


def accelerate(model: Any) -> Any:
    """Let a DistributedDataParallel model reduce its buckets by plans of hora's, and return the model.

    Its process group must be of backend "hora". Call it once, before the first step.

    >>> model = hora.torch.accelerate(DistributedDataParallel(model, gradient_as_bucket_view=True))
    """
    from torch.nn.parallel import DistributedDataParallel

    from .backend import HoraBackend

    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"accelerate: {type(model).__name__} is not a DistributedDataParallel model; wrap it first")
    backend = model.process_group
    if not isinstance(backend, HoraBackend):
        try:
            backend = backend._get_backend(torch.device("cpu"))
        except RuntimeError:
            backend = None
    if not isinstance(backend, HoraBackend):
        raise TypeError('accelerate: the model\'s process group is not of backend "hora"; call init_process_group("hora") first')
    model.register_comm_hook(None, _Hook(backend.group))
    return model
