"""Optimizers of torch as an Estimator is given them: made already, a class, or a function that makes one."""

from __future__ import annotations

import copy
import inspect
import io
from typing import Any

from ..errors import ArgumentError
from ._losses import WHO

_RATES = ("lr", "learning_rate")
_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check(given: Any, rate: float | None) -> None:
    """Raises where an optimizer is none, or does not go with the rate."""
    if given is None or hasattr(given, "param_groups"):
        return
    if not callable(given):
        raise ArgumentError(
            f"{WHO}: optimizer is a {type(given).__name__}; give a torch.optim optimizer of the model, its class, or a function of "
            "(parameters, learning_rate)"
        )
    _rate(given, rate)


def made(given: Any, model: Any, rate: float | None) -> Any:
    """The user's own optimizer over this model's parameters."""
    import torch

    if isinstance(given, torch.optim.Optimizer):
        if rate is not None:  # it has travelled with the model, so that its parameters are the model's
            for group in given.param_groups:
                group["lr"] = rate
        return given
    if given is None:
        return torch.optim.Adam(model.parameters(), lr=1e-3 if rate is None else rate)
    places, names = _rate(given, rate)
    return given(model.parameters(), *places, **names)


def trained_optimizer(model: Any, given: Any, learned: Any, state: bytes) -> tuple[Any, Any]:
    """A copy of the user's module and optimizer, which belong together, with what a fit has learned: learned is the
    trained module, state the optimizer's of rank 0."""
    import torch

    model, given = copy.deepcopy((model, given))
    model.cpu()
    model.load_state_dict(learned.state_dict())
    model.eval()
    optimizer = made(given, model, None)
    # Groups may hold what is no tensor, such as a rate of NumPy's. The bytes are of the job's own rank 0, as all of its outcome.
    optimizer.load_state_dict(torch.load(io.BytesIO(state), map_location="cpu", weights_only=False))
    return model, optimizer


def _rate(given: Any, rate: float | None) -> tuple[tuple[float, ...], dict[str, float]]:
    """What a class or a function is called with besides the parameters: the rate, as it wants to have it, or nothing.

    A rate that is not given is the function's own default.
    """
    try:
        known = inspect.signature(given).parameters
    except (TypeError, ValueError):  # of a callable that does not tell
        return (), {} if rate is None else {"lr": rate}
    rest = [p for p in list(known.values())[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    named = next((p for p in rest if p.name in _RATES and p.kind != p.POSITIONAL_ONLY), None)
    second = next((p for p in rest if p.kind in _PLACES), None)
    wanted = [p.name for p in rest if p.default is p.empty and p not in (named, second)]
    what = f"{WHO}: the optimizer {getattr(given, '__name__', type(given).__name__)!r}"
    if wanted or not known:
        lacks = f"wants {wanted[0]!r} too" if wanted else "takes no parameters"
        raise ArgumentError(
            f"{what} {lacks}; give a function of (parameters, learning_rate), as functools.partial does"
        )
    if rate is None:
        needed = next((p for p in (named, second) if p is not None and p.default is p.empty), None)
        if needed is not None:
            raise ArgumentError(f"{what} wants {needed.name!r}; give learning_rate=, or {needed.name} a default")
        return (), {}
    if named is not None:
        return (), {named.name: rate}
    if second is not None:
        return (rate,), {}
    if any(p.kind == p.VAR_KEYWORD for p in known.values()):
        return (), {"lr": rate}
    raise ArgumentError(
        f"{what} takes the parameters alone, and learning_rate={rate!r} would do nothing; give it a second argument, or leave out "
        "learning_rate"
    )
