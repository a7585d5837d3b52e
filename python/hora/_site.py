"""What ranks compare in a call's name: where a program makes it (HORA_CHECK_CALLS), and where in a tree its arrays
stand."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from types import FrameType

__all__ = ["Unnamed", "asked", "places", "site", "step", "written"]

# Modules whose frames are not the program's.
_OURS = {"hora", "horovod", "sparkdl", "torch", "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "optax"}


class Unnamed(str):
    """A label that nobody chose, or that a package of ours did: where its call is made may become part of it."""


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
            return _at(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def written(stack: Iterable[tuple[str, int]]) -> str | None:
    """The same of a stack, innermost first, whose files and lines a framework has led back from code that it made of
    the program's."""
    ours = tuple(os.path.join(p, "") for name in _OURS for p in getattr(sys.modules.get(name), "__path__", ()))
    return next((_at(file, line) for file, line in stack if not file.startswith(ours)), None)


def _at(file: str, line: int) -> str:
    return f"at {os.path.basename(file)}:{line}"


_LONGEST = 80  # characters of the places in a call's name


def places(paths: Iterable[str]) -> str:
    """Where a tree's arrays stand, for the name of its call: trees of other keys are none that can be added. "" for an
    array alone."""
    text = " ".join(paths)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 20]}… {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f" of {text}" if text else ""


def step(key: object) -> str:
    """One key of a path, equal on all ranks: nothing that tells an object's address."""
    return f"[{key!r}]" if isinstance(key, (str, int, float, bool, bytes)) else f"[{type(key).__name__}]"
