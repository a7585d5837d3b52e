"""The Horovod names on hora: old scripts run unchanged.

`import horovod.torch as hvd` works as it always did; docs/horovod.md lists every name and its state.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.28.1+hora"

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from .runner import run

        return run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
