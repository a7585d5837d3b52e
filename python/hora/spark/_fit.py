"""Estimator.fit on the driver: what can be said before the job, the frame with its marks, the job, and what comes of it."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import pickle
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from . import (
    _cluster,
    _frames,
    _keras_given,
    _kinds,
    _losses,
    _net,
    _packages,
    _refusals,
    _run,
    _scorer,
    _scoring,
    _settled,
    _store,
    _training,
    _travel,
)
from ._tables import fresh, need, tell_nans

WHO = _training.WHO
_HIDDEN = "hora_outputs"
_FINE = 1 << 20  # parts that a validation is told in
_NUMBERS = _frames._NUMBERS | {"DecimalType"}


def fit(e: Any, df: Any) -> Any:
    """The fitted model."""
    from ._estimator import EstimatorModel

    s = e.settings()
    kind = _kinds.kind_of(e.model)
    _check(s, kind, e)
    features, labels, frame = _frame(s, kind, _list(s["label"]), df)
    if kind == "keras" and s["shapes"] is None:
        s["shapes"] = _keras_given.shapes(e.model, features)
    blob = _blob(e, s, kind)
    if s["store"] is not None:
        s["store"] = _store.absolute(s["store"])
    store = None if s["store"] is None else _store.Store(s["store"], e.storage_options)
    run = s["run_id"] or time.strftime("run-%Y%m%d-%H%M%S-") + secrets.token_hex(3)
    with _settled.alone(s["store"], run):
        net, history = _trained(e, s, kind, blob, (features, labels, frame), store, run, df.sparkSession)
    fitted = EstimatorModel(net, history, run)
    fitted._set(features=list(features), **{k: v for k in ("label", "prediction", "raw", "batch_bytes") if (v := s[k]) is not None})
    return fitted


def _trained(
    e: Any, s: dict[str, Any], kind: str, blob: bytes, table: tuple[Any, ...], store: _store.Store | None, run: str, session: Any
) -> tuple[_net.Net, list[dict[str, float]]]:
    """What the job has made of the table, and its history."""
    (features, labels, frame), env = table, _environment(e, kind)
    np = s["np"] or _cluster.wait_for_slots(session, None, _cluster.start_limit(), _cluster.Teller())
    if np is None:
        raise ArgumentError(f"{WHO}: under Spark Connect this session does not tell how many task slots the cluster has; give np=")
    path = [*sys.path, *env.get("PYTHONPATH", "").split(os.pathsep)]  # with which ranks run
    _packages.check(session, _packages.of_training(blob, kind, env.get("KERAS_BACKEND", "")), WHO, [p for p in path if p])
    frame.persist()  # it is looked at, and then trained on
    try:
        looked = _looked_at(frame, s["validation"], store is not None)
        tell_nans(looked.nans, features, WHO)
        rows = looked.rows
        if rows < np:
            raise ArgumentError(f"{WHO}: the table has {rows} row{'s' * (rows != 1)} for np={np} ranks; give np={rows} or less")
        what = {"schema": frame.drop(_training.ORDER).schema.simpleString(), "rows": f"{rows:,} rows {looked.digest}"}
        settled = {} if store is None else _settled.settled(e, s, kind, features, labels, np, what)
        plan = _plan(s, kind, blob, features, labels, run, settled)
        if store is not None:
            plan.storage, plan.seal = e.storage_options, secrets.token_hex(8)
            _store.seal(store, run, plan.seal)
        show = _show(plan.word, e.progress, s["verbose"])
        outcome = _run.launch(
            _training.work, (plan,), None, np, dataframe=frame, env=env, spark=session, restarts=s["restarts"], show=show,
            words=_refusals.Words(elastic=None, who=WHO, rows=None),
        )[0]  # fmt: skip
    finally:
        frame.unpersist()
    wide = tuple(looked.widths.get(label, 1) > 1 for label in labels)
    net = _net_of(e, kind, outcome, features, labels, plan.shapes, wide)
    if store is not None:
        _keep(store, run, net)
    return net, outcome["history"]


def _looked_at(frame: Any, validation: Any, kept: bool) -> _frames.Looked:
    try:
        return _frames.looked_at(frame, WHO, [n for n in (_training.ORDER, _training.VALID) if kept and n in frame.columns])
    except ArgumentError as e:
        raise ArgumentError(str(e).replace(_training.VALID, str(validation))) from None


def _list(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _check(s: dict[str, Any], kind: str, e: Any) -> None:
    """What can be said without the table."""
    for name, least in (("batch_size", 1), ("epochs", 1), ("restarts", 0), ("accumulate", 1), ("np", 1), ("steps", 1)):
        value = s[name]
        if value is None and name in ("np", "steps"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"{WHO}: {name}={value!r} is no number of {name.replace('_', ' ')}; give {least} or more")
    v = s["validation"]
    if isinstance(v, (int, float)) and not isinstance(v, str) and v is not None and not 0 < v < 1:
        raise ArgumentError(
            f"{WHO}: validation={v!r}; give a part of the rows between 0 and 1, or the name of a column that is true for them"
        )
    if e.minibatch is not None and (kind != "torch" or s["accumulate"] > 1):
        what = f"accumulate={s['accumulate']} with" if kind == "torch" else f"a model that is a {kind} has no"
        raise ArgumentError(f"{WHO}: {what} minibatch, a function that makes the step of a torch module itself; give one or the other")
    if e.storage_options and (s["store"] is None or "://" not in s["store"]):
        raise ArgumentError(f"{WHO}: storage_options without a store that is a URL; give store=, such as s3://bucket/runs")
    if s["run_id"] and s["store"] is None:
        raise ArgumentError(f"{WHO}: run_id={s['run_id']!r} without a store: give store=, the folder where runs are kept")
    if s["run_id"] and ("/" in s["run_id"] or s["run_id"].startswith(".")):
        raise ArgumentError(f"{WHO}: run_id={s['run_id']!r} is no name of a folder; give one without '/'")
    if s["class_weight"] and len(_list(s["label"])) != 1:
        raise ArgumentError(f"{WHO}: class_weight goes with one label; there are {len(_list(s['label']))}")
    labels = len(_list(s["label"]))
    for name, wanted in (("label_shapes", labels), ("loss_weights", labels)):
        if s[name] is not None and len(s[name]) != wanted:
            raise ArgumentError(f"{WHO}: {name} has {len(s[name])} entries for {wanted} label{'s' * (wanted != 1)}; give one for each")
    if kind == "torch":
        for loss in e.loss if isinstance(e.loss, (list, tuple)) else [e.loss]:
            _losses.check_loss(loss)
        _losses.check_metrics(e.metrics, max(1, labels))
    elif kind == "keras":
        _keras_given.check(e)
    if s["store"] is not None:
        _store.Store(s["store"], e.storage_options)


def _frame(s: dict[str, Any], kind: str, labels: list[str], df: Any) -> tuple[tuple[str, ...], tuple[str, ...], Any]:
    """The columns, and the frame of what the ranks get: those, a number that orders rows, and which rows validate."""
    from pyspark.sql import functions as F

    if kind != "function" or any(label in df.columns for label in labels):
        for label in labels:
            need(label, df.columns, WHO, "label column")
    else:
        labels = []
    if not labels and kind != "function":
        raise ArgumentError(f"{WHO}: there is no label; name its column in label=")
    validation = s["validation"]
    for name, what in ((s["weight"], "weight column"), (validation if isinstance(validation, str) else None, "validation column")):
        if name is not None:
            need(name, df.columns, WHO, what)
    features = _features(s, labels, df)
    both = [f for f in features if f in labels]
    if both:
        raise ArgumentError(f"{WHO}: {both[0]!r} is a feature and the label; name the features without it")
    if s["shapes"] is not None and len(s["shapes"]) != len(features):
        raise ArgumentError(f"{WHO}: shapes has {len(s['shapes'])} entries for {len(features)} features; give one for each")
    names = [*dict.fromkeys([*features, *labels, *([s["weight"]] if s["weight"] else [])])]
    if kind != "function":
        _numbers(df, names)
    columns = []
    for name, column in zip(names, _frames.taken(df, names, WHO), strict=True):
        small = _narrowed(df.schema[name].dataType) if name in features else None
        columns.append(column.cast(small).alias(name) if small else column.alias(name))
    more = []
    if isinstance(validation, str):
        flag = df.schema[validation].dataType
        if type(flag).__name__ not in _NUMBERS:
            raise ArgumentError(f"{WHO}: the validation column {validation!r} holds {flag.simpleString()}; give one of booleans or numbers")
        more.append(F.col(f"`{validation}`").cast("boolean").alias(_training.VALID))
    frame = df.select(*columns, *more)
    order = F.xxhash64(F.lit(int(s["seed"])), *[F.col(f"`{n}`") for n in names])
    frame = frame.withColumn(_training.ORDER, order)
    if validation is not None and not isinstance(validation, str):
        # By the row's values, so that the same rows validate whatever the partitions are, and in every part of a run.
        frame = frame.withColumn(_training.VALID, F.pmod(F.col(_training.ORDER), F.lit(_FINE)) < F.lit(int(validation * _FINE)))
    return tuple(features), tuple(labels), frame


def _features(s: dict[str, Any], labels: list[str], df: Any) -> list[str]:
    if s["features"] is not None:
        for name in _list(s["features"]):
            need(name, df.columns, WHO)
        return _list(s["features"])
    if "features" in df.columns:
        return ["features"]
    found = [c for c in df.columns if c not in {*labels, s["weight"], s["validation"]}]
    if not found:
        raise ArgumentError(f"{WHO}: the table has no column but {', '.join(df.columns)}; features need some")
    return found


def _numbers(df: Any, names: Sequence[str]) -> None:
    for name in names:
        kind = df.schema[name].dataType
        inner = kind.elementType if type(kind).__name__ == "ArrayType" else kind
        if type(inner).__name__ not in _NUMBERS and not _frames.is_vector(kind):
            raise ArgumentError(
                f"{WHO}: column {name!r} holds {kind.simpleString()}, no numbers; encode it as numbers (StringIndexer, for text), or name the "
                "columns to take in features="
            )


def _narrowed(kind: Any) -> str | None:
    """Half the bytes for fractions, which models take as float32."""
    name = type(kind).__name__
    if name in ("DoubleType", "DecimalType"):
        return "float"
    if _frames.is_vector(kind) or (name == "ArrayType" and type(kind.elementType).__name__ in ("DoubleType", "DecimalType")):
        return "array<float>"
    return None


def _blob(e: Any, s: dict[str, Any], kind: str) -> bytes:
    """What the ranks train with."""
    given: dict[str, Any] = {"transform": e.row_transform, "loss_weights": s["loss_weights"]}
    if kind == "keras":
        import keras

        def packed(value: Any, what: str) -> bytes | None:
            return _travel.dumps(value, what) if value is not None else None

        optimizer = e.optimizer
        if optimizer is None and e.loss is not None:  # else the ranks take it from the model, with what it has learned
            optimizer = getattr(e.model, "optimizer", None)
        if optimizer is not None and not isinstance(optimizer, str):
            optimizer = keras.optimizers.serialize(optimizer)
        given |= {
            "model": _net.keras_bytes(e.model), "optimizer": optimizer, "loss": packed(e.loss, "loss"), "metrics": packed(e.metrics, "metrics"),
            "callbacks": packed(e.callbacks or None, "callbacks"), "custom": packed(e.custom_objects or None, "custom_objects"),
            "compiled": _keras_given.compiled(e.model),
        }  # fmt: skip
        return _travel.dumps(given, "transform")
    if kind == "torch":
        # Together, so that the optimizer's parameters stay the model's.
        return _travel.dumps(
            given | {"model": e.model, "loss": e.loss, "optimizer": e.optimizer, "metrics": e.metrics, "minibatch": e.minibatch},
            "the model, loss, optimizer or minibatch",
        )
    return _travel.dumps(given | {"model": e.model}, "the training function")


def _plan(
    s: dict[str, Any], kind: str, blob: bytes, features: tuple[str, ...], labels: tuple[str, ...], run: str, settled: dict[str, Any]
) -> _training.Plan:
    def shapes(given: Any) -> Any:
        return None if given is None else tuple(None if g is None else tuple(int(d) for d in g) for g in given)

    return _training.Plan(
        kind=kind, blob=blob, features=features, labels=labels, shapes=shapes(s["shapes"]), label_shapes=shapes(s["label_shapes"]),
        weight=s["weight"], class_weight=s["class_weight"], validates=s["validation"] is not None, batch_size=s["batch_size"],
        epochs=s["epochs"], learning_rate=s["learning_rate"], seed=int(s["seed"]), shuffle=bool(s["shuffle"]), passes=s["accumulate"],
        steps=s["steps"], validation_steps=s["validation_steps"], validation_batch_size=s["validation_batch_size"],
        compression=s["compression"], gpu=bool(s["gpu"]), store=s["store"], run=run, settled=settled, word=f"<{secrets.token_hex(8)}>",
    )  # fmt: skip


def _environment(e: Any, kind: str) -> dict[str, str]:
    env = dict(e.env)
    if kind == "keras":
        import keras

        env.setdefault("KERAS_BACKEND", keras.backend.backend())
        env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return env


def _show(word: str, progress: Callable[[dict[str, Any]], Any] | None, verbose: bool) -> Callable[[str], str | None]:
    """Takes the lines that tell of epochs out of what workers print."""

    def show(line: str) -> str | None:
        before, found, said = line.partition(word)
        if not found:
            return line
        try:
            logs = json.loads(said)
        except ValueError:
            return None
        if progress is not None:
            try:
                progress(dict(logs))
            except Exception as e:  # it must not hold the job's output up
                print(f"hora: progress raised {type(e).__name__}: {e}", file=sys.stderr)
        if not verbose:
            return None
        rest = ", ".join(f"{k} {v:.4g}" for k, v in logs.items() if k not in ("epoch", "epochs", "run_id"))
        return f"epoch {logs['epoch']} of {logs['epochs']}: {rest}\n"

    return show


def _net_of(
    e: Any, kind: str, outcome: dict[str, Any], features: tuple[str, ...], labels: tuple[str, ...], shapes: Any, wide: Sequence[bool]
) -> _net.Net:
    """The user's own model with the weights that were learned; his object stays as it was."""
    custom, backend = None, ""
    if kind == "torch":
        import torch

        model = copy.deepcopy(e.model).cpu()
        model.load_state_dict(torch.load(io.BytesIO(outcome["weights"]), map_location="cpu", weights_only=True))
        model.eval()
        blob = _travel.dumps(model, "the model")
    elif kind == "keras":
        import keras

        model = _net.keras_model(_net.keras_bytes(e.model), e.custom_objects or None, compile=e.loss is None)
        model.set_weights(_net.arrays(outcome["weights"]))
        blob = _net.keras_bytes(model)
        custom = _travel.dumps(e.custom_objects, "custom_objects") if e.custom_objects else None
        backend = keras.backend.backend()
    else:
        blob = outcome["model"]
    return _net.Net(kind, blob, features, labels, shapes, outcome["outputs"], wide, custom, backend)


