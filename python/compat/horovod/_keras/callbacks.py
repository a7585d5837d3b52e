"""hora.keras' callbacks under Horovod's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hora
import hora.keras.callbacks as own
from hora import frontend
from hora.keras import broadcast_variables
from hora.keras.which import keras

from ..common.switches import fact
from ..common.translate import translated

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


def _both(variable: Any) -> list[Any]:
    """A variable of Keras 3, and TensorFlow's inside it; of Keras 2 it is TensorFlow's own."""
    value = getattr(variable, "value", None)
    return [variable] if value is None or callable(value) else [variable, value]


class BroadcastGlobalVariablesCallback(own.BroadcastGlobalVariables):
    """Every rank begins with root's weights and optimizer state; `local_variables` stay each rank's own."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__(root_rank)
        held = (
            []
            if local_variables is None
            else local_variables
            if isinstance(local_variables, (list, tuple))
            else [local_variables]
        )
        if any(not hasattr(v, "assign") for v in held):
            raise ValueError("All local variables must be of tf.Variable type.")
        self.local_variables = list(held)

    def _send(self, variables: list[Any]) -> None:
        local = {id(x) for v in self.local_variables for x in _both(v)}
        try:
            broadcast_variables([v for v in variables if not any(id(x) in local for x in _both(v))], self.root)
        except Exception as error:  # of the backend's own class
            found = frontend.behind(error)
            if found is None:
                raise
            raise found from error

    on_train_begin = translated(own.BroadcastGlobalVariables.on_train_begin)
    on_train_batch_end = translated(own.BroadcastGlobalVariables.on_train_batch_end)


class MetricAverageCallback(own.MetricAverage):
    """Averages the epoch's metrics over all ranks; put it before callbacks that look at them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    on_epoch_end = translated(own.MetricAverage.on_epoch_end)


class LearningRateScheduleCallback(own.LearningRateSchedule):
    """The learning rate is `initial_lr * multiplier(epoch)` from `start_epoch` on and before `end_epoch`."""

    def __init__(
        self, initial_lr: float, multiplier: float | Callable[[float], float], start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True, momentum_correction: bool = True, steps_per_epoch: int | None = None,
    ) -> None:  # fmt: skip
        smooth = not staircase and callable(multiplier)
        super().__init__(
            initial_lr, multiplier, start=start_epoch, end=end_epoch, staircase=not smooth,
            steps=steps_per_epoch or (1 if smooth else None), momentum_correction=momentum_correction,
        )  # fmt: skip
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.steps_per_epoch = steps_per_epoch

    def on_train_begin(self, logs: Any = None) -> None:
        if self.staircase or self.steps_per_epoch:
            return
        found = (self.params or {}).get("steps")
        if not found:
            raise ValueError(
                f"{type(self).__name__}: Could not autodetect the number of steps per epoch, which fit does not know before it has read "
                "them; give steps_per_epoch="
            )
        self.steps = int(found)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if logs is not None:
            logs["lr"] = logs["learning_rate"]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From `initial_lr / size` to `initial_lr` over the first epochs, batch by batch."""

    def __init__(
        self, initial_lr: float, warmup_epochs: float = 5, momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        def multiplier(epoch: float) -> float:
            n = fact("size")
            epoch += 1.0 / (self.steps or 1)  # the last batch of the warm-up has the full rate
            return 1.0 / n * (epoch * (n - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)  # type: ignore[arg-type]
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end is not None and epoch == self.end - 1 and hora.rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has warmed up to {own.learning_rate(self.model):g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """keras.callbacks.ModelCheckpoint of the best model, on rank 0 alone; `filepath` may be set later."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
    ) -> None:
        super().__init__(filepath or "later.keras", monitor, verbose, True, False, mode, save_freq)
        self.filepath = filepath and str(filepath)

    def _save_model(self, *args: Any, **kwargs: Any) -> Any:
        if not self.filepath:
            raise ValueError("BestModelCheckpoint: there is no path to save to; set its filepath before fit")
        return super()._save_model(*args, **kwargs) if hora.rank() == 0 else None
