"""A SavedModel as what predicts on the driver and on executors. TensorFlow is imported when it is first asked."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
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
        self,
        path: str,
        inputs: dict[str, str],
        outputs: list[tuple[str, str, int | None, str]],
        single: bool,
        again: bytes | None = None,
    ) -> None:
        self.inputs, self.outputs, self.single = inputs, outputs, single
        self.again = again  # what makes the graph anew where it has hooks
        self.files: dict[str, bytes] = {}
        for where, _, names in os.walk(path):
            for n in names:
                with open(os.path.join(where, n), "rb") as f:
                    self.files[os.path.relpath(os.path.join(where, n), path)] = f.read()
        self.path = [p for p in sys.path if p]
        self._session: Any = None
        self._place = 1, ""  # threads and GPU

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None, "_place": (1, "")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"again": None, "_place": (1, "")} | state)  # those of before it had them

    def on_task(self, threads: int, gpu: str) -> None:
        """What the task has that asks it: threads, and a GPU by its address, or none."""
        if gpu:
            many = len(self._tensorflow().config.list_physical_devices("GPU"))
            if not (gpu.isdigit() and int(gpu) < many):
                warnings.warn(
                    f"Spark gave this task GPU {gpu}, but TensorFlow sees {many} here: the model stays on the CPU",
                    stacklevel=2,
                )
                gpu = ""
        if (threads, gpu) != self._place:
            self._session, self._place = None, (threads, gpu)

    def _tensorflow(self) -> Any:
        sys.path.extend(p for p in self.path if p not in sys.path)  # as the ranks of the fit had it
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf

        return tf

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
        tf = self._tensorflow()
        v1: Any = tf.compat.v1
        threads, gpu = self._place
        config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        config.use_per_session_threads = config.allow_soft_placement = config.gpu_options.allow_growth = True
        if not gpu:
            config.device_count["GPU"] = 0
        with tempfile.TemporaryDirectory(prefix="hora-saved-model-") as folder:
            for name, data in self.files.items():
                where = os.path.join(folder, name)
                os.makedirs(os.path.dirname(where), exist_ok=True)
                with open(where, "wb") as f:
                    f.write(data)
            device = f"/GPU:{gpu}" if gpu else None
            if self.again is not None:
                from ._graphs import Predicting

                return Predicting(self.again, folder, config, device)
            session = v1.Session(graph=tf.Graph(), config=config)
            with session.graph.as_default(), tf.device(device):
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

    def on_task(self, threads: int, gpu: str) -> None:
        """As of the other."""
        self.saved.on_task(threads, gpu)

    def __call__(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.saved(columns)[:, 0]
