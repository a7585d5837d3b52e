"""Names of Keras 2 that Keras 3 has not, made of what it has: for `hora run --legacy tf1`."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from ._gone import at_call

__all__ = ["BACKEND", "LAYERS", "LOSSES", "MODELS", "phase", "set_phase"]


def _keras() -> Any:
    return importlib.import_module("keras")


class _Phase:
    """Whether layers train, which no layer of Keras 3 asks: a number, in a graph of TensorFlow 1 what can be fed."""

    value = 0


def set_phase(value: int) -> None:
    """Say what learning_phase answers from now on."""
    _Phase.value = int(value)


def phase() -> Any:
    """The number that was set, or in a graph of TensorFlow 1 what stands for it."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return _Phase.value
    graph: Any = tf.compat.v1.get_default_graph()
    if not hasattr(graph, "_hora_phase"):
        graph._hora_phase = tf.compat.v1.placeholder_with_default(_Phase.value, [], name="keras_learning_phase")
    return graph._hora_phase


@contextlib.contextmanager
def _phase_scope(value: int) -> Iterator[None]:
    before = _Phase.value
    set_phase(value)
    try:
        yield
    finally:
        set_phase(before)


def _function(inputs: Any, outputs: Any, updates: Any = None, name: str | None = None, **_: Any) -> Any:
    """A function of lists of arrays; the learning phase may be among the inputs."""
    if updates:
        raise NotImplementedError(
            "K.function: updates are graphs' of TensorFlow 1; write a keras.Model with a train_step"
        )
    keras = _keras()
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    taken = [i for i, x in enumerate(given) if keras.backend.is_keras_tensor(x)]
    many = isinstance(outputs, (list, tuple))
    model = keras.Model([given[i] for i in taken], list(outputs) if many else [outputs], name=name)

    def call(values: Any) -> Any:
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        trains = [v for i, v in enumerate(values) if i not in taken]
        got = model([values[i] for i in taken], training=bool(trains[0] if trains else _Phase.value))
        got = got if isinstance(got, (list, tuple)) else [got]
        arrays = [keras.ops.convert_to_numpy(y) for y in got]
        return arrays if many else arrays[0]

    return call


def _placeholder(
    shape: Any = None, ndim: int | None = None, dtype: str | None = None, sparse: bool = False, name: str | None = None
) -> Any:
    import tensorflow as tf

    if shape is None and ndim is not None:
        shape = (None,) * ndim
    if not tf.executing_eagerly():
        return tf.compat.v1.placeholder(dtype or _keras().config.floatx(), shape, name)
    return _keras().Input(batch_shape=shape, dtype=dtype, sparse=sparse, name=name)


def _chosen(x: Any) -> Any:
    return x() if callable(x) else x


def _in_train_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """x where layers train, else alt; either may be a function."""
    training = phase() if training is None else training
    if isinstance(training, (bool, int)):
        return _chosen(x if training else alt)
    import tensorflow as tf

    return tf.cond(tf.cast(training, tf.bool), lambda: _chosen(x), lambda: _chosen(alt))


def _in_test_phase(x: Any, alt: Any, training: Any = None) -> Any:
    return _in_train_phase(alt, x, training)


def _print_tensor(x: Any, message: str = "") -> Any:
    import sys

    import tensorflow as tf

    said = tf.print(message, x, output_stream=sys.stdout)
    if said is None:
        return x
    with tf.control_dependencies([said]):
        return tf.identity(x)


def _random_binomial(shape: Any, p: float = 0.0, dtype: str | None = None, seed: int | None = None) -> Any:
    keras = _keras()
    return keras.ops.cast(keras.random.uniform(shape, seed=seed) < p, dtype or keras.config.floatx())


def _reset_uids() -> None:
    """Layers without a name are numbered from the beginning."""
    importlib.import_module("keras.src.utils.naming").reset_uids()


def _manual_variable_initialization(value: Any) -> None:
    """Nothing: Keras 3's variables have their values from the beginning, whoever runs initializers besides."""


def _model_from_config(config: Any, custom_objects: Any = None) -> Any:
    keras = _keras()
    if "module" in config:  # as Keras 3 writes it
        return keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)
    kind = (custom_objects or {}).get(config["class_name"])
    kind = kind or (keras.Sequential if config["class_name"] == "Sequential" else keras.Model)
    return kind.from_config(config["config"], custom_objects=custom_objects)


def _cudnn(name: str) -> Any:
    """CuDNNLSTM or CuDNNGRU: the plain layer, which takes cuDNN's kernels itself where there are any."""

    def make(units: int, *args: Any, **kwargs: Any) -> Any:
        if name == "GRU":
            kwargs.setdefault("reset_after", True)
        return getattr(_keras().layers, name)(units, *args, **kwargs)

    return make


def _gone(name: str, instead: str) -> Any:
    return at_call(f"{name} went with Keras 2: {instead}")


_TF_KERAS = "or run on Keras 2 (pip install tf_keras, TF_USE_LEGACY_KERAS=1)"
_LOCAL = f"use a Conv layer where weights may be shared, {_TF_KERAS}"

BACKEND: dict[str, Any] = {
    "function": _function, "placeholder": _placeholder, "in_train_phase": _in_train_phase,
    "in_test_phase": _in_test_phase, "print_tensor": _print_tensor, "random_binomial": _random_binomial,
    "reset_uids": _reset_uids, "learning_phase": phase, "set_learning_phase": set_phase,
    "learning_phase_scope": _phase_scope, "local_conv1d": _gone("K.local_conv1d", _LOCAL),
    "local_conv2d": _gone("K.local_conv2d", _LOCAL), "manual_variable_initialization": _manual_variable_initialization,
}  # fmt: skip
MODELS = SimpleNamespace(
    model_from_config=_model_from_config,
    model_from_yaml=_gone("keras.models.model_from_yaml", "use model_from_json and model.to_json()"),
)
LAYERS: dict[str, Any] = {
    "CuDNNLSTM": _cudnn("LSTM"), "CuDNNGRU": _cudnn("GRU"),
    "LocallyConnected1D": _gone("keras.layers.LocallyConnected1D", _LOCAL),
    "LocallyConnected2D": _gone("keras.layers.LocallyConnected2D", _LOCAL),
    "DenseFeatures": _gone("keras.layers.DenseFeatures", f"use keras.utils.FeatureSpace, {_TF_KERAS}"),
}  # fmt: skip
LOSSES = {"cosine": "cosine_similarity", "cosine_proximity": "cosine_similarity"}
