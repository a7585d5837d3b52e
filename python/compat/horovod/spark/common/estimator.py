"""Horovod's estimators in general: their parameters, handed to hora.spark.Estimator, and the models that it fits."""

from __future__ import annotations

import functools
import json
import secrets
import warnings
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.util import DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from horovod.spark.common import util
from horovod.spark.common.backend import SparkBackend, default_num_proc
from horovod.spark.common.params import DEFAULTS, EstimatorParams, ModelParams

__all__ = ["NO_EFFECT", "HorovodEstimator", "HorovodModel", "say"]

# What says how Horovod reads its Parquet files: here rows go from Spark to the ranks, which hold them in memory.
NO_EFFECT = (
    "data_module", "compress_sparse_cols", "continuous_cols", "categorical_cols", "shuffle_buffer_size",
    "partitions_per_process",
    "train_reader_num_workers", "val_reader_num_workers", "reader_pool_type", "inmemory_cache_all", "mp_start_method",
    "transformation_edit_fields", "transformation_removed_fields", "tensorflow_dataset_prefetch_buffer_size",
)  # fmt: skip

HELD = "horovod_validation"


class _Writer(MLWriter):
    """Params as JSON where they are plain; models, functions and the like as one pickle. Stores and back ends stay
    behind."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def save(self, path: str) -> None:
        """Writes the folder. Spark's own would ask a JVM to remove one that is there, and a client of Connect has
        none."""
        self.saveImpl(path)

    def saveImpl(self, path: str) -> None:
        from hora.spark.frontend import pickled_with_code, write_saved

        i, spark = self.instance, self._session()
        values = {p.name: v for p, v in i._paramMap.items() if p.name not in ("store", "backend")}
        blob = pickled_with_code({"params": i._kept(values), **i._besides()}, "the estimator")
        text = json.loads(DefaultParamsWriter._get_metadata_to_save(i, spark, {"horovod": {}}, paramMap={}))
        text["defaultParamMap"] = {}
        write_saved(spark, path, text, "horovod", [(0, blob)], self.shouldOverwrite)

    def _session(self) -> Any:
        from hora.spark.frontend import active_session

        return self._sparkSession or active_session()


class _Reader(MLReader):
    def __init__(self, cls: Any) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> Any:
        """Reads the folder, which holds a pickle."""
        import pickle

        from hora.spark.frontend import read_saved

        said, blobs = read_saved(path, self._sparkSession, "horovod")
        given = pickle.loads(blobs[0])
        found = self.cls()
        found._resetUid(said["uid"])
        found._set(**given.pop("params"))
        found.__dict__.update(given)
        return found


class _Saved(MLWritable, MLReadable):
    def write(self) -> Any:
        """For save."""
        return _Writer(self)

    @classmethod
    def read(cls) -> Any:
        """For load."""
        return _Reader(cls)

    def _besides(self) -> dict[str, Any]:
        return {}

    def _kept(self, values: dict[str, Any]) -> dict[str, Any]:
        return values


class HorovodEstimator(_Saved, EstimatorParams, Estimator):
    """What TorchEstimator and KerasEstimator share."""

    keeps_optimizer = False  # whether what a fit gives has the optimizer too

    def fit(self, df: Any, params: Any = None) -> Any:
        """The fitted model of a Spark data frame."""
        return super().fit(df, params) if params is not None else super().fit(df)

    def fitMultiple(self, dataset: Any, paramMaps: Any) -> Any:
        """One fitted model for each map, as CrossValidator asks for them: each a run of its own."""
        own, call = self.getParam("run_id"), secrets.token_hex(4)
        run = self.getOrDefault(own)
        if run is not None:
            paramMaps = [{own: f"{run}-{call}-{i}", **m} for i, m in enumerate(paramMaps)]
        return super().fitMultiple(dataset, paramMaps)

    def fit_on_parquet(self, params: Any = None, dataset_idx: int | None = None) -> Any:
        """The fitted model of the Parquet data that the store has, of training and, where it is there, of
        validation."""
        from pyspark.sql import functions as F

        from hora.spark.frontend import active_session

        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        store, spark = self.getStore(), active_session()
        if store is None:
            raise ValueError("Store parameter is required: fit_on_parquet reads the data from it")
        if spark is None:
            raise RuntimeError("there is no active SparkSession; make one with SparkSession.builder.getOrCreate()")
        train = store.get_train_data_path(dataset_idx)
        if not store.exists(train):
            raise ValueError(f"there is no data in {train}; write it there as Parquet, or call fit(df)")
        frame, val = spark.read.parquet(train), store.get_val_data_path(dataset_idx)
        if store.exists(val):
            frame = frame.withColumn(HELD, F.lit(False)).unionByName(
                spark.read.parquet(val).withColumn(HELD, F.lit(True))
            )
            return self._trained(frame, HELD)
        return self._trained(frame, self.getValidation() or None)

    def _fit(self, df: Any) -> Any:
        util.check_validation(self.getValidation(), df)
        return self._trained(df, self.getValidation() or None)

    def _trained(self, df: Any, validation: Any) -> Any:
        import hora.spark

        self._tell()
        trainer = hora.spark.Estimator(**self._given(validation))
        trainer.keeps_optimizer = self.keeps_optimizer
        return self._model(trainer.fit(df))

    def _given(self, validation: Any) -> dict[str, Any]:
        """The arguments of hora.spark.Estimator that all kinds have."""
        get = self.getOrDefault
        for name in ("model", "feature_cols", "label_cols"):
            if not get(name):
                raise ValueError(f"{name} parameter is required")
        np, env = self._ranks()
        store, run = self.getStore(), self.getRunId()
        keeps = store is not None and store.saving_runs()
        if keeps and not store.get_runs_path().endswith("/runs"):
            raise ValueError(f"runs_path {store.get_runs_path()} must be a folder of the name runs")
        options = store.run_options() if keeps and "://" in store.get_runs_path().removeprefix("file://") else None
        return {
            "storage_options": options or None,
            "model": self.getModel(), "loss": self._loss(), "optimizer": get("optimizer"), "metrics": self._metrics(),
            "features": list(get("feature_cols")), "label": list(get("label_cols")), "weight": get("sample_weight_col"),
            "validation": validation, "batch_size": get("batch_size"), "epochs": get("epochs"), "np": np, "env": env,
            "store": store.get_runs_path().removesuffix("/runs") if keeps else None, "run_id": run if keeps else None,
            "seed": get("random_seed") or 0, "shuffle": bool(get("shuffle")) and get("shuffle_buffer_size") != 0,
            "loss_weights": get("loss_weights"), "accumulate": get("backward_passes_per_step"),
            "compression": self._compression(),
            "steps": get("train_steps_per_epoch"), "validation_steps": get("validation_steps_per_epoch"),
            "validation_batch_size": get("val_batch_size"), "gpu": get("use_gpu"), "verbose": bool(get("verbose")),
            "transform": _on_pandas(get("transformation_fn")), "label_shapes": get("label_shapes"),
        }  # fmt: skip

    def _ranks(self) -> tuple[int, dict[str, str]]:
        backend, np = self.getBackend(), self.getNumProc()
        if backend is None:
            return np or default_num_proc(), {}
        if np is not None:
            raise ValueError('At most one of parameters "backend" and "num_proc" may be specified')
        if not isinstance(backend, SparkBackend):
            say(
                f"a {type(backend).__name__} tells how many ranks there are; they run in task slots of the Spark session all the same"
            )
        return backend.num_processes(), backend.environment() if isinstance(backend, SparkBackend) else {}

    def _compression(self) -> str | None:
        given = self.getGradientCompression()
        name = (given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)).lower()
        return "bf16" if "bf16" in name else "fp16" if "fp16" in name else None

    def _tell(self) -> None:
        set_ = [
            p.name for p, v in self._paramMap.items()
            if p.name in NO_EFFECT and v is not None and v != DEFAULTS.get(p.name) and v is not False
        ]  # fmt: skip
        if set_:
            say(f"{', '.join(set_)}: no effect, rows go from Spark to the ranks, which hold them in memory")

    def _loss(self) -> Any:
        return self.getLoss()

    def _metrics(self) -> Any:
        return list(self.getMetrics() or ()) or None

    def _model(self, fitted: Any) -> Any:
        raise NotImplementedError()


_said: set[str] = set()


def say(text: str) -> None:
    """A warning, once in a process."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"horovod.spark: {text}", stacklevel=4)


