"""Elastic states of variables (TensorFlow's, or Keras' on any backend), and `run` for frameworks with classes of errors
of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

import hora
from hora import comm, frontend, objects

from .basics import HorovodBasics
from .elastic import ObjectState, run_fn
from .switches import fact
from .translate import shut_down, translated

__all__ = ["KerasState", "VariablesState", "after_rejoin", "broadcast_object", "lost", "run"]

after_rejoin: list[Callable[[], None]] = []  # what framework modules do when the ranks are others


def lost(error: BaseException) -> Exception | None:
    """The loss of a rank that is behind an exception of a framework's own class."""
    found = frontend.behind(error)
    return shut_down(found) if isinstance(found, (hora.PeerLostError, hora.ClosedError)) else None


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a state: it is called again from the last commit when ranks
    change.

    >>> @hvd.elastic.run
    ... def train(state): ...
    """

    @functools.wraps(func)
    def train(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except Exception as error:  # out of a compiled step a loss comes as the framework's
            cause = lost(error)
            if cause is None:
                raise
            raise cause from error

    return run_fn(train, _reset)


def _reset() -> None:
    HorovodBasics().rejoin()
    for f in after_rejoin:
        f()


@translated
def broadcast_object(obj: Any, root_rank: int = 0) -> Any:
    """Every rank gets root's object."""
    return objects.broadcast_object(obj, root_rank, name="broadcast_object", named=True)


class VariablesState(ObjectState):
    """A state of variables, kept as copies in the processor's memory, and of plain attributes besides."""

    def __init__(self, find: Callable[[], list[Any]], **kwargs: Any) -> None:
        self._find = find
        self._keep()
        super().__init__(broadcast_object, lambda: fact("rank"), **kwargs)

    def _held(self) -> list[Any]:
        return [v for v in self._find() if str(v.dtype) not in ("string", "<dtype: 'string'>")]

    def _read(self) -> list[Any]:
        return [numpy.array(v, order="C") for v in self._held()]

    def _write(self, values: Any) -> None:
        for v, value in zip(self._held(), values, strict=True):
            v.assign(value)

    def _keep(self) -> None:
        self._kept = self._read()

    def save(self) -> None:
        self._keep()
        super().save()

    def restore(self) -> None:
        self._write(self._kept)
        super().restore()

    def sync(self) -> None:
        self._write(_spread([numpy.array(x, order="C") for x in self._read()], self._root))
        super().sync()
        self._keep()

    def _received(self) -> None:
        ObjectState.restore(self)  # the variables are what sync() has made them


@translated
def _spread(arrays: list[Any], root: int) -> list[Any]:
    return comm.broadcast(arrays, root) if arrays else []


class KerasState(VariablesState):
    """`KerasState(model, optimizer, epoch=0, batch=0)`: a Keras model and its optimizer, and plain values."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        from hora.keras import which

        self._variables = which.variables
        if self.optimizer is not None and not which.built(self.optimizer):
            which.build(
                self.optimizer, model.trainable_variables
            )  # a newcomer has the same variables as who has trained already
        super().__init__(self._all, **kwargs)

    def _all(self) -> list[Any]:
        settle = getattr(self.model, "jax_state_sync", None)
        if settle is not None:  # while fit runs on JAX they live in the step's arguments
            settle()
        return [*self.model.variables, *(self._variables(self.optimizer) if self.optimizer is not None else ())]
