"""Callbacks for `fit`: begin as one, average what is measured, warm the learning rate up, save on one rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy

from .. import comm
from ..errors import ArgumentError
from ..group import Op
from . import _backend, which
from ._compiled import warn_of_jit
from .elastic import CommitState, UpdateBatchState, UpdateEpochState
from .which import keras

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariables",
    "CommitState",
    "LearningRateSchedule",
    "LearningRateWarmup",
    "MetricAverage",
    "UpdateBatchState",
    "UpdateEpochState",
]


def _settle(model: Any) -> None:
    """On JAX the variables live in the step's arguments while `fit` runs: have them in the model, where they can be
    seen and set."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def learning_rate(model: Any) -> float:
    _settle(model)
    return float(which.array(model.optimizer.learning_rate))


class BroadcastGlobalVariables(keras.callbacks.Callback):
    """Every rank begins with root's weights and optimizer state.

    The model's are sent before the first batch and the optimizer's too; those that only the first batch makes, as of a
    model that does not know its inputs' shape before, are sent after it.
    """

    def __init__(self, root: int = 0) -> None:
        super().__init__()
        self.root = root
        self._left = True
        self._sent = 0

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        warn_of_jit(model)

    def on_train_begin(self, logs: Any = None) -> None:
        self._weights()
        self._left = True
        self._optimizer()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._left:
            if len(which.made(self.model)) != self._sent:
                _settle(self.model)
                self._weights()
            self._optimizer()

    def _weights(self) -> None:
        made = which.made(self.model)
        self._sent = len(made)
        self._send(made)

    def _optimizer(self) -> None:
        optimizer = getattr(self.model, "optimizer", None)
        # All ranks are at the same place here: an optimizer is built everywhere or nowhere, as the model is the same.
        if optimizer is not None and which.built(optimizer):
            _settle(self.model)
            own = {
                id(v) for v in getattr(which.inner(optimizer), "_accumulated_gradients", ())
            }  # each rank's, until the pass that applies them
            self._send([v for v in which.variables(optimizer) if id(v) not in own])
            self._left = False

    def _send(self, variables: list[Any]) -> None:
        _backend.broadcast_variables(variables, self.root)


class MetricAverage(keras.callbacks.Callback):
    """Averages the epoch's metrics over all ranks; put it before callbacks that look at them (checkpoints, early
    stopping)."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = {} if logs is None else logs
        names = sorted(k for k, v in logs.items() if numpy.ndim(v) == 0)
        _same_names(names)
        if not names:
            return
        values = comm.allreduce(
            numpy.array([float(logs[k]) for k in names], dtype="float64"), Op.AVERAGE, name="metrics", named=True
        )
        for k, v in zip(names, values, strict=True):
            logs[k] = float(v)


def _same_names(names: list[str]) -> None:
    """An error on every rank if ranks have not measured the same things.

    The calls match by name, so what they are called must not depend on what was measured: ranks would wait for each
    other. A rank that has joined adds zeros, which the count tells: numbers are equal where count × Σx² = (Σx)².
    """
    told = hashlib.sha256("\n".join(names).encode()).digest()
    marks = [int.from_bytes(told[i : i + 3], "big") for i in (0, 3)]  # squares of 24 bits: their sum fits
    sums = comm.allreduce(
        numpy.array([1, *marks, *(x * x for x in marks)], dtype="int64"), name="names of metrics", named=True
    )
    count, *rest = (int(x) for x in sums)
    if all(count * rest[i + 2] == rest[i] ** 2 for i in (0, 1)):
        return
    mine = numpy.frombuffer(f"rank {comm.rank()}: {', '.join(names) or 'none'}; ".encode(), "uint8")
    every = bytes(comm.allgather(mine, name="metrics of each rank", named=True)).decode()
    raise ArgumentError(
        f"MetricAverage: ranks have measured different things ({every.rstrip('; ')}); compile the same metrics on every rank, and let "
        "callbacks before this one add a number on all ranks or on none"
    )


class LearningRateSchedule(keras.callbacks.Callback):
    """The learning rate is `initial × multiplier(epoch)` from `start` on and before `end`.

    `multiplier` is a number or a function of the epoch; with `staircase=False` of fractions of one, for
    which `steps` are the batches of an epoch: those that `fit` has, unless they are given. `momentum_correction` scales
    SGD's velocities whenever the rate changes, so that they are those of the new rate
    (https://arxiv.org/abs/1706.02677).
    """

    def __init__(
        self, initial: float, multiplier: float | Callable[[float], float], *, start: int = 0,
        end: int | None = None, staircase: bool = True, steps: int | None = None, momentum_correction: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor, staircase = float(multiplier), True
            self.multiplier = lambda epoch: factor
        self.initial, self.start, self.end, self.staircase, self.steps = initial, start, end, staircase, steps
        self._epoch, self.momentum_correction = 0, momentum_correction

    def on_train_begin(self, logs: Any = None) -> None:
        if self.staircase or self.steps:
            return
        self.steps = (self.params or {}).get("steps")
        if not self.steps:
            raise ArgumentError(
                f"{type(self).__name__}: fit knows the number of batches of an epoch when it has read one; give steps=, or "
                "steps_per_epoch= to fit"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if self.staircase:
            self._set(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.staircase:
            self._set(self._epoch + batch / float(self.steps or 1))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["learning_rate"] = learning_rate(self.model)

    def _set(self, epoch: float) -> None:
        if epoch < self.start or self.end is not None and epoch >= self.end:
            return
        now = self.initial * self.multiplier(epoch)
        try:
            before = learning_rate(self.model)
            self.model.optimizer.learning_rate = now
        except TypeError:
            raise ArgumentError(
                "LearningRateSchedule: the optimizer's learning rate is a schedule of its own and cannot be set; give the optimizer a number"
            ) from None
        if self.momentum_correction and before and now != before:
            for v in which.velocities(self.model):
                v.assign(v * (now / before))


class LearningRateWarmup(LearningRateSchedule):
    """From `initial / size` to `initial` over the first epochs, batch by batch: large rates do harm in the beginning.

    `initial` is the rate that training goes on with, usually one process' rate times hora.size().
    """

    def __init__(self, initial: float, *, epochs: float = 5, steps: int | None = None, verbose: bool = False) -> None:
        n = comm.size()

        def multiplier(epoch: float) -> float:
            epoch += 1.0 / (self.steps or 1)  # the last batch of the warm-up has the full rate
            return 1.0 / n * (epoch * (n - 1) / epochs + 1)

        super().__init__(initial, multiplier, end=int(epochs + 0.5), staircase=False, steps=steps)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end is not None and epoch == self.end - 1 and comm.rank() == 0:
            print(f"Epoch {epoch + 1}: the learning rate has warmed up to {learning_rate(self.model):g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """keras.callbacks.ModelCheckpoint of the best model, on rank 0 alone. Put MetricAverage before it."""

    def __init__(self, filepath: str = "", monitor: str = "val_loss", **options: Any) -> None:
        options.pop("save_best_only", None)
        if not filepath:
            raise ArgumentError("BestModelCheckpoint: filepath is missing; where is the model to be saved?")
        super().__init__(filepath, monitor=monitor, save_best_only=True, **options)

    def _save_model(self, *args: Any, **kwargs: Any) -> Any:
        if comm.rank() == 0:
            return super()._save_model(*args, **kwargs)
        return None