def _on_pandas(function: Any) -> Any:
    return None if function is None else _OnPandas(function)


class _OnPandas:
    """A transformation_fn, which returns a function of a pandas data frame, as a function of columns. By name and code
    it is the user's: a run tells by them what it was begun with."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, columns: Any) -> Any:
        import numpy as np
        import pandas as pd

        made = self.function()(pd.DataFrame({k: list(v) if v.ndim > 1 else v for k, v in columns.items()}))
        return {
            k: np.stack(made[k]) if made[k].dtype == object and len(made) else made[k].to_numpy() for k in made.columns
        }


class HorovodModel(_Saved, ModelParams, Model):
    """A fitted model: a transformer that adds `<label>__output` for each label, or the columns of setOutputCols."""

    kind = ""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.fitted: Any = None  # hora.spark.EstimatorModel
        self._setDefault(
            history=None,
            model=None,
            optimizer=None,
            feature_columns=None,
            label_columns=None,
            run_id=None,
            _metadata=None,
        )
        self._set(**{k: v for k, v in given.items() if v is not None and self.hasParam(k)})

    def _besides(self) -> dict[str, Any]:
        return {"fitted": self.fitted}

    def getOutputCols(self) -> list[str]:
        """The columns that transform adds."""
        if self.isSet("outputCols"):
            return list(self.getOrDefault("outputCols"))
        return [f"{label}__output" for label in self.getOrDefault("label_columns")]

    def _net(self, df: Any) -> Any:
        if self.fitted is None:
            self.fitted = self._made(df)
        return self.fitted.net

    def _made(self, df: Any) -> Any:
        raise NotImplementedError()

    def for_predict(self, df: Any) -> tuple[Any, bool, Any, str]:
        """What hora.spark.predict asks: the model, that it is one, its columns and the type of its predictions (as it
        says itself)."""
        return self._net(df), False, None, ""

    def _transform(self, df: Any) -> Any:
        from pyspark.ml.functions import array_to_vector
        from pyspark.sql import functions as F

        from hora.spark.frontend import with_outputs

        net, names = self._net(df), self.getOutputCols()
        labels = self.getOrDefault("label_columns")
        widths = net.outputs_of
        if len(names) > len(widths):
            raise ValueError(f"there are {len(names)} output columns for {len(widths)} outputs of the model")
        found, at = with_outputs(net, df, "hora_outputs"), 1
        for i, name in enumerate(names):
            label = df.schema[labels[i]].dataType if i < len(labels) and labels[i] in df.columns else None
            if widths[i] == 1 and type(label).__name__ != "VectorUDT":
                value = F.element_at("hora_outputs", at)
                kind = (
                    label.simpleString() if label is not None else ""
                )  # whole numbers come rounded, in their label's type
                value = F.round(value).cast(kind) if kind in ("tinyint", "smallint", "int", "bigint") else value
            else:
                value = array_to_vector(F.slice(F.col("hora_outputs"), at, widths[i]))
            found = found.withColumn(name, value)
            at += widths[i]
        return found.drop("hora_outputs")
