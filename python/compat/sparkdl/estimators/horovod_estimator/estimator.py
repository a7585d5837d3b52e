"""HorovodEstimator and TFTransformer: a model_fn of TensorFlow's Estimators, trained on a Spark data frame."""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Mapping
from typing import Any

try:
    from pyspark import keyword_only
    from pyspark.ml import Estimator, Model
    from pyspark.ml.param import Param, Params, TypeConverters
except ImportError as e:
    raise ImportError("HorovodEstimator needs the package pyspark; run `pip install pyspark`", name="pyspark") from e

from horovod.spark.common.estimator import _Saved

from ._job import Job
from ._saved import One

__all__ = ["HorovodEstimator", "TFTransformer"]

SEAL = "fit"  # the file of modelDir that says which fit is at work there
_HIDDEN = "hora_outputs"

# Each Param with its default and what it is.
PARAMS: dict[str, tuple[Any, str]] = {
    "modelFn": (None, "model_fn(features, labels, mode, params, config), which returns an EstimatorSpec"),
    "featureMapping": (None, "from column of the data frame to name in features"),
    "modelDir": (None, "folder of checkpoints, events and the SavedModel, which all machines share"),
    "labelCol": (None, "column of labels"),
    "batchSize": (64, "rows of one rank's step"),
    "maxSteps": (None, "the global step at which training ends"),
    "isValidationCol": (None, "column that is true for the rows to validate on"),
    "modelFnParams": (None, "what model_fn gets as params"),
    "saveCheckpointsSecs": (600, "seconds between two checkpoints"),
    "np": (None, "ranks, a task slot each; all slots without it"),
    "restarts": (3, "how often a gang that lost a worker is started anew, from the last checkpoint"),
}


class _Shared(Params):
    """Params by attribute, and set… and get… for each."""


def _add(name: str, doc: str) -> None:
    def write(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def read(self: Any) -> Any:
        return self.getOrDefault(name)

    setattr(_Shared, name, Param(Params._dummy(), name, doc, TypeConverters.identity))
    setattr(_Shared, f"set{name[0].upper()}{name[1:]}", write)
    setattr(_Shared, f"get{name[0].upper()}{name[1:]}", read)


for _name, (_, _doc) in PARAMS.items():
    _add(_name, _doc)


class HorovodEstimator(_Saved, _Shared, Estimator):
    """Trains a model_fn on the rows of a Spark data frame, in several tasks at once; `fit` returns a TFTransformer.

    model_fn wraps its optimizer in horovod.tensorflow's DistributedOptimizer. `fit` again with the same modelDir goes
    on from its last checkpoint, until the global step is maxSteps.

    >>> estimator = HorovodEstimator(
    ...     modelFn=model_fn, featureMapping={"x": "x"}, modelDir="/dbfs/runs/first", labelCol="label", batchSize=64, maxSteps=500,
    ... )
    >>> estimator.fit(df).transform(df).select("predictions")
    """

    @keyword_only
    def __init__(
        self, *, modelFn: Any = None, featureMapping: Any = None, modelDir: Any = None, labelCol: Any = None,
        batchSize: Any = None,
        maxSteps: Any = None, isValidationCol: Any = None, modelFnParams: Any = None, saveCheckpointsSecs: Any = None,
        np: Any = None,
        restarts: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._setDefault(**{k: v for k, (v, _) in PARAMS.items()})
        self._set(**{k: v for k, v in self._input_kwargs.items() if v is not None})

    def setParams(self, **kwargs: Any) -> Any:
        """Sets several by name."""
        return self._set(**kwargs)

    def fit(self, dataset: Any, params: Any = None) -> Any:
        """The transformer of a Spark data frame; with a list of parameter maps one for each."""
        return super().fit(dataset, params) if params is not None else super().fit(dataset)

    def fitMultiple(self, dataset: Any, paramMaps: Any) -> Any:
        """One transformer for each map, as CrossValidator asks for them: each in a folder of its own below modelDir.

        In modelDir itself a fold would go on from what the one before it has learned of its rows.
        """
        own, call = self.getParam("modelDir"), secrets.token_hex(4)
        below = self.getOrDefault(own)
        if isinstance(below, (str, os.PathLike)) and str(below):
            paramMaps = [{own: f"{str(below).rstrip('/')}/maps/{call}-{i}", **m} for i, m in enumerate(paramMaps)]
        return super().fitMultiple(dataset, paramMaps)

    def _fit(self, dataset: Any) -> TFTransformer:
        from hora.spark import Estimator as Trainer

        s = {name: self.getOrDefault(name) for name in PARAMS}
        folder = _checked(s)
        if s["labelCol"] is not None and s["labelCol"] not in dataset.columns:
            raise ValueError(
                f"the table has no label column {s['labelCol']!r}; it has {', '.join(dataset.columns[:20])}"
            )
        seal = secrets.token_hex(8)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, SEAL), "w", encoding="ascii") as f:
                f.write(seal)
        except OSError as e:
            raise ValueError(
                f"modelDir={folder!r} cannot be written: {e.strerror or e}; give another folder, which all machines share"
            ) from e
        job = Job(
            model_fn=s["modelFn"], mapping=dict(s["featureMapping"]), label=s["labelCol"], folder=folder,
            max_steps=s["maxSteps"],
            params=dict(s["modelFnParams"] or {}), seconds=float(s["saveCheckpointsSecs"]), seal=seal,
        )  # fmt: skip
        trainer = Trainer(
            job, features=list(job.mapping), label=job.label or [], validation=s["isValidationCol"],
            batch_size=s["batchSize"],
            np=s["np"], restarts=s["restarts"], verbose=False,
        )  # fmt: skip
        fitted = trainer.fit(dataset)
        found = TFTransformer(modelDir=folder)
        found.saved, found.history = fitted.model, fitted.history
        return found


