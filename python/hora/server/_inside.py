"""What a job's process tells its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _report


def tell(step: int = 0, metrics: Mapping[str, Any] | None = None, tags: Mapping[str, str] | None = None) -> bool:
    """Tells the server numbers of this rank, under any names, and tags of the job; False outside a submitted job."""
    said: dict[str, Any] = {"step": _report.number(step)}
    if metrics:
        said["metrics"] = {str(name): _report.value(str(name), v) for name, v in metrics.items()}
    if tags:
        said["tags"] = {str(name): str(v) for name, v in tags.items()}
    return _report.send(said)
