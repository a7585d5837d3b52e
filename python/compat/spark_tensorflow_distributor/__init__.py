"""TensorFlow's strategies in the task slots of a Spark cluster."""

from __future__ import annotations

from .mirrored_strategy_runner import MirroredStrategyRunner

__version__ = "1.0.0+hora"

__all__ = ["MirroredStrategyRunner", "__version__"]
