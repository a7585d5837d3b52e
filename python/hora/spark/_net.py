"""What an Estimator has fitted, at work: columns in, one row of outputs for each row, whatever framework made it."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import _members, _settings
from ._tables import Columns, Layout, rows_of


def column_for_model(values: np.ndarray, shape: Sequence[int] | None) -> np.ndarray:
    """A column as a model takes it: fractions as float32, whole numbers as int64, in the shape that was given for a
    row."""
    found = np.ascontiguousarray(values, dtype=np.int64 if values.dtype.kind in "iu" else np.float32)
    if shape is None:
        return found
    inner = [int(d) for d in shape]
    if len(inner) > 1 and inner[0] == -1:  # the rows, which some write along
        inner = inner[1:]
    try:
        return found.reshape(len(found), *inner)
    except ValueError:
        width = found.shape[1] if found.ndim == 2 else 1
        raise ArgumentError(
            f"a column of {width} values a row cannot have the shape {tuple(inner)}; give one of {width} values"
        ) from None


def inputs(columns: Columns, layout: Layout, shapes: Sequence[Sequence[int] | None] | None) -> Any:
    """The features as a model is given them: one float32 matrix, or an array for each column where shapes are given."""
    if shapes is None:
        return layout.matrix(columns).astype(np.float32, copy=False)
    found = [column_for_model(columns[n], s) for n, s in zip(layout.names, shapes, strict=True)]
    return found[0] if len(found) == 1 else found


def flat(out: Any) -> np.ndarray:
    """What a model returned, a tensor or several, as one matrix; of torch or of Keras."""
    parts = list(out.values()) if isinstance(out, Mapping) else list(out) if isinstance(out, (list, tuple)) else [out]
    arrays = []
    for p in parts:
        a = p.detach().float().cpu().numpy() if hasattr(p, "detach") else np.asarray(p)
        arrays.append(a.reshape(len(a), -1).astype(np.float64))
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)


def widths(out: Any) -> tuple[int, ...]:
    """How many values each output of a model has."""
    parts = list(out.values()) if isinstance(out, Mapping) else list(out) if isinstance(out, (list, tuple)) else [out]
    return tuple(int(np.prod(tuple(p.shape)[1:], dtype=np.int64)) for p in parts)


def asked_other(model: Any, columns: Columns, features: Sequence[str], layout: Layout | None) -> np.ndarray:
    """The outputs of a model that a training function returned: of torch, an estimator, a Booster, or a function of
    columns."""
    asked = _members.known(model)
    if isinstance(asked, _members._Function):
        out = asked.outputs(np.empty((0, 0)), columns)
    else:
        matrix = (layout or Layout.of(columns, list(features), "transform")).matrix(columns)
        out = asked.outputs(matrix, columns) if isinstance(asked, _members._Torch) else asked.answer(matrix, columns)
    out = np.asarray(out)
    if out.dtype.kind not in "fiub" or out.ndim == 0 or len(out) != rows_of(columns):
        raise ArgumentError("the model must give a number, or a row of numbers, for each row that it is asked with")
    return out.reshape(len(out), -1).astype(np.float64)


class Net(_members._Function):
    """A fitted model that travels. `blob` is a pickled torch module, a Keras file, or a pickled model of another
    kind."""

    package = "keras"  # of a Keras model

    def __init__(
        self, kind: str, blob: bytes, features: Sequence[str], labels: Sequence[str], shapes: Any,
        outputs: Sequence[int],
        wide: Sequence[bool] = (), custom: bytes | None = None, backend: str = "",
        package: str = "keras",
    ) -> None:  # fmt: skip
        self.kind, self.blob, self.features, self.labels = kind, blob, tuple(features), tuple(labels)
        self.shapes, self.outputs_of, self.wide, self.custom, self.backend = (
            shapes,
            tuple(outputs),
            tuple(wide),
            custom,
            backend,
        )
        self.package = package
        self.path = [p for p in sys.path if p]
        self.device = ""  # of torch its own word, of Keras "gpu:0" or "cpu:0", once a task has said
        self._live: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_live": None, "device": ""}

    def is_wide(self, output: int) -> bool:
        """Whether that output's label is a list of numbers itself, so that several values are no classes."""
        return output < len(self.wide) and self.wide[output]

    @property
    def model(self) -> Any:  # type: ignore[override]
        """The framework's own model."""
        if self._live is None:
            self._as_the_ranks()
            self._live = self._keras() if self.kind == "keras" else pickle.loads(self.blob)
            if self.kind == "torch":
                self._live.eval()
        return self._live

    def _as_the_ranks(self) -> None:
        """Packages are found, and Keras is of the kind, as in the ranks of a job."""
        sys.path.extend(p for p in self.path if p not in sys.path)
        if self.kind == "keras":
            if self.backend:
                os.environ.setdefault("KERAS_BACKEND", self.backend)
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    def _keras(self) -> Any:
        with self._on_device():
            return keras_model(self.blob, pickle.loads(self.custom) if self.custom else None, package=self.package)

    def _on_device(self) -> Any:
        """Where a Keras model lies and is asked."""
        return keras_device(self.package, self.device) if self.device else contextlib.nullcontext()

    def _ask(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        given = {n: columns[n] for n in self.features}
        if self.kind == "function":
            return asked_other(self.model, given, self.features, None)
        x = inputs(given, Layout.of(given, self.features, "transform"), self.shapes)
        if self.kind == "torch":
            return flat(ask_torch(self.model, x, self.device))
        with self._on_device():
            return flat(self.model.predict_on_batch(x))

    def classes(self) -> np.ndarray | None:
        return None

    def kind_of_answers(self) -> str:
        """How Spark names the type of its predictions."""
        return "array<double>" if self.is_wide(0) else "bigint" if self.outputs_of[0] > 1 else "double"

    def outputs(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """All outputs beside each other, as they are."""
        return self._ask(columns)

    def proba(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The first output's, where it is of classes: logits, but for rows that are probabilities already."""
        if self.outputs_of[0] < 2 or self.is_wide(0):
            return None
        return _members._shares(self._ask(columns)[:, : self.outputs_of[0]])

    def answer(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The first output: its value, or the likeliest class."""
        out = self._ask(columns)[:, : self.outputs_of[0]]
        return out[:, 0] if out.shape[1] == 1 else out if self.is_wide(0) else out.argmax(axis=1)

    def settle(self, threads: int, gpu: str) -> None:
        self._as_the_ranks()
        if self.kind == "keras":
            device = keras_place(self.backend, threads, gpu)
            if device != self.device:
                self.device, self._live = device, None  # its weights are where they were made
        elif self.kind == "function":
            _members.known(self.model).settle(threads, gpu)
        else:
            import torch

            torch.set_num_threads(threads)
            if gpu:
                self.device = _members.torch_device(gpu)
                self.model.to(self.device)


def ask_torch(model: Any, x: Any, device: Any = "") -> Any:
    """A torch module's outputs for arrays."""
    import torch

    given = [torch.from_numpy(a) for a in (x if isinstance(x, list) else [x])]
    if device:
        given = [g.to(device) for g in given]
    with torch.no_grad():
        return model(*given)


def keras_bytes(model: Any) -> bytes:
    """A Keras model as the file that Keras itself loads."""
    with tempfile.TemporaryDirectory(prefix="hora-keras-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as f:
            return f.read()


def keras_model(blob: bytes, custom: dict[str, Any] | None, compile: bool = False, package: str = "keras") -> Any:
    """The model in such a file, of the package that it was saved by: keras or tf_keras."""
    keras = importlib.import_module(package)
    with tempfile.TemporaryDirectory(prefix="hora-keras-") as folder, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Skipping variable loading for optimizer .* has 2 variables"
        )  # of one that has not begun
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as f:
            f.write(blob)
        return keras.saving.load_model(path, custom_objects=custom, compile=compile)


def keras_place(backend: str, threads: int, gpu: str) -> str:
    """Tells the framework below Keras, "" being TensorFlow, what the task has; how Keras names the device to use."""
    if backend == "torch":
        import torch

        torch.set_num_threads(threads)
        many = torch.cuda.device_count()
    elif backend == "jax":
        _settings.put("NPROC", str(threads))  # by which it goes when it begins
        _settings.put("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        many = sum(d.platform == "gpu" for d in jax.local_devices())
    else:
        import tensorflow as tf

        many = len(tf.config.list_physical_devices("GPU"))
        if not gpu:
            with contextlib.suppress(RuntimeError):  # it has begun in this process, with what it sees
                tf.config.set_visible_devices([], "GPU")
    if gpu and not (gpu.isdigit() and int(gpu) < many):
        warnings.warn(
            f"Spark gave this task GPU {gpu}, but {backend or 'tensorflow'} sees {many} here: the model stays on the CPU",
            stacklevel=2,
        )
        gpu = ""
    return f"gpu:{gpu}" if gpu else "cpu:0"


def keras_device(package: str, device: str) -> Any:
    """A scope in which Keras makes and asks a model on that device."""
    keras = importlib.import_module(package)
    if hasattr(keras, "device"):
        return keras.device(device)
    import tensorflow as tf  # below Keras 2

    return tf.device(f"/{device}")


def npz(arrays: Sequence[np.ndarray]) -> bytes:
    """Arrays in their order, as bytes."""
    out = io.BytesIO()
    np.savez(out, **{str(i): np.asarray(a) for i, a in enumerate(arrays)})
    return out.getvalue()


def arrays(data: bytes) -> list[np.ndarray]:
    """The same arrays."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        return [found[str(i)] for i in range(len(found.files))]


def keras_weights(model: Any) -> dict[str, Any]:
    """A Keras model's weights by their paths, which are made different where they are not."""
    names = [getattr(v, "path", v.name) for v in model.weights]
    return {
        n if names.count(n) == 1 else f"{n}.{i}": w
        for i, (n, w) in enumerate(zip(names, model.get_weights(), strict=True))
    }