def _keep(store: _store.Store, run: str, net: _net.Net) -> None:
    """The framework's own model into the run's folder, beside the weights."""
    if net.kind == "keras":
        store.write(f"runs/{run}/model.keras", net.blob)
    elif net.kind == "torch":
        import torch

        out = io.BytesIO()
        torch.save(net.model, out)
        store.write(f"runs/{run}/model.pt", out.getvalue())
    else:
        store.write(f"runs/{run}/model.pickle", net.blob)


def outputs(net: _net.Net, df: Any, name: str, batch_bytes: int = 16 << 20) -> Any:
    """The frame with all outputs of a model as one column of arrays."""
    for f in net.features:
        need(f, df.columns, "transform")
    blob = pickle.dumps(net, protocol=5)
    digest = hashlib.sha256(blob).hexdigest()
    given = _scorer.Given(blob, False, digest, list(net.features), "array<double>", False, False, batch_bytes, 0)
    return _scoring.scored(df, given, name, None, None, None)


def transform(fitted: Any, df: Any) -> Any:
    """What a fitted model's transform does, lazily."""
    from pyspark.sql import functions as F

    net, prediction, raw = fitted.net, fitted.getOrDefault("prediction"), fitted.getOrDefault("raw")
    labels = net.labels if len(net.outputs_of) > 1 and len(net.labels) > 1 else net.labels[:1]
    names = [prediction] if len(labels) < 2 else [f"{prediction}_{label}" for label in labels]
    fresh((*names, raw), df.columns, "transform", "give prediction= or raw= another name")
    found = outputs(net, df, _HIDDEN, fitted.getOrDefault("batch_bytes"))
    whole, at = F.col(_HIDDEN), 1
    for i, name in enumerate(names):
        width = net.outputs_of[i]
        own = f"slice({_HIDDEN}, {at}, {width})"  # as SQL: pyspark 3.5's array_position takes no column for what is sought
        if width == 1:
            value = F.element_at(whole, at)
        elif net.is_wide(i):  # this label is a list itself
            value = F.expr(own)
        else:
            value = F.expr(f"cast(array_position({own}, array_max({own})) - 1 as double)")
        found = found.withColumn(name, value)
        at += width
    if raw:
        from pyspark.ml.functions import array_to_vector

        found = found.withColumn(raw, array_to_vector(whole))
    return found.drop(_HIDDEN)
