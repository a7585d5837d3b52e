"""The sentences for framework modules that hora does not have."""

from __future__ import annotations

__all__ = ["INSTEAD", "refuse"]

# Module → what to use instead.
INSTEAD = {
    "horovod.ray": "start the job with `hora run` on the hosts of the Ray cluster",
}


def refuse(module: str) -> ImportError:
    """The error that importing the module raises."""
    return ImportError(
        f"{module} is not part of hora: {INSTEAD[module]} (docs/horovod.md lists every name)", name=module
    )
