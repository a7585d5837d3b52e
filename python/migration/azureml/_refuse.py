"""What this package does not do, said in a sentence each."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn


def alone() -> None:
    """Refuse to lie over azureml-core's files: nobody could tell whose modules are imported."""
    try:
        other = importlib.metadata.version("azureml-core")
    except importlib.metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"azureml-core {other} is installed beside hora-azureml, and their files have the same names: "
        "pip uninstall azureml-core, then pip install --no-index --find-links dist --force-reinstall --no-deps hora-azureml"
    )


_said: set[str] = set()


def notice(text: str) -> None:
    """Says once what is otherwise here."""
    if text not in _said:
        _said.add(text)
        print(f"azureml: {text}", file=sys.stderr, flush=True)


def refused(name: str, instead: str) -> NoReturn:
    from .exceptions import UserErrorException

    raise UserErrorException(f"{name} is not in hora-azureml: {instead}")


def unused(what: str, given: dict[str, Any]) -> None:
    """Says of arguments that they change nothing here, where they were given."""
    names = [k for k, v in given.items() if v not in (None, "", False, [], {})]
    if names:
        notice(f"{what}: {', '.join(names)} change nothing here: jobs run as processes, with the pool's interpreter")


def unknown(what: Callable[..., Any], name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that a call does not have: a known misspelling is taken, anything else is refused with the
    nearest name."""
    taken: dict[str, Any] = {}
    for wrong, value in given.items():
        if wrong in ("process_count_pernode", "process_count_per_nodes", "processes_per_node"):
            warnings.warn(f"{name}: {wrong} is taken as process_count_per_node: write it so", stacklevel=4)
            taken["process_count_per_node"] = value
            continue
        refuse_argument(what, name, wrong)
    return taken


def refuse_argument(what: Callable[..., Any], name: str, wrong: str) -> NoReturn:
    """Refuses an argument that a call does not have, with the nearest one."""
    near = difflib.get_close_matches(wrong, inspect.signature(what).parameters, 1)
    raise TypeError(f"{name} has no argument {wrong}" + (f": did you mean {near[0]}?" if near else ""))


def internal(what: Callable[..., Any], name: str, given: dict[str, Any]) -> None:
    """Takes the SDK's own keyword arguments, whose names begin with _, and refuses others with the nearest name."""
    for wrong in given:
        if not wrong.startswith("_"):
            refuse_argument(what, name, wrong)
