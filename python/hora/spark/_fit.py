"""Estimator.fit on the driver: what can be said before the job, the frame with its marks, the job, and what comes of
it."""

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
    _chosen,
    _cluster,
    _frames,
    _given,
    _keras_given,
    _kinds,
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


def fit(e: Any, df: Any) -> Any:
    """The fitted model."""
    from ._estimator import EstimatorModel

    s = e.settings()
    kind = _kinds.kind_of(e.model)
    _given.check(s, kind, e)
    features, labels, frame = _chosen.frame(s, kind, _chosen.listed(s["label"]), df)
    if kind == "keras" and s["shapes"] is None:
        s["shapes"] = _keras_given.shapes(e.model, features)
    blob = _blob(e, s, kind)
    if s["store"] is not None:
        s["store"] = _store.absolute(s["store"])
    store = None if s["store"] is None else _store.Store(s["store"], e.storage_options)
    run = s["run_id"] or time.strftime("run-%Y%m%d-%H%M%S-") + secrets.token_hex(3)
    with _settled.alone(s["store"], run):
        net, outcome = _trained(e, s, kind, blob, (features, labels, frame), store, run, df.sparkSession)
    fitted = EstimatorModel(net, outcome["history"], run)
    fitted.optimizer_state = outcome.get("optimizer")
    fitted._set(
        features=list(features),
        **{k: v for k in ("label", "prediction", "raw", "batch_bytes") if (v := s[k]) is not None},
    )
    return fitted


def _trained(
    e: Any,
    s: dict[str, Any],
    kind: str,
    blob: bytes,
    table: tuple[Any, ...],
    store: _store.Store | None,
    run: str,
    session: Any,
) -> tuple[_net.Net, dict[str, Any]]:
    """What the job has made of the table, and all that it gave."""
    (features, labels, frame), env = table, _environment(e, kind)
    np = s["np"] or _cluster.wait_for_slots(session, None, _cluster.start_limit(), _cluster.Teller())
    if np is None:
        raise ArgumentError(
            f"{WHO}: under Spark Connect this session does not tell how many task slots the cluster has; give np="
        )
    path = [*sys.path, *env.get("PYTHONPATH", "").split(os.pathsep)]  # with which ranks run
    _packages.check(
        session, _packages.of_training(blob, kind, env.get("KERAS_BACKEND", "")), WHO, [p for p in path if p]
    )
    frame.persist()  # it is looked at, and then trained on
    try:
        looked = _looked_at(frame, s, store is not None)
        tell_nans(looked.nans, features, WHO)
        rows = looked.rows
        if rows < np:
            raise ArgumentError(
                f"{WHO}: the table has {rows} row{'s' * (rows != 1)} for np={np} ranks; give np={rows} or less"
            )
        if e.row_transform is None:
            _chosen.check_parts(looked, s, np)
        dealt = _chosen.dealt(frame, rows, np)
        what = {"schema": frame.drop(_training.ORDER).schema.simpleString(), "rows": f"{rows:,} rows {looked.digest}"}
        settled = {} if store is None else _settled.settled(e, s, kind, features, labels, np, what)
        plan = _plan(s, kind, blob, features, labels, run, settled)
        plan.keeps_optimizer = e.keeps_optimizer
        if store is not None:
            plan.storage, plan.seal = e.storage_options, secrets.token_hex(8)
            _store.seal(store, run, plan.seal)
        show = _show(plan.word, e.progress, s["verbose"])
        outcome = _run.launch(
            _training.work, (plan,), None, np, dataframe=frame if dealt is None else dealt, dealt=dealt is not None,
            env=env, spark=session, restarts=s["restarts"], show=show,
            words=_refusals.Wording(elastic=None, who=WHO, rows=None),
        )[0]  # fmt: skip
    finally:
        frame.unpersist()
    wide = tuple(looked.widths.get(label, 1) > 1 for label in labels)
    net = _net_of(e, kind, outcome, features, labels, plan.shapes, wide)
    if store is not None:
        _keep(store, run, net)
    return net, outcome


def _looked_at(frame: Any, s: dict[str, Any], kept: bool) -> _frames.Looked:
    hashed = [n for n in (_training.ORDER, _training.VALID) if kept and n in frame.columns]
    try:
        return _frames.looked_at(frame, WHO, hashed, _chosen.parts(frame, s))
    except ArgumentError as e:
        raise ArgumentError(str(e).replace(_training.VALID, str(s["validation"]))) from None


