"""What a package needs of hora.spark that puts another interface before it, besides `hora.spark`'s own names.

`hora-compat` stands on this page. Names are looked up when they are first used: an executor imports only what its task
needs.

active_session      the Spark session of this process, or None
default_tasks       of how many tasks Spark makes work that says nothing of that
spark_setting       one of a session's settings, as text; a default where Spark has none, or does not tell
launch              hora.spark.run with what only a front end chooses: where output goes, the hub's flags, the limit of
                    the start, a call around the function
Wording             the names that advice calls the front end and its arguments by; launch takes one
refuse_spark_objects    raises where a call would take along what lives on the driver alone
pickled_with_code   a value's bytes, with the code that lies in the user's own files
read_saved, write_saved     the metadata and the blobs of a folder that a model or an estimator was saved in
wrap_trained_model  an EstimatorModel around a torch module or a Keras model that was trained elsewhere
with_outputs        a frame with all outputs of a model as one more column
column_for_model    a column as the type and the shape that a model takes
keras_of, is_compiled       the package that a Keras model comes from, and whether compile() was called
keras_bytes, keras_model    a Keras model as the file that Keras loads, and the model in one
loss_of_outputs     the loss of all of a torch module's outputs together, of rows that may have weights
average_buffers     has the ranks agree on a torch module's buffers, such as a BatchNorm's means
trained_optimizer   a copy of a torch module and its optimizer with what a fit has learned
module_digest       a torch module's name, and a digest of its layers and of its weights' shapes
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded by __getattr__
    from ._cluster import active_session, default_tasks, spark_setting
    from ._fit import with_outputs
    from ._fit_torch import average_buffers, loss_of_outputs
    from ._keras_given import is_compiled
    from ._kinds import keras_of
    from ._made import wrap_trained_model
    from ._net import column_for_model, keras_bytes, keras_model
    from ._optimizers import trained_optimizer
    from ._refusals import Wording, refuse_spark_objects
    from ._run import launch
    from ._settled import module_digest
    from ._stages import read_saved, write_saved
    from ._travel import pickled_with_code

__all__ = [
    "Wording",
    "active_session",
    "average_buffers",
    "column_for_model",
    "default_tasks",
    "is_compiled",
    "keras_bytes",
    "keras_model",
    "keras_of",
    "launch",
    "loss_of_outputs",
    "module_digest",
    "pickled_with_code",
    "read_saved",
    "refuse_spark_objects",
    "spark_setting",
    "trained_optimizer",
    "with_outputs",
    "wrap_trained_model",
    "write_saved",
]

# The module of this package that has each name.
_HOMES = {
    "Wording": "_refusals", "active_session": "_cluster", "average_buffers": "_fit_torch", "column_for_model": "_net",
    "default_tasks": "_cluster", "is_compiled": "_keras_given", "keras_of": "_kinds",
    "keras_bytes": "_net", "keras_model": "_net", "launch": "_run", "loss_of_outputs": "_fit_torch",
    "module_digest": "_settled", "pickled_with_code": "_travel", "read_saved": "_stages",
    "refuse_spark_objects": "_refusals", "spark_setting": "_cluster",
    "trained_optimizer": "_optimizers", "with_outputs": "_fit",
    "wrap_trained_model": "_made", "write_saved": "_stages",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hora.spark.frontend' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{home}", __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
