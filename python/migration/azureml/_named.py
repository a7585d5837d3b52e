"""Arguments that a call of this package does not have are refused with the nearest name, in every class and function.

Python's own sentence has no such name. One place sees to it for all modules, as they are imported: a call costs nothing
more until it has failed.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ._refuse import refuse_argument

_FOLDER = Path(__file__).resolve().parent
_MAKES = ("__new__", "__init__")


def _told(f: Callable[..., Any], owner: type | None) -> Callable[..., Any]:
    parameters = inspect.signature(f).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return f  # it says itself what it does not take

    @functools.wraps(f)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return f(*args, **given)
        except TypeError as e:
            if e.__traceback__ is not None and e.__traceback__.tb_next is not None:
                raise  # it comes from within
            wrong = next((name for name in given if name not in parameters), None)
            if wrong is None:
                raise
        kind = type(args[0]) if owner and args and isinstance(args[0], owner) else owner
        name = f.__name__ if kind is None else kind.__name__
        if kind is not None and f.__name__ not in _MAKES:
            name += "." + f.__name__
        refuse_argument(f, name, wrong)

    return call


def _class(one: type) -> None:
    for name, f in list(vars(one).items()):
        if name.startswith("_") and name not in _MAKES:
            continue
        if isinstance(f, FunctionType):
            setattr(one, name, _told(f, one))
        elif isinstance(f, (staticmethod, classmethod)):
            setattr(one, name, type(f)(_told(f.__func__, one)))


def _module(module: ModuleType) -> None:
    public = not module.__name__.rpartition(".")[2].startswith("_")
    for name, thing in list(vars(module).items()):
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if isinstance(thing, type):
            _class(thing)
        elif public and isinstance(thing, FunctionType) and not name.startswith("_"):
            setattr(module, name, _told(thing, None))


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _module(module)


class _Finder(MetaPathFinder):
    """Comes before all others, for the modules of this package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("azureml."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        loader = spec.loader if spec else None
        if not isinstance(loader, SourceFileLoader) or _FOLDER not in Path(loader.path).resolve().parents:
            return None
        assert spec is not None
        spec.loader = _Loader(loader.name, loader.path)
        return spec


def name_arguments() -> None:
    """Has it done for each module that is imported from now on."""
    if not any(type(f).__name__ == _Finder.__name__ and type(f).__module__ == __name__ for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
