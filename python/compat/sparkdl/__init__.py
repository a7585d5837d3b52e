"""Databricks' HorovodRunner on hora."""

from __future__ import annotations

from .horovod.runner_base import HorovodRunner

__version__ = "2.2.0+hora"

__all__ = ["HorovodRunner", "__version__"]
