"""Event files of a run, for TensorBoard: written by the framework's own writer into the run's folder `logs`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from . import _store

__all__ = ["of"]


def of(kind: str, store: _store.Store, run: str) -> Any:
    """Who writes them; None where the framework has no writer here: torch needs tensorboard, Keras its TensorFlow."""
    folder = store.path(f"runs/{run}/logs") if store.local else tempfile.mkdtemp(prefix="hora-events-")
    try:
        writer = _Torch(folder) if kind == "torch" else _Keras(folder) if kind == "keras" else None
    except ImportError:
        writer = None
    if writer is None:
        if not store.local:
            shutil.rmtree(folder, ignore_errors=True)
        return None
    return _Events(writer, store, run, folder)


class _Events:
    """One point for each number of an epoch."""

    def __init__(self, writer: Any, store: _store.Store, run: str, folder: str) -> None:
        self._writer, self._store, self._run, self._folder = writer, store, run, folder

    def add(self, logs: Mapping[str, float]) -> None:
        """An epoch's; they are on the disk, or in the store, when it returns."""
        for name, value in logs.items():
            if name != "epoch":
                self._writer.add(name, value, int(logs["epoch"]))
        self._writer.flush()
        if not self._store.local:
            for name in os.listdir(self._folder):
                with open(os.path.join(self._folder, name), "rb") as f:
                    self._store.write(f"runs/{self._run}/logs/{name}", f.read())

    def close(self) -> None:
        """No more come."""
        self._writer.close()
        if not self._store.local:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Torch:
    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._own = SummaryWriter(folder)

    def add(self, name: str, value: float, epoch: int) -> None:
        self._own.add_scalar(name, value, epoch)

    def flush(self) -> None:
        self._own.flush()

    def close(self) -> None:
        self._own.close()


class _Keras:
    def __init__(self, folder: str) -> None:
        from ..keras.which import keras

        if keras.backend.backend() == "torch":
            self._torch: _Torch | None = _Torch(folder)
            return
        self._torch = None
        import tensorflow as tf

        v1: Any = tf.compat.v1
        with tf.Graph().as_default():  # this writer needs no package but TensorFlow
            self._own, self._summary = v1.summary.FileWriter(folder), v1.Summary

    def add(self, name: str, value: float, epoch: int) -> None:
        if self._torch is not None:
            self._torch.add(name, value, epoch)
            return
        self._own.add_summary(self._summary(value=[self._summary.Value(tag=name, simple_value=value)]), epoch)

    def flush(self) -> None:
        (self._torch or self._own).flush()

    def close(self) -> None:
        (self._torch or self._own).close()
