"""The parameters that all of Horovod's estimators have, each as a Param of Spark's with `set…` and `get…`."""

from __future__ import annotations

from typing import Any

try:
    from pyspark.ml.param import Param, Params, TypeConverters
    from pyspark.ml.param.shared import HasOutputCols
except ImportError as e:
    raise ImportError(
        "the estimators of horovod.spark need the package pyspark; run `pip install pyspark`", name="pyspark"
    ) from e

__all__ = ["EstimatorParams", "ModelParams"]

# Name → its default.
DEFAULTS: dict[str, Any] = {
    "num_proc": None, "data_module": None, "store": None, "backend": None, "model": None, "optimizer": None,
    "loss": None,
    "loss_weights": None, "sample_weight_col": None, "metrics": [], "feature_cols": None, "label_cols": None,
    "continuous_cols": None,
    "categorical_cols": None, "validation": None, "gradient_compression": None, "compress_sparse_cols": False,
    "batch_size": 32,
    "val_batch_size": None, "epochs": 1, "verbose": 1, "callbacks": [], "random_seed": None,
    "shuffle_buffer_size": None, "shuffle": True,
    "partitions_per_process": 10, "run_id": None, "train_steps_per_epoch": None, "validation_steps_per_epoch": None,
    "transformation_fn": None, "transformation_edit_fields": None, "transformation_removed_fields": None,
    "train_reader_num_workers": 2,
    "val_reader_num_workers": 2, "reader_pool_type": "thread", "label_shapes": None, "inmemory_cache_all": False,
    "use_gpu": True,
    "mp_start_method": None, "backward_passes_per_step": 1,
}  # fmt: skip

# Names of Horovod's methods that do not follow from the parameter's.
OTHERS = {
    "shuffle_buffer_size": "ShufflingBufferSize", "train_reader_num_workers": "TrainReaderNumWorker",
    "val_reader_num_workers": "ValReaderNumWorker", "inmemory_cache_all": "InMemoryCacheAll",
}  # fmt: skip


class EstimatorParams(Params):
    """They are class attributes; `setParams(**some)` sets several."""

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(**DEFAULTS)

    def setParams(self, **kwargs: Any) -> Any:
        """Sets several by name."""
        return self._set(**kwargs)


class ModelParams(HasOutputCols):
    """What a fitted model has."""

    def __init__(self) -> None:
        super().__init__()

    def setOutputCols(self, value: Any) -> Any:
        """The names of the columns that transform adds."""
        return self._set(outputCols=[value] if isinstance(value, str) else list(value))

    def setParams(self, **kwargs: Any) -> Any:
        """Sets several by name."""
        return self._set(**kwargs)


def add(cls: Any, name: str) -> None:
    """Gives a class a Param with its two methods."""

    def write(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def read(self: Any) -> Any:
        return self.getOrDefault(name)

    setattr(cls, name, Param(Params._dummy(), name, name.replace("_", " "), TypeConverters.identity))
    for word in {"".join(w.capitalize() for w in name.split("_")), OTHERS.get(name, "")} - {""}:
        if not hasattr(cls, "set" + word):
            setattr(cls, "set" + word, write)
        if not hasattr(cls, "get" + word):
            setattr(cls, "get" + word, read)


for _name in DEFAULTS:
    add(EstimatorParams, _name)
for _name in ("history", "model", "optimizer", "feature_columns", "label_columns", "run_id", "_metadata"):
    add(ModelParams, _name)
