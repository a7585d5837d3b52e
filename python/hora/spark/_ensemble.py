"""PartitionEnsemble: many models, each fitted on a part of a table, that vote. On a Spark cluster, or on this machine
alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import _local, _members, _plan, _travel, _votes, _work
from ._params import Estimator, MLReadable, MLWritable, Model, Param, Params, TypeConverters, is_spark
from ._tables import Columns, Layout, columns_of, fresh, nans, need, rows_of, take, tell_nans

_WHO = _plan.WHO
TAKEN = "rename or drop it, or say prediction= or probability= for another name"


def _param(name: str, doc: str) -> Param:
    return Param(Params._dummy(), name, doc, TypeConverters.identity)


class _Columns(Params):
    """The Params that the estimator shares with its model."""

    features = _param("features", "columns of features; None: the column `features`, else all but the label")
    label = _param("label", "column of labels")
    prediction = _param("prediction", "column that transform adds")
    probability = _param("probability", "column of the classes' shares of the votes that transform adds; empty: none")
    vote = _param("vote", "soft, hard, mean or stack")

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(features=None, label="label", prediction="prediction", probability="probability", vote="soft")


class _Saved(MLWritable, MLReadable):
    """Saved and loaded, with Spark and without."""

    def save(self, path: str) -> None:
        """Writes a folder, through Spark where a session is active; `load` reads it with Spark and without."""
        self.write().save(path)

    @classmethod
    def load(cls, path: str) -> Any:
        """Reads such a folder. It holds pickled objects: load only what you trust."""
        return cls.read().load(path)


class PartitionEnsemble(_Columns, _Saved, Estimator):
    """Fits `base` on each of n parts of a table, on a Spark DataFrame with the cluster, on others with processes of
    this machine.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> model = hora.spark.PartitionEnsemble(DecisionTreeClassifier(), n=8).fit(df)     # pandas, Arrow, NumPy or Spark
    >>> model.models                            # the eight fitted trees, in the partitions' order
    >>> model.predict(df), model.predict_proba(df)

    base: an estimator with `fit` and `predict`, or a function of one argument, a mapping from column to NumPy array
        (lists as matrices), that returns a fitted model: an estimator, a Booster of xgboost or lightgbm, a torch
        module, or a function.
    n: the number of models.
    by: "rows" deals the rows; "columns" gives each model all rows and some columns; "both" does both; the name of a
        column gives the rows with one value to one model.
    feature_subsets: the columns of each model, a list of lists of names; or how many columns, or which part of them.
        Without it each sees a random half.
    vote: "soft" weighs probabilities, "hard" counts labels, "mean" averages values, "stack" fits one more model
        (`final`) on the others' answers to rows that were held out.
    weight: "rows" gives each model's vote the weight of its rows, "validation" of its accuracy on rows that were held
        out.
    min_rows: partitions with fewer rows are merged with the next; without it there are exactly n models.
    features, label, extra: the columns; `extra` are columns that the function sees and the models are not asked with.
    validation: the part of the rows that is held out, where `weight` or `vote` wants some (10,000 at most).
    workers: processes on this machine (0: this process); progress: called with (models fitted, models) as they come.
    """

    n = _param("n", "number of models")
    by = _param("by", "rows, columns, both, or the name of a column")
    feature_subsets = _param("feature_subsets", "columns of each model")
    weight = _param("weight", "rows or validation")
    min_rows = _param("min_rows", "rows below which partitions are merged")
    extra = _param("extra", "further columns for the function")
    validation = _param("validation", "part of the rows that is held out")
    seed = _param("seed", "of all that is random here")
    workers = _param("workers", "processes on this machine")

    def __init__(
        self, base: Any = None, *, n: int = 16, by: str = "rows", feature_subsets: Any = None, vote: str = "soft",
        weight: str = "rows",
        min_rows: int | None = None, features: Any = None, label: str = "label", extra: Any = (),
        prediction: str = "prediction",
        probability: str = "probability", validation: float = 0.1, final: Any = None, seed: int = 0,
        workers: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.base, self.final, self.progress = base, final, progress
        self._setDefault(
            n=16,
            by="rows",
            feature_subsets=None,
            weight="rows",
            min_rows=None,
            extra=[],
            validation=0.1,
            seed=0,
            workers=None,
        )
        given = dict(
            n=n, by=by, feature_subsets=feature_subsets, vote=vote, weight=weight, min_rows=min_rows, features=features,
            label=label,
            extra=[extra] if isinstance(extra, str) else list(extra), prediction=prediction, probability=probability,
            validation=validation,
            seed=seed, workers=workers,
        )  # fmt: skip
        self._set(**{k: v for k, v in given.items() if v is not None})

    def settings(self) -> dict[str, Any]:
        """The values of all Params, and what is none."""
        return {p.name: self.getOrDefault(p) for p in self.params} | {"final": self.final}

    def fit(self, table: Any, *rest: Any, **more: Any) -> Any:
        """The fitted ensemble. A NumPy array of features takes the labels as second argument."""
        if is_spark(table):
            return super().fit(table, *rest, **more)
        settings = self._checked()
        if isinstance(table, np.ndarray) and not table.dtype.names:
            if not rest:
                raise ArgumentError(f"{_WHO}: an array of features needs its labels too: fit(x, y)")
            table = {"features": table, settings["label"]: np.asarray(rest[0])}
        return self._fitted(_fit_local(self.base, settings, table, self.progress))

    def _fit(self, table: Any) -> PartitionEnsembleModel:
        from . import _ensemble_cluster

        return self._fitted(_ensemble_cluster.fit(self.base, self._checked(), table, self.progress))

    def _fitted(self, ensemble: _votes.Ensemble) -> PartitionEnsembleModel:
        _plan.tell_tiny(ensemble.report)
        model = PartitionEnsembleModel(ensemble)
        model._set(
            **{
                k: v
                for k in ("features", "label", "prediction", "probability", "vote")
                if (v := self.getOrDefault(k)) is not None
            }
        )
        return model

    def _checked(self) -> dict[str, Any]:
        settings = self.settings()
        _plan.check(settings)
        if self.base is None:
            raise ArgumentError(f"{_WHO}: there is no base; give an estimator, or a function of a mapping of columns")
        _members.check_base(self.base, settings["vote"], _WHO)
        return settings

    def write(self) -> Any:
        """For Spark's `save`."""
        from . import _stages

        return _stages.EstimatorWriter(self)

    @classmethod
    def read(cls) -> Any:
        from . import _stages

        return _stages.EstimatorReader()


