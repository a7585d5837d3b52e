"""What a torch training must not lose when ranks come and go."""

from __future__ import annotations

from typing import Any

import torch

from ..elastic import State
from .broadcast import broadcast_parameters
from .sampler import ElasticSampler

__all__ = ["TorchState"]


class TorchState(State):
    """`hora.elastic.State` that knows torch: weights travel as tensors, samplers share out anew what is left.

    >>> state = hora.torch.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
    >>> @hora.elastic.run
    ... def train(state): ...
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.on_reset(self._share_out)

    def _share_out(self) -> None:
        """The ranks are others now: each sampler takes its part of what the epoch has left."""
        for name in self._values:
            value = self.__dict__[name]
            if isinstance(value, ElasticSampler):
                value.reset()

    def _receive(self, root: int) -> None:
        modules = {n: v for n, v in self._values.items() if isinstance(self.__dict__[n], torch.nn.Module)}
        everything = self._values
        self._values = {n: v for n, v in everything.items() if n not in modules}
        try:
            super()._receive(root)
        finally:
            self._values = everything
        for name in modules:
            broadcast_parameters(self.__dict__[name].state_dict(), root_rank=root)
