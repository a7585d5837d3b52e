"""A model that somebody has trained elsewhere as a transformer, as if an Estimator had fitted it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from . import _frames, _keras_given, _kinds, _net, _travel
from ._tables import Layout, columns_of


def wrap_trained_model(
    model: Any,
    df: Any,
    features: Sequence[str],
    labels: Sequence[str],
    *,
    shapes: Any = None,
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """An EstimatorModel around a torch module or a Keras model; the frame's first row shows what it gives."""
    from ._estimator import EstimatorModel

    kind = _kinds.kind_of(model)
    if kind == "function":
        raise ArgumentError(f"transform: model is a {type(model).__name__}; give a torch module or a Keras model")
    custom, backend, package = None, "", "keras"
    if kind == "keras":
        keras = _kinds.keras_of(model)
        package = keras.__name__
        shapes = shapes if shapes is not None else _keras_given.shapes(model, features)
        blob, backend = _net.keras_bytes(model), keras.backend.backend()
        custom = _travel.pickled_with_code(dict(custom_objects), "custom_objects") if custom_objects else None
    else:
        blob = _travel.pickled_with_code(model, "the model")
    net = _net.Net(kind, blob, features, labels, shapes, (1,), (), custom, backend, package)
    row = df.select(*_frames.taken(df, list(features), "transform")).limit(1).toPandas()
    if not len(row):
        return EstimatorModel(net)
    columns = columns_of(row, None, "transform")
    x = _net.inputs(columns, Layout.of(columns, list(features), "transform"), shapes)
    net.outputs_of = _net.widths(_net.ask_torch(net.model, x) if kind == "torch" else net.model.predict_on_batch(x))
    return EstimatorModel(net)