def _blob(e: Any, s: dict[str, Any], kind: str) -> bytes:
    """What the ranks train with."""
    given: dict[str, Any] = {"transform": e.row_transform, "loss_weights": s["loss_weights"]}
    if kind == "keras":
        keras = _kinds.keras_of(e.model)

        def packed(value: Any, what: str) -> bytes | None:
            return _travel.pickled_with_code(value, what) if value is not None else None

        optimizer = e.optimizer
        if optimizer is None and e.loss is not None:  # else the ranks take it from the model, with what it has learned
            optimizer = getattr(e.model, "optimizer", None)
        if optimizer is not None and not isinstance(optimizer, str):
            optimizer = _kinds.keras_of(optimizer).optimizers.serialize(optimizer)
        given |= {
            "model": _net.keras_bytes(e.model), "optimizer": optimizer, "loss": packed(e.loss, "loss"),
            "metrics": packed(e.metrics, "metrics"),
            "callbacks": packed(e.callbacks or None, "callbacks"),
            "custom": packed(e.custom_objects or None, "custom_objects"),
            "package": keras.__name__,
            "compiled": _keras_given.compiled(e.model),
        }  # fmt: skip
        return _travel.pickled_with_code(given, "transform")
    if kind == "torch":
        # Together, so that the optimizer's parameters stay the model's.
        return _travel.pickled_with_code(
            given
            | {
                "model": e.model,
                "loss": e.loss,
                "optimizer": e.optimizer,
                "metrics": e.metrics,
                "minibatch": e.minibatch,
            },
            "the model, loss, optimizer or minibatch",
        )
    return _travel.pickled_with_code(given | {"model": e.model}, "the training function")


def _plan(
    s: dict[str, Any],
    kind: str,
    blob: bytes,
    features: tuple[str, ...],
    labels: tuple[str, ...],
    run: str,
    settled: dict[str, Any],
) -> _training.Plan:
    def shapes(given: Any) -> Any:
        return None if given is None else tuple(None if g is None else tuple(int(d) for d in g) for g in given)

    return _training.Plan(
        kind=kind, blob=blob, features=features, labels=labels, shapes=shapes(s["shapes"]),
        label_shapes=shapes(s["label_shapes"]),
        weight=s["weight"], class_weight=s["class_weight"], validates=s["validation"] is not None,
        batch_size=s["batch_size"],
        epochs=s["epochs"], learning_rate=s["learning_rate"], seed=int(s["seed"]), shuffle=bool(s["shuffle"]),
        passes=s["accumulate"],
        steps=s["steps"], validation_steps=s["validation_steps"], validation_batch_size=s["validation_batch_size"],
        compression=s["compression"], gpu=bool(s["gpu"]), store=s["store"], run=run, settled=settled,
        word=f"<{secrets.token_hex(8)}>",
    )  # fmt: skip


def _environment(e: Any, kind: str) -> dict[str, str]:
    env = dict(e.env)
    if kind == "keras":
        keras = _kinds.keras_of(e.model)
        env.setdefault("KERAS_BACKEND", keras.backend.backend())
        env["TF_USE_LEGACY_KERAS"] = str(int(keras.__name__ == "tf_keras"))  # the ranks' Keras is the model's
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
    e: Any,
    kind: str,
    outcome: dict[str, Any],
    features: tuple[str, ...],
    labels: tuple[str, ...],
    shapes: Any,
    wide: Sequence[bool],
) -> _net.Net:
    """The user's own model with the weights that were learned; his object stays as it was."""
    custom, backend, package = None, "", "keras"
    if kind == "torch":
        import torch

        model = copy.deepcopy(e.model).cpu()
        model.load_state_dict(torch.load(io.BytesIO(outcome["weights"]), map_location="cpu", weights_only=True))
        model.eval()
        blob = _travel.pickled_with_code(model, "the model")
    elif kind == "keras":
        keras = _kinds.keras_of(e.model)
        package = keras.__name__
        model = _net.keras_model(
            _net.keras_bytes(e.model), e.custom_objects or None, compile=e.loss is None, package=package
        )
        model.set_weights(_net.arrays(outcome["weights"]))
        blob = _net.keras_bytes(model)
        custom = _travel.pickled_with_code(e.custom_objects, "custom_objects") if e.custom_objects else None
        backend = keras.backend.backend()
    else:
        blob = outcome["model"]
    return _net.Net(kind, blob, features, labels, shapes, outcome["outputs"], wide, custom, backend, package)


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


def with_outputs(net: _net.Net, df: Any, name: str, batch_bytes: int = 16 << 20) -> Any:
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
    found = with_outputs(net, df, _HIDDEN, fitted.getOrDefault("batch_bytes"))
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
