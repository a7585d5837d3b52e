"""What an Estimator was given, looked at by itself, before the table."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError
from . import _chosen, _keras_given, _losses, _optimizers, _store, _training

WHO = _training.WHO

# Of each kind what it has no use for, and what to do instead.
_HAND = "the function trains by itself, with what it has of its own; leave this out"
_KERAS = "they go with a Keras model; leave them out"
UNUSED = {
    "torch": {
        "callbacks": "the training of a torch module calls none; give progress=, minibatch=, or a function that trains",
        "custom_objects": _KERAS,
    },
    "keras": {},
    "function": dict.fromkeys(("loss", "optimizer", "metrics", "loss_weights", "callbacks", "custom_objects"), _HAND),
}
_CALLED = {"torch": "a torch module", "keras": "a Keras model", "function": "a training function"}
_COMPRESSIONS = ("none", "fp16", "bf16")


def check(s: dict[str, Any], kind: str, e: Any) -> None:
    """Raises where an argument is wrong, or would do nothing."""
    _numbers(s, kind)
    for name, instead in UNUSED[kind].items():
        value = s[name] if name in s else getattr(e, name)
        if value is not None and not (isinstance(value, (list, tuple, dict)) and not value):
            raise ArgumentError(f"{WHO}: {name} does nothing with {_CALLED[kind]}: {instead}")
    if e.minibatch is not None and (kind != "torch" or s["accumulate"] > 1):
        what = f"accumulate={s['accumulate']} with" if kind == "torch" else f"a model that is a {kind} has no"
        raise ArgumentError(
            f"{WHO}: {what} minibatch, a function that makes the step of a torch module itself; give one or the other"
        )
    _run(s, e)
    labels = len(_chosen.listed(s["label"]))
    if s["class_weight"]:
        _classes(s["class_weight"], labels)
    for name, wanted in (("label_shapes", labels), ("loss_weights", labels)):
        if s[name] is not None and len(s[name]) != wanted:
            raise ArgumentError(
                f"{WHO}: {name} has {len(s[name])} entries for {wanted} label{'s' * (wanted != 1)}; give one for each"
            )
    if kind == "torch":
        for loss in e.loss if isinstance(e.loss, (list, tuple)) else [e.loss]:
            _losses.check_loss(loss)
        _losses.check_metrics(e.metrics, max(1, labels))
        _optimizers.check(e.optimizer, s["learning_rate"])
    elif kind == "keras":
        _keras_given.check(e)
    if s["store"] is not None:
        _store.Store(s["store"], e.storage_options)


def _numbers(s: dict[str, Any], kind: str) -> None:
    for name, least in (
        ("batch_size", 1), ("epochs", 1), ("restarts", 0), ("accumulate", 1), ("np", 1), ("steps", 1),
        ("validation_steps", 1), ("validation_batch_size", 1),
    ):  # fmt: skip
        value = s[name]
        if value is None and name in ("np", "steps", "validation_steps", "validation_batch_size"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(
                f"{WHO}: {name}={value!r} is no number of {name.replace('_', ' ')}; give {least} or more"
            )
    v = s["validation"]
    if isinstance(v, (int, float)) and not isinstance(v, str) and v is not None and not 0 < v < 1:
        raise ArgumentError(
            f"{WHO}: validation={v!r}; give a part of the rows between 0 and 1, or the name of a column that is true for them"
        )
    rate = s["learning_rate"]
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if rate is not None and (not 0 <= rate < math.inf if number else kind == "torch" or isinstance(rate, (str, bool))):
        raise ArgumentError(f"{WHO}: learning_rate={rate!r}; give a number, 0 or more, or leave it to the optimizer")
    if kind == "torch":
        from hora.torch.compression import choose

        try:
            choose(s["compression"])
        except ValueError as e:
            raise ArgumentError(f"{WHO}: {e}") from None
    elif s["compression"] not in (None, *_COMPRESSIONS):
        raise ArgumentError(f"{WHO}: compression={s['compression']!r}; it is one of {', '.join(_COMPRESSIONS)}")


def _run(s: dict[str, Any], e: Any) -> None:
    if e.storage_options and (s["store"] is None or "://" not in s["store"]):
        raise ArgumentError(
            f"{WHO}: storage_options without a store that is a URL; give store=, such as s3://bucket/runs"
        )
    if s["run_id"] and s["store"] is None:
        raise ArgumentError(
            f"{WHO}: run_id={s['run_id']!r} without a store: give store=, the folder where runs are kept"
        )
    if s["run_id"] and ("/" in s["run_id"] or s["run_id"].startswith(".")):
        raise ArgumentError(f"{WHO}: run_id={s['run_id']!r} is no name of a folder; give one without '/'")


def _classes(weights: Mapping[Any, Any], labels: int) -> None:
    if labels != 1:
        raise ArgumentError(f"{WHO}: class_weight goes with one label; there are {labels}")
    for key, weight in weights.items():
        try:
            fits = math.isfinite(float(key)) and 0 <= float(weight) < math.inf
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise ArgumentError(
                f"{WHO}: class_weight has {key!r}: {weight!r}; give a mapping from the label's numbers to weights, 0 or more"
            )
