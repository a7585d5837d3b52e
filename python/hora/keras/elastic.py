"""Elastic training with `fit`: the state, and the callbacks that keep it.

>>> state = hora.keras.KerasState(model, epoch=0, batch=0)
>>> @hora.elastic.run
... def train(state):
...     model.fit(x, y, epochs=10 - state.epoch, callbacks=[
...         hora.keras.callbacks.UpdateEpochState(state), hora.keras.callbacks.UpdateBatchState(state),
...         hora.keras.callbacks.CommitState(state, every=10)])
"""

from __future__ import annotations

from typing import Any

from .. import _variables
from ..elastic import State
from ..errors import ArgumentError
from . import which
from .which import keras

__all__ = ["CommitState", "KerasState", "UpdateBatchState", "UpdateEpochState"]


def _of(value: Any) -> list[Any]:
    """The variables of a model, an optimizer or a layer; of the model's optimizer too, where fit has both."""
    settle = getattr(value, "jax_state_sync", None)
    if settle is not None:  # while fit runs on JAX they live in the step's arguments
        settle()
    return which.variables(value)


def _kinds() -> tuple[type, ...]:
    old = getattr(which.older(keras), "Optimizer", None) if which.LEGACY else None
    return (keras.layers.Layer, keras.optimizers.Optimizer, *((old,) if isinstance(old, type) else ()))


_variables.register(
    "a Keras model or optimizer",
    lambda value: isinstance(value, _kinds()),
    _of,
    which.array,
)


class KerasState(State):
    """A Keras model and its optimizer, and plain values: `KerasState(model, epoch=0, batch=0)`.

    The optimizer's variables are made if they are not there, so that newcomers have the same ones as who has trained
    already.
    """

    def __init__(self, model: Any, optimizer: Any = None, **values: Any) -> None:
        if not model.built:
            raise ArgumentError(
                "make KerasState: the model has no variables yet; call model.build(input_shape), or the model on a batch, first"
            )
        optimizer = optimizer or getattr(model, "optimizer", None)
        if optimizer is not None:
            if not which.built(optimizer):
                which.build(optimizer, model.trainable_variables)
            values = {"optimizer": optimizer} | values
        super().__init__(model=model, **values)


class CommitState(keras.callbacks.Callback):
    """Commits the state after every so many batches, and after each epoch. Put it after those that update the state."""

    def __init__(self, state: Any, every: int = 1) -> None:
        super().__init__()
        self.state, self.every = state, every
        self.left, self.last = every, -1

    def on_train_begin(self, logs: Any = None) -> None:
        self.left, self.last = self.every, -1  # alike on all ranks after a change of them

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.last = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= batch - self.last if batch > self.last else 1  # with steps_per_execution more than one
        self.last = batch
        if self.left <= 0:
            self.left = self.every
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class UpdateBatchState(keras.callbacks.Callback):
    """Keeps the number of the batch in `state.batch`, 0 at an epoch's end.

    An epoch that is broken off begins anew: fit has no batch to begin with.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochState(keras.callbacks.Callback):
    """Keeps the number of epochs that are done in `state.epoch`, across calls of fit that each begin with 0."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state, self.initial_epoch = state, state.epoch
        self._first: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial_epoch, self._first = self.state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._first is None:
            self._first = epoch  # not 0 where fit was given initial_epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1