def _fit_local(base: Any, settings: dict[str, Any], table: Any, progress: Any) -> _votes.Ensemble:
    names = list(columns_of_names(table))
    wanted = _plan.feature_names(settings, names)
    label, by, n = settings["label"], settings["by"], settings["n"]
    estimator = _members.is_estimator(base)
    if estimator or label in names:
        need(label, names, _WHO, "label column")
        wanted = [*wanted, label]
    by_column = by not in ("rows", "columns", "both")
    if by_column:
        need(by, names, _WHO + ": by is 'rows', 'columns', 'both' or the name of a column")
    features = [w for w in wanted if w != label]
    columns = columns_of(table, [*dict.fromkeys([*wanted, *settings["extra"], *([by] if by_column else [])])], _WHO)
    rows = rows_of(columns)
    check_label(columns, label)
    layout = Layout.of(columns, features, _WHO)
    tell_nans(nans({n: columns[n] for n in features}), features, _WHO)
    order = np.random.default_rng(settings["seed"]).permutation(rows)
    held = validation_rows(settings, rows, label in columns)
    validation = take(columns, order[:held]) if held else None
    order = order[held:]
    if by == "columns":
        parts = [np.sort(order)] * n if rows else []
        merged = [[i] for i in range(n)]
    else:
        home = _plan.deal_values(columns[by], n)[order] if by_column else np.arange(len(order)) % n
        counts = np.bincount(home, minlength=n).tolist()
        merged = _plan.merge(counts, settings["min_rows"], why_empty(by, rows))
        parts = [np.sort(order[np.isin(home, m)]) for m in merged]
    if not len(order):
        raise ArgumentError(
            f"{_WHO}: the table has no rows" + (" beside those that are held out for validation" if held else "")
        )
    subsets = [_plan.subsets(settings, layout)[m[0]] for m in merged]
    seen = {k: v for k, v in columns.items() if k in (*features, label, *settings["extra"])}
    task = _work.Task(
        _travel.pickled_with_code(base, "base"),
        layout,
        label,
        settings["vote"],
        settings["weight"],
        subsets,
        validation,
    )
    outcomes = _local.fit_parts(task, seen, parts, settings["workers"], progress)
    for outcome, m in zip(outcomes, merged, strict=True):
        outcome["partition"], outcome["merged"] = m[0], m if len(m) > 1 else []
    return _votes.assemble(outcomes, settings, layout, None if validation is None else validation[label])


def why_empty(by: str, rows: int) -> str:
    return f"as the table has {rows:,}" if by in ("rows", "both") else f"as the column {by!r} has too few values"


def check_label(columns: Columns, label: str) -> None:
    if label in columns:
        y = columns[label]
        if y.ndim != 1:
            raise ArgumentError(f"{_WHO}: the label column {label!r} holds {y.shape[1]} values a row; one is wanted")
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise ArgumentError(
                f"{_WHO}: the label column {label!r} has {int(np.isnan(y).sum()):,} NaN; fill or drop such rows first"
            )


