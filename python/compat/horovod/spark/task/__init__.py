"""What a training function asks of the Spark task that it runs in."""

from __future__ import annotations

import os

__all__ = ["get_available_devices"]


def get_available_devices() -> list[str]:
    """The addresses of the GPUs that Spark gave this rank's task; none where it gives none.

    >>> get_available_devices()
    []
    """
    return [d for d in os.environ.get("HORA_SPARK_TASK_DEVICES", "").split(",") if d]
