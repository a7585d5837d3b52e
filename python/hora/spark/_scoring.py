"""Batch inference on Spark: predictions as columns, for rows that stay where they are."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pickle
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError, HoraError
from . import _batches, _frames, _members, _net, _net_stages, _packages, _scorer, _stages, _travel, _votes
from ._ensemble import TAKEN, PartitionEnsembleModel
from ._params import is_spark
from ._tables import fresh, need

_WHO = "predict"
_FRONT_ENDS = ("horovod", "sparkdl")  # packages whose transformers have for_predict


def predict(
    model: Any, df: Any, *, features: str | Sequence[str] | None = None, output: str = "prediction",
    probability: str | None = None,
    errors: str | None = "prediction_error", returns: str | None = None, batch_bytes: int = 16 << 20, threads: int = 0,
    progress: Callable[[int, int], Any] | None = None,
) -> Any:  # fmt: skip
    """The Spark data frame with a model's predictions as a further column.

    >>> scored = hora.spark.predict(model, df, features=["a", "b", "c"])
    >>> scored.where("prediction_error is not null").show()      # the rows that failed, and why

    model: a fitted ensemble, estimator, Booster, torch module or function of a mapping of columns; a model that an
        Estimator, Horovod's estimators or HorovodEstimator fitted; the folder of a saved one of these; or a
        function without arguments that loads a model, which each worker calls once.
    features: the columns, in the order of the model's; those that were fitted with columns know their own.
    probability: a column for the classes' probabilities, where the model has them.
    errors: a column that says what is wrong with a row whose prediction is null; None ends the job at the first such
        row.
    returns: the type of the predictions, as "double"; without it a first row is predicted to see. With "array<double>"
        what a torch module or a function returns is given as it is, and not the likeliest class.
    batch_bytes: of features that the model is given at a time. threads: of a task; 0 takes the cores that Spark gives
        it.
    progress: called with (rows predicted, rows that failed) as tasks end; not under Connect.
    """
    if not is_spark(df):
        raise ArgumentError(
            f"predict: df is a {type(df).__name__}; give a Spark DataFrame (a fitted ensemble predicts others by itself)"
        )
    if batch_bytes < 1:
        raise ArgumentError(f"predict: batch_bytes is {batch_bytes}; give a number of bytes, as 16 << 20")
    kind = "" if returns is None else known_kind(returns)
    if isinstance(model, (str, os.PathLike)):
        model = _saved(str(model))
    asks = getattr(model, "for_predict", None)  # of the transformers of other front ends
    found, loads, own, its = (*_found(model), None, "") if asks is None else asks(df)
    known = found._votes if isinstance(found, PartitionEnsembleModel) else found
    if isinstance(known, _net.Net):
        own, its = list(known.features), known.kind_of_answers()
    elif isinstance(known, _votes.Ensemble):
        own, its = list(known.layout.names), ensemble_kind(known)
    names = own if features is None else [features] if isinstance(features, str) else list(features)
    if names is None:
        raise ArgumentError(
            "predict: features is missing; name the columns that the model is asked with, in their order"
        )
    if own is not None and names != own:
        what = "ensemble" if isinstance(known, _votes.Ensemble) else "model"
        raise ArgumentError(f"predict: features are {names}; the {what} was fitted with {own}")
    kind = kind or its
    for name in names:
        need(name, df.columns, _WHO)
    fresh((output, probability, errors), df.columns, _WHO, "say output=, probability= or errors= for another name")
    _frames.taken(df, names, _WHO)  # which refuses what no array is made of
    blob = _travel.pickled_with_code(known, "the model")
    _packages.check(df.sparkSession, _packages.of_model(known, blob), _WHO, getattr(known, "path", ()))
    given = _scorer.Given(
        blob,
        loads,
        hashlib.sha256(blob).hexdigest()
        + (secrets.token_hex(8) if loads else ""),  # what it reads may be another the next time
        names,
        kind,
        probability is not None,
        errors is not None,
        batch_bytes,
        threads,
        calls=not loads and not kind and _members.kind_of(known) is _members._Function,
    )
    if not given.kind:
        given.kind = _first(df, given)
    count = _frames.Count(df.sparkSession, progress, 2).accumulator
    return scored(df, given, output, probability, errors, count)


def ensemble_kind(e: _votes.Ensemble) -> str:
    """The type of an ensemble's predictions."""
    return "double" if e.classes is None else _scorer.kind_of(e.classes)


def _saved(path: str) -> Any:
    """The model in a folder that was saved: hora's own, or a transformer of a front end's, which its class loads."""
    meta = _stages.metadata(path)
    if "hora" in meta:
        meta, blobs = _stages.read_saved(path)
        return (_net_stages.net_of if meta["hora"]["kind"] == "trained" else _stages.ensemble)(meta, blobs)
    name = str(meta.get("class", "thing"))
    home, _, cls = name.rpartition(".")
    if home.partition(".")[0] not in _FRONT_ENDS:
        raise ArgumentError(f"predict: {path} holds a {name}; load it with its class, and call its transform")
    try:
        known = getattr(importlib.import_module(home), cls)
    except (ImportError, AttributeError) as e:
        raise HoraError(
            f"predict: {path} holds a {name}, which cannot be loaded here: {e}; install the wheel of hora-compat"
        ) from e
    if not hasattr(known, "for_predict"):
        raise ArgumentError(f"predict: {path} holds a {name}, not a fitted model; fit it, and save what that gives")
    return known.load(path)


