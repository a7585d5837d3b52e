"""Which Keras this process trains with, and what Keras 2 and Keras 3 call differently.

`import keras` says, but where TF_USE_LEGACY_KERAS=1 has made tf.keras Keras 2: then it is the package tf_keras, as for
TensorFlow. Optimizers are known by where they come from, so that one of the other Keras is served too.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy

from .._framework import need
from ..errors import VersionError

__all__ = [
    "LEGACY",
    "array",
    "build",
    "built",
    "family",
    "inner",
    "keras",
    "made",
    "older",
    "policy",
    "two",
    "variables",
    "velocities",
]

OLDEST = (2, 11)  # the oldest that was tried
# Where gradients become the ranks' average: Keras 3's, Keras 2's, and that of its older optimizers.
_PLACES = ("_backend_apply_gradients", "aggregate_gradients", "_aggregate_gradients")


def _lacks(found: Any) -> str:
    """What hora.keras needs of a Keras and this one has not, or ""."""
    optimizer = getattr(getattr(found, "optimizers", None), "SGD", None)
    return "" if any(hasattr(optimizer, name) for name in _PLACES) else f"optimizers.SGD.{_PLACES[1]}"


def _chosen() -> Any:
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        try:
            found = importlib.import_module("tf_keras")
        except ImportError as error:
            raise VersionError(
                "import hora.keras: TF_USE_LEGACY_KERAS asks for Keras 2, and there is no package tf_keras (pip install tf_keras); "
                "unset it for Keras 3"
            ) from error
    else:
        found = need("hora.keras", "keras", OLDEST, "Keras", "keras", _lacks)
    return found


def _is_two(found: Any) -> bool:
    """Whether a module is Keras 2, which has no `ops`: there TensorFlow's operations are all."""
    return not hasattr(found, "ops")


keras = _chosen()
LEGACY = _is_two(keras)


def family(thing: Any) -> Any:
    """The Keras that an optimizer comes from: its module, or None where it comes from none."""
    for c in type(thing).__mro__:
        root = c.__module__.partition(".")[0]
        found = sys.modules.get(root) if root in ("keras", "tf_keras") else None
        if found is not None:
            return found
    return None


def two(thing: Any) -> bool:
    """Whether it comes from Keras 2."""
    found = family(thing)
    return found is not None and _is_two(found)


def older(found: Any) -> Any:
    """The module of Keras 2's older optimizers, `keras.optimizers.legacy`; None where there is none."""
    legacy = getattr(found.optimizers, "legacy", None)
    if legacy is None or hasattr(legacy, "Optimizer"):
        return legacy
    # Of the package keras before 2.13 the name shows a folder of files; its names are where tf.keras finds them.
    return importlib.import_module(f"{found.__name__}.api._v2.keras.optimizers.legacy")


def inner(optimizer: Any) -> Any:
    """The optimizer inside one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def policy() -> str:
    """The name of the policy that says which element types layers take."""
    return str(keras.mixed_precision.global_policy().name if LEGACY else keras.config.dtype_policy().name)


def array(value: Any) -> Any:
    """A variable or tensor as NumPy's, a copy of its own."""
    return numpy.array(value if LEGACY else keras.ops.convert_to_numpy(value), order="C")


def variables(thing: Any) -> list[Any]:
    """The variables of a model, a layer or an optimizer, those of text aside."""
    found = thing.variables
    if callable(found):  # of Keras 2's older optimizers it is a method
        found = found()
    return [v for v in found if "string" not in str(v.dtype)]


def made(model: Any) -> list[Any]:
    """A model's variables, as far as they are there: Keras 2 raises where none are."""
    try:
        return list(model.variables)
    except ValueError:
        return []


def built(optimizer: Any) -> bool:
    """Whether an optimizer has made its variables."""
    if not two(optimizer):
        return bool(optimizer.built)
    optimizer = inner(optimizer)
    return bool(getattr(optimizer, "_built", False) or getattr(optimizer, "_slots", None))


def build(optimizer: Any, trainable: list[Any]) -> None:
    """Have an optimizer make its variables."""
    if hasattr(optimizer, "build"):
        optimizer.build(trainable)
    else:
        optimizer._create_all_weights(trainable)


def velocities(model: Any) -> list[Any]:
    """What SGD with momentum keeps of each variable's way."""
    optimizer = inner(model.optimizer)
    if not hasattr(optimizer, "get_slot_names"):
        found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or ()
        return list(found) if getattr(optimizer, "momentum", 0) else []  # Adam's are something else
    slots = optimizer.get_slot_names()
    return [optimizer.get_slot(v, "momentum") for v in model.trainable_variables] if "momentum" in slots else []