def validation_rows(settings: dict[str, Any], rows: int, labelled: bool) -> int:
    """How many rows no member sees."""
    if not _plan.holds_out(settings):
        return 0
    if not labelled:
        raise ArgumentError(
            f"{_WHO}: weight='validation' and vote='stack' need labels, and there is no column {settings['label']!r}"
        )
    held = min(_plan.VALIDATION_ROWS, int(rows * settings["validation"]))
    if not held:
        raise ArgumentError(f"{_WHO}: of {rows} rows a part of {settings['validation']} is none; raise validation=")
    return held


def columns_of_names(table: Any) -> list[str]:
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ["features"])
    if hasattr(table, "schema") and hasattr(table.schema, "names"):
        return list(table.schema.names)
    if not hasattr(table, "columns") and not isinstance(table, Mapping):
        columns_of(table, None, _WHO)  # which says what it is
    return [str(c) for c in getattr(table, "columns", table)]


class PartitionEnsembleModel(_Columns, _Saved, Model):
    """Fitted models that vote; a transformer for Spark's pipelines, and a model for pandas, Arrow and NumPy."""

    def __init__(self, ensemble: _votes.Ensemble | None = None) -> None:
        super().__init__()
        self.ensemble = ensemble

    @property
    def _votes(self) -> _votes.Ensemble:
        if self.ensemble is None:
            raise ArgumentError(
                "PartitionEnsembleModel: it is empty; it comes from PartitionEnsemble.fit or PartitionEnsembleModel.load"
            )
        return self.ensemble.voting(self.getOrDefault("vote")) if self.isSet("vote") else self.ensemble

    @property
    def models(self) -> list[Any]:
        """The fitted objects, in the partitions' order."""
        return [m.asked.model for m in self._votes.members]

    @property
    def classes(self) -> np.ndarray | None:
        """All classes that some model knows; None where values are predicted."""
        return self._votes.classes

    @property
    def weights(self) -> np.ndarray:
        """The models' weights in votes; they sum to one."""
        found = np.array([m.weight for m in self._votes.members])
        return found / found.sum()

    @property
    def report(self) -> list[dict[str, Any]]:
        """A mapping a model: partition, merged, rows, seconds, memory, classes, score, remark, host."""
        return self._votes.report

    def predict(self, table: Any) -> np.ndarray:
        """Labels or values, one a row."""
        self._not_spark(table, "predict")
        return self._votes.answers(self._votes.columns(table, "predict"))[0]

    def predict_proba(self, table: Any) -> np.ndarray:
        """The classes' shares of the votes, a row each, in the order of `classes`."""
        self._not_spark(table, "predict_proba")
        shares = self._votes.answers(self._votes.columns(table, "predict_proba"))[1]
        if shares is None:
            raise ArgumentError("predict_proba: the models predict values, not classes; call predict")
        return shares

    def transform(self, table: Any, params: Any = None) -> Any:
        """The table with columns of predictions and, for classes, of shares."""
        if is_spark(table):
            return super().transform(table, params) if params else super().transform(table)
        name, second = self.getOrDefault("prediction"), self.getOrDefault("probability")
        fresh((name, second if self._votes.classifies else None), columns_of_names(table), "transform", TAKEN)
        values, shares = self._votes.answers(self._votes.columns(table, "transform"))
        root = type(table).__module__.partition(".")[0]
        if root == "pandas":
            found = table.copy()
            found[name] = values
            if shares is not None and second:
                found[second] = list(shares)
            return found
        if root == "pyarrow":
            import pyarrow as pa

            found = table.append_column(name, pa.array(values.tolist() if values.dtype.kind == "O" else values))
            return found.append_column(second, pa.array(shares.tolist())) if shares is not None and second else found
        found = {"features": table} if isinstance(table, np.ndarray) else dict(table)
        return found | {name: values} | ({second: shares} if shares is not None and second else {})

    def _transform(self, table: Any) -> Any:
        from . import _scoring

        return _scoring.transform(self, table)

    def _not_spark(self, table: Any, what: str) -> None:
        if is_spark(table):
            raise ArgumentError(f"{what}: a Spark DataFrame is scored with transform(df), which adds columns")

    def write(self) -> Any:
        """For Spark's `save`."""
        from . import _stages

        return _stages.ModelWriter(self)

    @classmethod
    def read(cls) -> Any:
        from . import _stages

        return _stages.ModelReader()


for _public in (PartitionEnsemble, PartitionEnsembleModel):
    _public.__module__ = "hora.spark"  # the name that folders and pickles say
