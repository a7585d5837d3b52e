"""A Keras callback that tells the driver how training goes."""

from __future__ import annotations

import time
from typing import Any

import keras

from sparkdl.horovod import log_to_driver

__all__ = ["LogCallback"]


class LogCallback(keras.callbacks.Callback):
    """Tells the driver of each epoch's begin and end with its metrics, and with `per_batch_log` of each batch's.

    >>> model.fit(x, y, callbacks=[LogCallback()])
    """

    def __init__(self, per_batch_log: bool = False) -> None:
        super().__init__()
        self.per_batch_log = per_batch_log

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        log_to_driver(f"Epoch {epoch} begins at {_now()}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        log_to_driver(f"Epoch {epoch} ends at {_now()}{_metrics(logs)}")

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.per_batch_log:
            log_to_driver(f"Batch {batch} ends at {_now()}{_metrics(logs)}")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _metrics(logs: dict[str, Any] | None) -> str:
    return "".join(f", {name}: {float(value):.6g}" for name, value in (logs or {}).items())
