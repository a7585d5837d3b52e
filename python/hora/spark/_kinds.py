"""What an Estimator is given to train: a torch module, a Keras model or a function."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ArgumentError


def kind_of(model: Any) -> str:
    """torch, keras or function; raises where it is none."""
    if isinstance(model, type):
        raise ArgumentError(f"Estimator: model is the class {model.__name__}; give an instance, such as {model.__name__}(…)")
    for cls in type(model).__mro__:
        root = cls.__module__.partition(".")[0]
        old = root == "tf_keras" or (root == "keras" and str(getattr(sys.modules.get("keras"), "__version__", "")).startswith("2."))
        if old and cls.__name__ in ("Model", "Layer"):
            raise ArgumentError(
                f"Estimator: the model is one of Keras 2 ({root}), and Estimator trains those of Keras 3: make it with keras instead, or "
                "train it in hora.spark.run with hora.keras, which knows Keras 2"
            )
        if (root, cls.__name__) == ("torch", "Module") and not any(c.__module__.partition(".")[0] == "keras" for c in type(model).__mro__):
            return "torch"
        if root == "keras" and cls.__name__ == "Model":
            return "keras"
    if callable(model):
        return "function"
    what = "there is no model" if model is None else f"model is a {type(model).__name__}"
    raise ArgumentError(f"Estimator: {what}; give a torch module, a Keras model, or a function of one argument that trains")
