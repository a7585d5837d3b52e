"""Whether a framework is there, and new enough, said in a sentence before its package here is imported."""

from __future__ import annotations

import importlib
import re
from typing import Any

from .errors import VersionError

__all__ = ["need", "version"]


def version(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


def need(package: str, module: str, oldest: tuple[int, ...], called: str, install: str) -> Any:
    """The module, or an ImportError that says which releases will do."""
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
    if version(said)[: len(oldest)] < oldest:
        raise VersionError(
            f"import {package}: {called} {said} is too old; {package} needs {called} {least} or newer (pip install -U {install})"
        )
    return found
