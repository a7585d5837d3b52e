"""What an Estimator is given to train: a torch module, a Keras model or a function."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import ArgumentError

KERAS = ("keras", "tf_keras")  # packages; the first is Keras 3, or Keras 2 beside TensorFlow up to 2.15


def keras_of(thing: Any) -> Any:
    """The package that a model, a layer or an optimizer of Keras' comes from."""
    roots = (c.__module__.partition(".")[0] for c in type(thing).__mro__)
    return importlib.import_module(next((r for r in roots if r in KERAS), "keras"))


def kind_of(model: Any) -> str:
    """torch, keras or function; raises where it is none."""
    if isinstance(model, type):
        raise ArgumentError(
            f"Estimator: model is the class {model.__name__}; give an instance, such as {model.__name__}(…)"
        )
    for cls in type(model).__mro__:
        root = cls.__module__.partition(".")[0]
        if (root, cls.__name__) == ("torch", "Module") and not any(
            c.__module__.partition(".")[0] == "keras" for c in type(model).__mro__
        ):
            return "torch"
        if root in KERAS and cls.__name__ == "Model":
            return "keras"
    if callable(model):
        return "function"
    what = "there is no model" if model is None else f"model is a {type(model).__name__}"
    raise ArgumentError(
        f"Estimator: {what}; give a torch module, a Keras model, or a function of one argument that trains"
    )