def _checked(s: dict[str, Any]) -> str:
    """The folder of the model; raises where a Param is none."""
    function = s["modelFn"]
    if not callable(function):
        raise ValueError(
            "modelFn is missing; give model_fn(features, labels, mode, params, config), which returns an EstimatorSpec"
        )
    if inspect.isfunction(function) and "features" not in inspect.signature(function).parameters:
        raise ValueError(
            f"modelFn {function.__name__} takes no argument `features`; write it as model_fn(features, labels, mode, params)"
        )
    mapping = s["featureMapping"]
    if (
        not isinstance(mapping, Mapping)
        or not mapping
        or not all(isinstance(t, str) for kv in mapping.items() for t in kv)
    ):
        raise ValueError(
            f"featureMapping={mapping!r}; give a mapping from column to the name that model_fn finds it by, as {{'x': 'x'}}"
        )
    if len(set(mapping.values())) < len(mapping):
        raise ValueError(f"featureMapping={mapping!r} gives two columns one name; give each its own")
    for name, least in (("batchSize", 1), ("maxSteps", 1), ("restarts", 0)):
        if isinstance(s[name], bool) or not isinstance(s[name], int) or s[name] < least:
            raise ValueError(f"{name}={s[name]!r}; give a whole number, {least} or more")
    seconds = s["saveCheckpointsSecs"]
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ValueError(f"saveCheckpointsSecs={seconds!r}; give seconds, more than 0")
    if s["modelFnParams"] is not None and not isinstance(s["modelFnParams"], Mapping):
        raise ValueError(f"modelFnParams={s['modelFnParams']!r}; give a mapping, which model_fn gets as params")
    if not isinstance(s["modelDir"], (str, os.PathLike)) or not str(s["modelDir"]):
        raise ValueError("modelDir is missing; give a folder that all machines share")
    folder = str(s["modelDir"])
    if folder.startswith("dbfs:/"):  # where Databricks mounts it
        folder = "/dbfs/" + folder.removeprefix("dbfs:").lstrip("/")
    elif folder.startswith("file:/"):
        folder = "/" + folder.removeprefix("file:").lstrip("/")
    elif "://" in folder:
        raise ValueError(f"modelDir={folder!r} is a URL; give a folder that all machines have mounted, such as /dbfs/…")
    return os.path.abspath(folder)


class TFTransformer(_Saved, _Shared, Model):
    """What HorovodEstimator has fitted: it adds the column `predictions`, what model_fn predicts for a row.

    A tensor of one number a row becomes a number, one of several an array, a mapping of tensors a struct. `history` has
    the loss and the metrics of each checkpoint of the fit.
    """

    def __init__(self, modelDir: str | None = None) -> None:
        super().__init__()
        self._setDefault(modelDir=None)
        if modelDir is not None:
            self._set(modelDir=modelDir)
        self.saved: Any = None
        self.history: list[dict[str, float]] = []

    def _besides(self) -> dict[str, Any]:
        return {"saved": self.saved, "history": self.history}

    def _whole(self) -> Any:
        if self.saved is None:
            raise ValueError("TFTransformer: it is empty; it comes from HorovodEstimator.fit or TFTransformer.load")
        return self.saved

    def for_predict(self, dataset: Any) -> tuple[Any, bool, Any, str]:
        """What hora.spark.predict asks: the model, that it is one, its columns and the type of its predictions."""
        saved = self._whole()
        (_, width, kind), *more = saved.columns()
        one = not more and width is None
        known = (
            "bigint" if kind in ("tinyint", "smallint", "int", "bigint") else kind if kind == "boolean" else "double"
        )
        return One(saved) if one else saved, False, list(saved.inputs), known if one else "array<double>"

    def _transform(self, dataset: Any) -> Any:
        from pyspark.sql import functions as F

        from hora.spark import predict

        saved = self._whole()
        if "predictions" in dataset.columns:
            raise ValueError("TFTransformer: the table has a column 'predictions' already; rename or drop it")
        found = predict(
            saved, dataset, features=list(saved.inputs), output=_HIDDEN, returns="array<double>", errors=None
        )
        columns, at = [], 1
        for name, width, kind in saved.columns():
            one = F.element_at(_HIDDEN, at) if width is None else F.slice(F.col(_HIDDEN), at, width)
            columns.append(one.cast(kind if width is None else f"array<{kind}>").alias(name or "predictions"))
            at += 1 if width is None else width
        whole = columns[0] if saved.single else F.struct(*columns)
        return found.withColumn("predictions", whole).drop(_HIDDEN)
