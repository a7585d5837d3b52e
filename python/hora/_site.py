"""Where a program calls hora, as a name that ranks compare: HORA_CHECK_CALLS."""

from __future__ import annotations

import os
import sys
from types import FrameType

__all__ = ["asked", "site"]

_OURS = {"hora", "horovod", "sparkdl", "torch", "tensorflow", "keras"}  # modules whose frames are not the program's


def asked() -> bool:
    """Whether calls without a name go by where they were made."""
    return os.environ.get("HORA_CHECK_CALLS", "0") not in ("", "0")


def site() -> str | None:
    """File and line of the program's innermost frame, None on a thread that runs no code of the program.

    Without the folder: that may be another one on each host.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _OURS:
            return f"at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None
