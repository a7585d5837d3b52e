"""TorchState: models, optimizers, samplers and plain values that survive a change of ranks."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ...common.elastic import ObjectState
from ..functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ..mpi_ops import rank
from .sampler import ElasticSampler

__all__ = ["TorchState"]


class _Handler:
    """How one kind of value is saved, restored and sent; sync() saves nothing: half of another rank's state is worth
    nothing."""

    root = 0  # whose value sync() spreads

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))  # an optimizer goes on in the tensors that it is given

    def sync(self) -> None:
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()


class _ModelHandler(_Handler):
    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=self.root)


class _OptimizerHandler(_Handler):
    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=self.root)


class _SamplerHandler(_Handler):
    """What all ranks together have processed is what the one that has counted most says."""

    def sync(self) -> None:
        states = allgather_object(self.value.state_dict(), "elastic.sampler")
        epoch = max(s["epoch"] for s in states)
        done = max(s["processed_num"] for s in states if s["epoch"] == epoch)
        self.value.load_state_dict({"epoch": epoch, "processed_num": done})


_HANDLERS: list[tuple[type, type[_Handler]]] = [
    (torch.nn.Module, _ModelHandler),
    (torch.optim.Optimizer, _OptimizerHandler),
    (ElasticSampler, _SamplerHandler),
]


def get_handler_registry() -> list[tuple[type, type[_Handler]]]:
    return list(_HANDLERS)


def set_handler_registry(registry: list[tuple[type, type[_Handler]]]) -> None:
    _HANDLERS[:] = registry


class TorchState(ObjectState):
    """State of a torch job: `TorchState(model=model, optimizer=opt, sampler=sampler, epoch=0)`.

    Modules, optimizers and samplers are handled as such, everything else is an object to copy.
    """

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        if model is not None:
            kwargs["model"] = model
        if optimizer is not None:
            kwargs["optimizer"] = optimizer
        self._handlers: dict[str, _Handler] = {}
        plain = {}
        for name, value in kwargs.items():
            kind = next((h for t, h in _HANDLERS if isinstance(value, t)), None)
            if kind is None:
                plain[name] = value
            else:
                self._handlers[name] = kind(value)
                object.__setattr__(self, name, value)
        super().__init__(broadcast_object, rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.root = self._root
            handler.sync()
        super().sync()
        for handler in self._handlers.values():
            handler.save()

    def _received(self) -> None:
        ObjectState.restore(self)  # what has a handler is what sync() has made it

    def reset(self) -> None:
        for handler in self._handlers.values():
            if isinstance(handler, _SamplerHandler):
                handler.value.reset()
