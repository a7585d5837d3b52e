"""Whether a framework is there, and new enough, said in a sentence before its package here is imported."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from .errors import VersionError

__all__ = ["missing", "need", "version"]


def version(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


def need(
    package: str, module: str, oldest: tuple[int, ...], called: str, install: str,
    lacks: Callable[[Any], str] | None = None,
) -> Any:  # fmt: skip
    """The module, or an ImportError that says which releases will do.

    `lacks` looks at the module and answers what it has not of what the package needs, "" where it has all: then that
    decides, and the oldest release is one that was tried. Without it the release does.
    """
    least = ".".join(map(str, oldest))
    try:
        found = importlib.import_module(module)
        if found.__spec__ is not None and found.__spec__.origin is None:  # a folder of that name, which Python takes
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise  # it is there, and something that it needs is not
        raise VersionError(
            f"import {package}: {called} is not installed; {package} needs {called} {least} or newer (pip install {install})"
        ) from error
    said = str(getattr(found, "__version__", "0"))
    older, absent = version(said)[: len(oldest)] < oldest, lacks(found) if lacks else ""
    if absent and not older:
        raise VersionError(
            f"import {package}: {called} {said} has no {absent}, which {package} needs; docs/compatibility.md lists what works"
        )
    if absent or (older and lacks is None):
        which = f" (it has no {absent})" if absent else ""
        raise VersionError(
            f"import {package}: {called} {said} is too old{which}; {package} needs {called} {least} or newer (pip install -U {install})"
        )
    return found


def missing(found: Any, names: tuple[str, ...]) -> str:
    """The first of these names, with dots where they lie deeper, that a module has not; "" where it has all."""
    for name in names:
        at = found
        for n, part in enumerate(name.split("."), 1):
            at = getattr(at, part, None)
            if at is None:
                return ".".join(name.split(".")[:n])
    return ""
