"""A SavedModel as what predicts on the driver and on executors. TensorFlow is imported when it is first asked."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["One", "Saved", "values_of"]


def values_of(column: np.ndarray) -> np.ndarray:
    """A column as model_fn gets it: float32, int64 or text."""
    if column.dtype.kind == "f":
        return column.astype(np.float32, copy=False)
    return column.astype(np.int64, copy=False) if column.dtype.kind in "iub" else column.astype(object)


class Saved:
    """A SavedModel that travels, asked with columns; its outputs come beside each other."""

    def __init__(
        self, path: str, inputs: dict[str, str], outputs: list[tuple[str, str, int | None, str]], single: bool
    ) -> None:
        self.inputs, self.outputs, self.single = inputs, outputs, single
        self.files: dict[str, bytes] = {}
        for where, _, names in os.walk(path):
            for n in names:
                with open(os.path.join(where, n), "rb") as f:
                    self.files[os.path.relpath(os.path.join(where, n), path)] = f.read()
        self.path = [p for p in sys.path if p]
        self._session: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}

    def columns(self) -> list[tuple[str, int | None, str]]:
        """Of each output its name, its width and its type in Spark."""
        return [(name, width, kind) for name, _, width, kind in self.outputs]

    def __call__(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        if self._session is None:
            self._session = self._loaded()
        fed = {name: values_of(columns[c]) for c, name in self.inputs.items()}
        found = self._session.run([name for _, name, _, _ in self.outputs], fed)
        rows = len(next(iter(fed.values())))
        return np.concatenate([np.asarray(f).reshape(rows, -1).astype(np.float64) for f in found], axis=1)

    def _loaded(self) -> Any:
        sys.path.extend(p for p in self.path if p not in sys.path)  # as the ranks of the fit had it
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf

        v1: Any = tf.compat.v1
        config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0})
        session = v1.Session(graph=tf.Graph(), config=config)
        with tempfile.TemporaryDirectory(prefix="hora-saved-model-") as folder:
            for name, data in self.files.items():
                where = os.path.join(folder, name)
                os.makedirs(os.path.dirname(where), exist_ok=True)
                with open(where, "wb") as f:
                    f.write(data)
            with session.graph.as_default():
                v1.saved_model.load(session, ["serve"], folder)
        return session


class One:
    """One whose only output is a number for each row."""

    def __init__(self, saved: Saved) -> None:
        self.saved = saved

    @property
    def path(self) -> list[str]:
        """Where packages were found that it needs."""
        return self.saved.path

    def __call__(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.saved(columns)[:, 0]
