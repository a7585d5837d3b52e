"""What the code of a function is, as a word that another process can compare with."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def digest(*things: Any) -> str | None:
    """A word of the code behind functions, classes and objects, with what of their modules it names and the objects'
    plain settings.

    None where there is nothing of the user's: what stands in an installed package goes by its name. The word is of one
    version of Python, which it begins with: others compile otherwise.
    """
    seen: set[int] = set()
    found = sorted({line for thing in things for line in _said(thing, seen)})
    if not found:
        return None
    word = hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]
    return f"{sys.version_info.major}.{sys.version_info.minor} {word}"


def differs(before: str | None, now: str | None) -> bool:
    """Whether two words can be compared, and are of different code."""
    return before is not None and now is not None and before.split()[0] == now.split()[0] and before != now


def _said(thing: Any, seen: set[int]) -> Iterator[str]:
    if id(thing) in seen or _installed(thing):
        return
    seen.add(id(thing))
    if isinstance(thing, functools.partial):
        for part in (thing.func, *thing.args, *thing.keywords.values()):
            yield from _said(part, seen) if callable(part) else _plain("partial", part)
    elif isinstance(thing, types.MethodType):
        yield from _said(thing.__func__, seen)
        yield from _said(thing.__self__, seen)
    elif isinstance(thing, types.FunctionType):
        yield from _function(thing, seen)
    elif isinstance(thing, type):
        for name, member in vars(thing).items():
            member = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
            yield from _said(member, seen) if callable(member) else _plain(f"{thing.__qualname__}.{name}", member)
        for base in thing.__bases__:
            yield from _said(base, seen)
    elif not isinstance(thing, (types.ModuleType, *_PLAIN)) and hasattr(thing, "__dict__"):
        yield from _said(type(thing), seen)
        yield from _said(
            getattr(thing, "__wrapped__", None), seen
        )  # a function of the user's in a class of a package's
        for name, value in vars(thing).items():
            if not name.startswith("_") and name != "name":  # frameworks count names up
                yield from _plain(f"{type(thing).__qualname__}.{name}", value)


def _function(f: types.FunctionType, seen: set[int]) -> Iterator[str]:
    yield f"{f.__qualname__} {_code(f.__code__, f.__doc__)}"
    for name, value in zip(f.__code__.co_freevars, f.__closure__ or (), strict=False):
        yield from _named(name, _content(value), seen)
    for i, value in enumerate((*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values())):
        yield from _named(f"{f.__qualname__} default {i}", value, seen)
    for name in _names(f.__code__):
        if name in f.__globals__:
            yield from _named(name, f.__globals__[name], seen)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a function that is not bound yet
        return None


def _named(name: str, value: Any, seen: set[int]) -> Iterator[str]:
    if callable(value) and not isinstance(value, types.ModuleType):
        yield from _said(value, seen)
    else:
        yield from _plain(name, value)


def _plain(name: str, value: Any) -> Iterator[str]:
    """A value that has a text of its own; others (tables, models, files) say nothing."""
    if isinstance(value, _PLAIN) and not name.startswith("__") and ".__" not in name:
        yield f"{name}={value!r}"
    elif isinstance(value, (list, tuple)) and all(isinstance(v, _PLAIN) for v in value) and ".__" not in name:
        yield f"{name}={list(value)!r}"
    elif (
        isinstance(value, Mapping)
        and all(isinstance(v, _PLAIN) for v in (*value.keys(), *value.values()))
        and ".__" not in name
    ):
        yield f"{name}={sorted((repr(k), repr(v)) for k, v in value.items())!r}"


def _code(code: types.CodeType, doc: str | None) -> str:
    """Neither lines nor files nor the docstring's words: what a function does is the same without them."""
    consts = [None if doc is not None and c == doc else c for c in code.co_consts]
    said = [_code(c, None) if isinstance(c, types.CodeType) else _constant(c) for c in consts]
    return hashlib.sha256(repr((code.co_code, code.co_names, code.co_varnames, said)).encode()).hexdigest()


def _constant(c: Any) -> str:
    return repr(sorted(map(repr, c))) if isinstance(c, frozenset) else repr(c)


def _names(code: types.CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*(_names(c) for c in inner))


@functools.cache
def _packages() -> tuple[str, ...]:
    import sysconfig

    paths = sysconfig.get_paths()
    return tuple({paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")})


def _installed(thing: Any) -> bool:
    """Whether a function or class comes from an installed package or from Python itself."""
    if not isinstance(thing, (type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    module = sys.modules.get(getattr(thing, "__module__", None) or "builtins")
    if module is None or getattr(module, "__name__", "") == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return inspect.ismodule(module) and (file.startswith(_packages()) or "site-packages" in file)