def _found(model: Any) -> tuple[Any, bool]:
    """A model, or a function that loads one; and whether it is such a function."""
    if isinstance(getattr(model, "net", None), _net.Net):
        return model.net, False
    if isinstance(model, (_votes.Ensemble, _net.Net, PartitionEnsembleModel)):
        return model, False
    if isinstance(model, type):
        raise ArgumentError(f"predict: model is the class {model.__name__}; give a fitted model")
    if _members.kind_of(model) is _members._Function:
        try:
            wanted = [
                p
                for p in inspect.signature(model).parameters.values()
                if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
        except (TypeError, ValueError):
            return model, False
        return model, not wanted
    return model, False


def _first(df: Any, given: _scorer.Given) -> str:
    """The type of the predictions, as the first row's is; and what is wrong with the model, before the job."""
    first = df.select(*_frames.taken(df, given.features, _WHO)).dropna()
    found = first.limit(1).collect()  # by itself, for which Spark reads no more than it needs
    if not found:
        return "double"  # of no rows
    row = _frames.arrow(found, first.schema)
    said = (_asked_there if given.loads or given.calls else _asked_here)(df, given, row)
    if said.startswith("error: "):
        raise HoraError("predict: " + said.removeprefix("error: "))
    if said.startswith("failed: "):
        raise HoraError(
            f"predict: the model fails on the first row: {said.removeprefix('failed: ')}; look whether features= are those of the fit and in "
            "their order, or say returns= to go on without this check"
        )
    return said


def _asked_here(df: Any, given: _scorer.Given, row: Any) -> str:
    """What a fitted model says of a row, without a job: it is in this process already, and with it all that it is made
    of."""
    return _scorer.said(
        lambda: _scorer.one_thread(_members.known(pickle.loads(given.model))), given, row
    )  # the user's own stays as it is


def _asked_there(df: Any, given: _scorer.Given, row: Any) -> str:
    """The same by an executor, where alone a user's function may find what it reads."""
    packed = pickle.dumps((given, row), protocol=5)

    def look(batches: Any) -> Any:
        import pickle

        import pyarrow as pa

        from hora.spark import _scorer

        given, row = pickle.loads(packed)
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"said": [_scorer.said(lambda: _scorer.load(given), given, row)]})

    try:
        return str(df.sparkSession.range(1, numPartitions=1).mapInArrow(look, "said string").collect()[0].said)
    except Exception as e:
        told = _frames.explained(e, _WHO)
        if told is e:
            raise
        raise told from e


def scored(df: Any, given: _scorer.Given, output: str, probability: str | None, errors: str | None, count: Any) -> Any:
    """The frame with the columns that scoring adds; what is no feature stays where it is."""
    from pyspark.sql import functions as F

    added = [(output, given.kind)]
    if given.shares:
        added.append((str(probability), "array<double>"))
    if given.lists:
        added.append((str(errors), "string"))
    asked = _batches.asked(df, pickle.dumps(given, protocol=5), given.features, added, count, _WHO)
    if len(added) == 1:
        return df.withColumn(output, asked)
    hidden = "hora_scored"
    found = df.withColumn(hidden, asked)
    return found.withColumns({name: F.col(f"{hidden}.c{i}") for i, (name, _) in enumerate(added)}).drop(hidden)


def known_kind(kind: str) -> str:
    """A type of predictions as it is named here; raises where it is none."""
    one = kind.strip().lower().replace(" ", "")
    inner = one[6:-1] if one.startswith("array<") and one.endswith(">") else one
    inner = {
        "long": "bigint",
        "int": "bigint",
        "integer": "bigint",
        "float": "double",
        "bool": "boolean",
        "text": "string",
    }.get(inner, inner)
    if inner not in ("double", "bigint", "boolean", "string"):
        raise ArgumentError(
            f"predict: returns={kind!r} is not known; say double, bigint, boolean or string, or array<double> and the like"
        )
    return f"array<{inner}>" if one.startswith("array<") else inner


def transform(model: Any, df: Any) -> Any:
    """What a fitted ensemble's transform does: lazily, and a row that fails ends the job."""
    e: _votes.Ensemble = model._votes
    probability = model.getOrDefault("probability") if e.classifies else None
    for name in e.layout.names:
        need(name, df.columns, "transform")
    fresh((model.getOrDefault("prediction"), probability), df.columns, "transform", TAKEN)
    blob = pickle.dumps(e, protocol=5)
    given = _scorer.Given(
        blob,
        False,
        hashlib.sha256(blob).hexdigest(),
        list(e.layout.names),
        ensemble_kind(e),
        bool(probability),
        False,
        16 << 20,
        0,
    )
    return scored(df, given, model.getOrDefault("prediction"), probability or None, None, None)
