"""What a run is of: what may not change between its parts, for what goes on would be the history and the weights of
neither."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ArgumentError
from . import _code

WHO = "Estimator.fit"
_PARAMS = (
    "batch_size", "learning_rate", "seed", "weight", "validation", "accumulate", "shuffle", "steps", "class_weight",
    "loss_weights",
    "compression", "shapes", "label_shapes",
)  # fmt: skip

_busy: set[tuple[str, str]] = set()
_lock = threading.Lock()


def settled(
    e: Any, s: dict[str, Any], kind: str, features: Any, labels: Any, np: int, table: Mapping[str, Any]
) -> dict[str, Any]:
    """All of it as plain values. table: what `_frames.looked_at` has found out about the rows."""
    found = {k: s[k] for k in _PARAMS} | {"features": list(features), "label": list(labels), "np": np, "kind": kind}
    found |= {
        "loss": _named(e.loss),
        "optimizer": _optimizer(e.optimizer if e.optimizer is not None else getattr(e.model, "optimizer", None)),
        "transform": _named(e.row_transform), "minibatch": _named(e.minibatch), "model": _model(e.model, kind), **table,
        "code": _codes(e, kind),
    }  # fmt: skip
    return json.loads(json.dumps(found, default=_named))


def check(run: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises where a run would go on with something else; code that has changed, as where a fault was mended, is
    said."""
    k = next((k for k in now if k != "code" and before.get(k) != now[k]), None)
    if k is None:
        other = [n for n, word in now.get("code", {}).items() if _code.differs(before.get("code", {}).get(n), word)]
        if other:
            warnings.warn(
                f"{WHO}: run_id={run!r} was begun with other code in {' and '.join(other)}, and goes on with what is here now; give another "
                "run_id if its first epochs are to be made with this too",
                stacklevel=2,
            )
        return
    if k in ("rows", "schema"):
        raise ArgumentError(
            f"{WHO}: run_id={run!r} was begun on other rows ({before.get('rows')} {before.get('schema')}, and here are {now['rows']} "
            f"{now['schema']}); give another run_id, or the same rows, which a table that Spark computes anew need not have: write it into a file"
        )
    raise ArgumentError(
        f"{WHO}: run_id={run!r} was begun with {k}={before.get(k)!r} and would go on with {now[k]!r}; give another run_id, or the same settings"
    )


@contextlib.contextmanager
def alone(store: str | None, run: str) -> Iterator[None]:
    """No second fit of this process has the same run meanwhile."""
    key = (str(store), run)
    with _lock:
        if store is not None and key in _busy:
            raise ArgumentError(
                f"{WHO}: run_id={run!r} is being fitted already, in {store}; give each fit a run_id of its own (leave run_id out of a stage of "
                "a Pipeline that a CrossValidator fits)"
            )
        _busy.add(key)
    try:
        yield
    finally:
        with _lock:
            _busy.discard(key)


def _named(thing: Any) -> Any:
    """A function, a class or an object by its name; what code it has is told apart."""
    if thing is None or isinstance(thing, (str, int, float, bool)):
        return thing
    if isinstance(thing, (list, tuple)):
        return [_named(t) for t in thing]
    if isinstance(thing, Mapping):
        return {str(k): _named(v) for k, v in thing.items()}
    cls = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{cls.__module__}.{cls.__qualname__}"


def _codes(e: Any, kind: str) -> dict[str, str]:
    """A word for each place where code of the user's stands."""
    model = (
        [type(m) for m in e.model.modules()] if kind == "torch" else [type(e.model)] if kind == "keras" else [e.model]
    )
    given = {"loss": _flat(e.loss), "transform": [e.row_transform], "minibatch": [e.minibatch], "model": model}
    words = {name: _code.digest(*things) for name, things in given.items()}
    return {name: word for name, word in words.items() if word is not None}


def _flat(given: Any) -> list[Any]:
    if isinstance(given, Mapping):
        return [x for v in given.values() for x in _flat(v)]
    return [x for v in given for x in _flat(v)] if isinstance(given, (list, tuple)) else [given]


def _optimizer(given: Any) -> Any:
    """Its class, and its settings where it is one already."""
    if given is None or isinstance(given, (str, type)):
        return _named(given)
    if hasattr(given, "param_groups"):
        of = {k: v for k, v in given.defaults.items() if isinstance(v, (int, float, bool, str, tuple))}
    elif hasattr(given, "get_config"):
        of = {k: v for k, v in given.get_config().items() if k != "name"}
    else:
        return _named(given)
    return {"class": type(given).__name__, **{k: _plain(v) for k, v in of.items()}}


def _plain(value: Any) -> Any:
    return float(value) if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 else _named(value)


def _model(model: Any, kind: str) -> Any:
    """Its layers and the shapes of its weights, whose values a program that is started anew may draw anew."""
    if kind == "torch":
        return module_digest(model)
    if kind == "keras":
        layers = [type(layer).__name__ for layer in getattr(model, "layers", ())]
        return f"{type(model).__name__} {_digest([layers, [tuple(w.shape) for w in model.weights]])}"
    return model.settled() if callable(getattr(model, "settled", None)) else _named(model)


def module_digest(module: Any) -> str:
    """A torch module's name, and a digest of what it is made of."""
    weights = [(k, tuple(v.shape)) for k, v in module.state_dict().items() if hasattr(v, "shape")]
    return f"{type(module).__name__} {_digest([re.sub(r'0x[0-9a-f]+', '', repr(module)), weights])}"


def _digest(what: Any) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:12]
