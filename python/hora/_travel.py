"""Functions on their way to other processes: by value, with a word about what cannot go along."""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import io
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from .errors import ArgumentError, HoraError


def pack(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], who: str = "run") -> bytes:
    """The bytes of a call; `who` is what was called for it, which sentences about it begin with, here and in the
    worker."""
    try:
        import cloudpickle
    except ImportError:
        raise HoraError(
            f"{who}: sending a function needs the package cloudpickle; run `pip install cloudpickle`"
        ) from None
    with by_value(cloudpickle, beside()):
        try:
            call = _dumps(cloudpickle, (func, args, kwargs))
            made = (sys.version_info[:2], cloudpickle.__version__)
            return cloudpickle.dumps({"path": [p for p in sys.path if p], "call": call, "made": made, "who": who})
        except Exception as e:
            raise ArgumentError(f"{who}: {_blame(cloudpickle, func, args, kwargs, e)}") from e


def _dumps(cloudpickle: Any, value: Any) -> bytes:
    """As cloudpickle does it, with the files that functions come from: its releases from 3.1.3 on leave those out, and
    tracebacks the lines."""
    reduce = cloudpickle.Pickler.dispatch_table[types.CodeType]

    def code(own: types.CodeType) -> tuple[Any, ...]:
        make, parts = reduce(own)
        return (make, parts) if own.co_filename in parts else (_code, (own.co_filename, parts))

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = collections.ChainMap({types.CodeType: code}, cloudpickle.Pickler.dispatch_table)

    to = io.BytesIO()
    Pickler(to).dump(value)
    return to.getvalue()


def _code(file: str, parts: tuple[Any, ...]) -> types.CodeType:
    return types.CodeType(*parts).replace(co_filename=file)


def unpack(call: bytes, made: tuple[tuple[int, int], str]) -> Any:
    """The function and its arguments, from what `pack` made; code of another Python, or of another cloudpickle, is not
    run but told."""
    python, cloud = made
    if python != sys.version_info[:2]:
        raise HoraError(
            f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}, the function comes from Python {python[0]}.{python[1]}, "
            f"and cannot be read by another one: {_SAME}"
        )
    try:
        return pickle.loads(call)
    except (AttributeError, TypeError) as e:
        import cloudpickle

        if cloudpickle.__version__ == cloud:
            raise
        raise HoraError(
            f"{sys.executable} has cloudpickle {cloudpickle.__version__}, which cannot read a function from cloudpickle {cloud} ({e}): "
            f"run `{sys.executable} -m pip install cloudpickle=={cloud}`, or {_SAME}"
        ) from e


class Rebuilt:
    """An exception on its way to the caller, made there without its constructor, whose arguments may be others than its
    `args`."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self._error), self._error.args, self._error.__dict__)


def _rebuild(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


_SAME = "have the workers started with the Python that the caller has (on Spark: PYSPARK_PYTHON)"

_one = threading.RLock()  # cloudpickle's list of modules is the whole process's


@contextlib.contextmanager
def by_value(cloudpickle: Any, modules: list[Any]) -> Iterator[None]:
    """Within it these modules travel as their text; one thread at a time."""
    with _one:
        for m in modules:
            cloudpickle.register_pickle_by_value(m)
        try:
            yield
        finally:
            for m in modules:
                cloudpickle.unregister_pickle_by_value(m)


def beside(modules: Iterable[Any] | None = None) -> list[Any]:
    """Those of the modules (or of all that are loaded) that are the user's own: in or below the working directory or
    the main program's, not installed."""
    folders = [os.path.realpath(os.getcwd())]
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main:
        folders.append(os.path.dirname(os.path.realpath(main)))
    inside = tuple(f + os.sep for f in folders)
    found = []
    for module in list(sys.modules.values()) if modules is None else modules:
        path = getattr(module, "__file__", None)
        name = getattr(module, "__name__", "")
        if (
            not isinstance(module, types.ModuleType)
            or not path
            or name == "__main__"
            or name.split(".")[0] in ("hora", "cloudpickle")
        ):
            continue
        if _own_file(os.path.abspath(path)).startswith(inside):
            found.append(module)
    return found


@functools.cache  # a program has thousands of modules, and each of a path's folders is asked about
def _own_file(path: str) -> str:
    """Where a file really is; empty for one that was installed."""
    path = os.path.realpath(path)
    installed = (
        "site-packages" in path
        or "dist-packages" in path
        or path.startswith(os.path.realpath(sys.base_prefix) + os.sep)
    )
    return "" if installed else path


def _blame(cloudpickle: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], cause: Exception) -> str:
    """Which value cannot be pickled, in one sentence."""

    def goes(value: Any) -> bool:
        try:
            cloudpickle.dumps(value)
            return True
        except Exception:
            return False

    for i, a in enumerate(args):
        if not goes(a):
            return f"argument {i + 1} of {_name(func)} (a {_type(a)}) cannot be pickled; make it inside the function"
    for k, a in kwargs.items():
        if not goes(a):
            return f"argument {k} of {_name(func)} (a {_type(a)}) cannot be pickled; make it inside the function"
    found = _captured(func, goes, set())
    if found:
        owner, variable, value, line = found
        what = "import it" if isinstance(value, types.ModuleType) else "make it, or import it,"
        return (
            f"{_name(owner)} uses the variable {variable!r} (a {_type(value)}) in line {line} of "
            f"{os.path.basename(owner.__code__.co_filename)}, which cannot be pickled; {what} inside the function"
        )
    return f"{_name(func)} cannot be pickled: {cause}; import or make what it uses inside the function"


def _captured(func: Any, goes: Callable[[Any], bool], seen: set[int]) -> tuple[Any, str, Any, int] | None:
    """The variable from outside, of func or of the functions it uses, that does not go along."""
    func = getattr(func, "__func__", func)
    code = getattr(func, "__code__", None)
    if code is None or id(func) in seen:
        return None
    seen.add(id(func))
    outside: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, func.__closure__ or (), strict=True):
        try:
            outside[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    outside |= {name: func.__globals__[name] for name in _names(code) if name in func.__globals__}
    for name, value in outside.items():
        if not goes(value):
            deeper = _captured(value, goes, seen)
            return deeper or (func, name, value, _line(code, name))
    return None


_GLOBAL = (
    "LOAD_GLOBAL",
    "LOAD_NAME",
)  # attributes have the same names often: hora.spark in a notebook that has `spark`


def _names(code: types.CodeType) -> set[str]:
    """The global variables that code uses."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _GLOBAL}
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            names |= _names(c)
    return names


def _line(code: types.CodeType, name: str) -> int:
    """The first line that uses a variable."""
    line = code.co_firstlineno
    for i in dis.get_instructions(code):
        if i.starts_line is not None and not isinstance(i.starts_line, bool):
            line = i.starts_line
        elif getattr(i, "line_number", None):  # from 3.13 on
            line = i.line_number  # type: ignore[attr-defined]
        if i.argval == name and (i.opname in _GLOBAL or "DEREF" in i.opname or "CLOSURE" in i.opname):
            return line
    return code.co_firstlineno


def _name(func: Any) -> str:
    return getattr(func, "__qualname__", None) or repr(func)


def _type(value: Any) -> str:
    t = type(value)
    return t.__qualname__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__qualname__}"
