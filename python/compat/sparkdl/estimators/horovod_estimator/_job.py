"""What HorovodEstimator sends to the ranks: a training function of hora.spark.Estimator. TensorFlow is imported there
alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Job"]


@dataclass
class Job:
    """All of a fit but its rows."""

    model_fn: Any
    mapping: dict[str, str]  # column → name in features
    label: str | None
    folder: str
    max_steps: int
    params: dict[str, Any]
    seconds: float
    seal: str  # what the driver wrote into the folder

    __name__ = "model_fn"

    def __call__(self, training: Any) -> Any:
        """A rank's part; the model on rank 0."""
        from ._loop import train

        return train(self, training)
