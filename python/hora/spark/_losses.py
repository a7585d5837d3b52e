"""Losses and metrics by name, for torch modules."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError

WHO = "Estimator.fit"

# Short names and the functions of torch.nn.functional that they stand for.
LOSSES = {
    "mse": "mse_loss", "mae": "l1_loss", "l1": "l1_loss", "huber": "huber_loss", "smooth_l1": "smooth_l1_loss",
    "cross_entropy": "cross_entropy", "nll": "nll_loss", "bce": "binary_cross_entropy",
    "bce_with_logits": "binary_cross_entropy_with_logits",
}  # fmt: skip

_PROBABLE = ("binary_cross_entropy", "BCELoss", "mse_loss", "MSELoss", "l1_loss", "L1Loss", "huber_loss", "HuberLoss",
             "smooth_l1_loss", "SmoothL1Loss")  # fmt: skip
_LOGITS = ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss", "soft_margin_loss", "SoftMarginLoss")
_THRESHOLDS = dict.fromkeys(_PROBABLE, 0.5) | dict.fromkeys(_LOGITS, 0.0)


def loss_of(given: Any) -> Any:
    """A loss as something to call."""
    if isinstance(given, str):
        import torch

        check_loss(given)
        return getattr(torch.nn.functional, LOSSES.get(given, given))
    return given() if isinstance(given, type) else given


def check_loss(given: Any) -> None:
    """Raises where a loss is none, in the words of what there is."""
    if given is None:
        raise ArgumentError(
            f"{WHO}: loss is missing; give a function of (output, label), or a name such as 'mse' or 'cross_entropy'"
        )
    if isinstance(given, str):
        if given not in LOSSES and given not in LOSSES.values():
            _unknown("loss", given, LOSSES)
    elif not callable(given):
        raise ArgumentError(
            f"{WHO}: loss is a {type(given).__name__}; give a function of (output, label), or a name such as 'mse'"
        )


def each_metrics(given: Any, outputs: int) -> list[Any]:
    """The metrics of each output: those of one list are all outputs', a list of lists has one for each."""
    if isinstance(given, (list, tuple)) and any(isinstance(m, (list, tuple)) for m in given):
        found = [m if isinstance(m, (list, tuple)) else [m] for m in given]
        if len(found) != outputs:
            raise ArgumentError(
                f"{WHO}: metrics has {len(found)} lists for {outputs} label{'s' * (outputs != 1)}; give one for each"
            )
        return found
    return [given or ()] * outputs


def check_metrics(given: Any, outputs: int = 1) -> None:
    """Raises where a metric does not exist."""
    for own in each_metrics(given, outputs):
        for m in own.values() if isinstance(own, dict) else own:
            if isinstance(m, str):
                if m not in METRICS:
                    _unknown("metric", m, METRICS)
            elif not callable(m):
                raise ArgumentError(
                    f"{WHO}: a metric is a {type(m).__name__}; give a function of (output, label), or a name"
                )


def _unknown(what: str, name: str, known: Any) -> None:
    near = difflib.get_close_matches(name, list(known), 3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(map(repr, known))}"
    raise ArgumentError(f"{WHO}: there is no {what} {name!r}; {hint} A function of (output, label) does too")


def accuracy(out: Any, y: Any, threshold: float = 0.5) -> Any:
    """The part of the rows that are answered right; of one output what lies above the threshold is a yes."""
    y = y.reshape(len(y), -1)
    if out.ndim > 1 and out.shape[1] > 1:
        truth = y.argmax(dim=1) if y.shape[1] > 1 else y[:, 0].long()
        return (out.reshape(len(out), -1).argmax(dim=1) == truth).float().mean()
    return ((out.reshape(-1) > threshold) == (y[:, 0] > 0.5)).float().mean()


def threshold(function: Any) -> float | None:
    """Where a loss takes one output for a yes: probabilities and values of labels from 0.5, logits from 0; None of a
    loss that is not known."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    home = getattr(function, "__module__", None) or type(function).__module__
    return _THRESHOLDS.get(name) if str(home).startswith("torch") else None


def _mse(out: Any, y: Any) -> Any:
    return ((out.reshape(-1) - y.reshape(-1)) ** 2).mean()


def _mae(out: Any, y: Any) -> Any:
    return (out.reshape(-1) - y.reshape(-1)).abs().mean()


METRICS: dict[str, Callable[..., Any]] = {"accuracy": accuracy, "mse": _mse, "mae": _mae}
