"""hora on a Spark cluster. Names are looked up when they are first used: an executor imports only what its task
needs. `hora.spark.frontend` has what packages use that put another interface before it."""

from __future__ import annotations

import importlib
from typing import Any

# Each public name and the module of this package that has it.
_HOMES: dict[str, str] = {
    "Estimator": "_estimator",
    "EstimatorModel": "_estimator",
    "PartitionEnsemble": "_ensemble",
    "PartitionEnsembleModel": "_ensemble",
    "Training": "_training",
    "batches": "_rows",
    "predict": "_scoring",
    "register_sql": "_sql",
    "run": "_run",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hora.spark' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
