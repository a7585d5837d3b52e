"""Functions and models on their way to other processes: what is the user's own goes by value."""

from __future__ import annotations

import io
import pickle
import pickletools
import sys
from typing import Any

from .. import _travel
from ..errors import ArgumentError


def pickled_with_code(value: Any, what: str) -> bytes:
    """The bytes of a value; plain pickle where that is enough, cloudpickle for what lies in the user's own files."""
    try:
        plain = pickle.dumps(value, protocol=5)
        named = modules(plain)
        if "__main__" not in named and not _travel.beside([sys.modules.get(n) for n in named]):
            return plain
    except Exception:
        pass
    cloudpickle = _cloudpickle(what)
    with _travel.by_value(cloudpickle, _travel.beside()):
        try:
            return cloudpickle.dumps(value, protocol=5)
        except Exception as e:
            found = _travel._captured(value, lambda v: _goes(cloudpickle, v), set())
            where = (
                f": it uses the variable {found[1]!r} (a {_travel._type(found[2])}) in line {found[3]}"
                if found
                else f": {e}"
            )
            raise ArgumentError(
                f"{what} (a {_travel._type(value)}) cannot be pickled, so it cannot go to other processes{where}; open files, locks and "
                "connections inside of it"
            ) from e


def _cloudpickle(what: str) -> Any:
    try:
        import cloudpickle

        return cloudpickle
    except ImportError:
        try:
            from pyspark import cloudpickle  # which Spark brings

            return cloudpickle
        except ImportError:
            raise ArgumentError(
                f"{what} needs the package cloudpickle to go to other processes; run `pip install cloudpickle`"
            ) from None


def _goes(cloudpickle: Any, value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
        return True
    except Exception:
        return False


def modules(blob: bytes) -> set[str]:
    """The modules that a pickle imports when it is read."""
    found: set[str] = set()
    texts: list[str] = []
    memo: dict[int, str] = {}
    before = ""
    for op, arg, _ in pickletools.genops(io.BytesIO(blob)):
        if op.name == "GLOBAL":
            found.add(str(arg).split(" ")[0])
        elif op.name == "STACK_GLOBAL" and len(texts) >= 2:
            found.add(texts[-2])
        elif isinstance(arg, str) and "UNICODE" in op.name:
            texts.append(arg)
        elif op.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if "UNICODE" in before else ""
        elif op.name in ("BINGET", "LONG_BINGET") and isinstance(arg, int):
            texts.append(memo.get(arg, ""))
        before = op.name
    return found


def packages(blob: bytes) -> list[str]:
    """The packages that have to be there where a pickle is read, besides Python's own."""
    roots = {name.partition(".")[0] for name in modules(blob)}
    return sorted(
        r
        for r in roots
        if r and r.isidentifier() and r not in sys.stdlib_module_names and r not in ("__main__", "hora")
    )
