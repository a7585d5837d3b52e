"""What the one rank of an Estimator's fit does, in this process and without Spark: so a parameter's effect costs no
job."""

from __future__ import annotations

from typing import Any

import pyarrow

import hora
from hora.spark import _chosen, _fit, _given, _keras_given, _kinds, _training


def fit(monkeypatch: Any, trainer: Any, columns: dict[str, Any], validates: str | None = None) -> dict[str, Any]:
    """The weights and the history of an Estimator, or of one of Horovod's, fitted on some columns; `validates` names
    the one that is true for rows to validate on."""
    if not isinstance(trainer, hora.spark.Estimator):
        trainer = hora.spark.Estimator(**trainer._given(validates))
    s = trainer.settings()
    kind = _kinds.kind_of(trainer.model)
    _given.check(s, kind, trainer)
    features, labels = tuple(s["features"]), tuple(_chosen.listed(s["label"]))
    if kind == "keras" and s["shapes"] is None:
        s["shapes"] = _keras_given.shapes(trainer.model, features)
    plan = _fit._plan(s, kind, _fit._blob(trainer, s, kind), features, labels, "here", {})
    plan.validates = validates is not None
    rows = len(next(iter(columns.values())))
    held = {} if validates is None else {_training.VALID: [bool(v) for v in columns[validates]]}
    given = {k: v for k, v in columns.items() if k != validates} | held | {_training.ORDER: list(range(rows))}
    table = pyarrow.table({k: pyarrow.array(v) for k, v in given.items()})
    monkeypatch.setattr(_training, "batches", lambda *_, **__: iter(table.to_batches()))
    try:
        made = _training.work(plan)
    finally:
        hora.shutdown()
    assert made is not None
    return made
