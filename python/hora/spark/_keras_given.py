"""The Keras model that an Estimator is given, on the driver: what is wrong with it, what it takes, and how it was
compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ._kinds import keras_of

WHO = "Estimator.fit"


def check(e: Any) -> None:
    """What can be said about it without the table."""
    keras = keras_of(e.model)
    passes = e.getOrDefault("accumulate")
    if passes > 1 and not hasattr(keras, "ops"):
        raise ArgumentError(
            f"{WHO}: accumulate={passes} with a model of Keras 2 ({keras.__name__} {keras.__version__}), whose optimizers add no passes up; "
            f"give a batch_size that is {passes} times as large, or a model of Keras 3"
        )
    if e.loss is None and not is_compiled(e.model):
        raise ArgumentError(
            f"{WHO}: the Keras model is not compiled and loss is missing; compile it, or give loss= and optimizer="
        )
    if not e.model.built:
        raise ArgumentError(
            f"{WHO}: the Keras model is not built yet; begin it with keras.Input(shape), so that its inputs are known"
        )
    for what, given, find in (("metric", e.metrics, keras.metrics.get), ("loss", e.loss, keras.losses.get)):
        for one in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(one, str) and one not in ("accuracy", "acc", "crossentropy", "ce"):
                try:
                    find(one)
                except ValueError:
                    near = _near(one, dir(keras.metrics if what == "metric" else keras.losses))
                    raise ArgumentError(f"{WHO}: Keras has no {what} {one!r}{near}") from None


def shapes(model: Any, features: Sequence[str]) -> list[tuple[int, ...]] | None:
    """The inputs' own shapes; None where one matrix is all that the model takes."""
    wanted = [tuple(-1 if d is None else int(d) for d in i.shape[1:]) for i in model.inputs]
    if len(wanted) == 1 and len(wanted[0]) < 2:
        return None
    if len(wanted) != len(features):
        raise ArgumentError(
            f"{WHO}: the Keras model has {len(wanted)} input{'s' * (len(wanted) != 1)} of shape {', '.join(map(str, wanted))}, and there are "
            f"{len(features)} features ({', '.join(features[:10])}); name one for each input, in their order, in features="
        )
    return wanted


def _near(name: str, known: Sequence[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, known, 2, 0.5)
    return (
        f"; did you mean {' or '.join(map(repr, found))}?"
        if found
        else "; look at keras.metrics and keras.losses for what it has"
    )


def is_compiled(model: Any) -> bool:
    """Whether compile() was called."""
    return bool(getattr(model, "compiled", False) or getattr(model, "_is_compiled", False))  # Keras 3; Keras 2


def compiled(model: Any) -> dict[str, Any]:
    """What a model was compiled with besides optimizer and loss, as it can travel."""
    config = model.get_compile_config() if is_compiled(model) else {}
    names = ("metrics", "weighted_metrics", "loss_weights", "run_eagerly", "steps_per_execution", "jit_compile")
    return {k: config[k] for k in names if config.get(k) is not None}
