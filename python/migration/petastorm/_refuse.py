"""What this package does not do, said in a sentence each."""

from __future__ import annotations

import importlib.metadata
from typing import Any


def alone() -> None:
    """Refuse to lie over another petastorm's files: nobody could tell whose modules are imported."""
    try:
        other = importlib.metadata.version("petastorm")
    except importlib.metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"petastorm {other} is installed beside hora-petastorm, and their files have the same names: "
        "pip uninstall petastorm, then pip install --no-index --find-links dist --force-reinstall --no-deps hora-petastorm"
    )


def internal(module: str, instead: str) -> Any:
    """A module's __getattr__ that refuses its names."""

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"petastorm.{module}.{name} is not in hora-petastorm: {instead}")

    return refuse
