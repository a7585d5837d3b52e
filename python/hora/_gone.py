"""Names of TensorFlow 1 and Keras 2 that no release of today has anything for: what to use instead; and those that the
package tf_keras, which is Keras 2, still has."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["MODULES", "MULTI_GPU", "Gone", "Several", "With", "from_keras_two"]


class Gone(AttributeError):
    """A name that there is nothing for; the text says what to use."""


_CONTRIB = "tf.contrib has been gone since TensorFlow 2.0: use tf.compat.v1 or tf.keras, or the packages tf_slim and tensorflow_addons that parts of it became"
_ESTIMATOR = "tf.estimator went with TensorFlow 2.16: use Keras' fit or a tf.compat.v1.train.MonitoredTrainingSession, or install TensorFlow 2.15"
_EXAMPLES = (
    "tensorflow.examples has been gone since TensorFlow 2.0: tf.keras.datasets.mnist.load_data() has the same images"
)

# Modules that are refused by name.
MODULES = {
    "tensorflow.contrib": _CONTRIB,
    "tensorflow.estimator": _ESTIMATOR,
    "tensorflow.examples": _EXAMPLES,
}


class With:
    """What an object has, and names before its own."""

    def __init__(self, of: Any, **names: Any) -> None:
        vars(self).update(names)
        self._of = of

    def __getattr__(self, name: str) -> Any:
        said = MODULES.get(f"tensorflow.{name}")
        try:
            return getattr(self._of, name)
        except AttributeError:
            if said is None:
                raise
            raise Gone(said) from None


class _KerasTwo:
    """A module of tf.compat.v1 that Keras 2 fills: its own names, else those of tf_keras."""

    def __init__(self, own: Any, path: str) -> None:
        self._own, self._path = own, path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        short = self._path.rpartition(".")[2]
        for find in (
            lambda: self._own,
            lambda: importlib.import_module(f"tf_keras.api._v1.keras.__internal__.legacy.{short}"),
        ):
            try:
                return getattr(find(), name)
            except (AttributeError, ImportError):
                pass
        raise Gone(
            f"{self._path}.{name} is Keras 2's, which this TensorFlow has no more: install the package tf_keras of the "
            "same version, or write the layer with tf.keras.layers"
        )


def from_keras_two(own: Any, path: str) -> Any:
    """tf.layers or tf.nn.rnn_cell."""
    return _KerasTwo(own, path)


def at_call(says: str) -> Callable[..., Any]:
    """A function that is refused when it is called: a module that imports it may have no use for it."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(says)

    return refused


class Several:
    """The names of several modules, those of the first first."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            found = getattr(importlib.import_module(module), name, None)
            if found is not None:
                return found
        raise AttributeError(name)


MULTI_GPU = at_call(
    "keras.utils.multi_gpu_model has been gone since Keras 2.4: start one rank a GPU with hora run, and wrap the optimizer with "
    "hvd.DistributedOptimizer"
)
