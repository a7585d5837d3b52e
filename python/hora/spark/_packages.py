"""Whether the executors have the packages that a model or a function is made of, asked before a job needs them: of each
executor, once."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import HoraError
from . import _cluster, _net, _refusals, _travel

_had: dict[
    tuple[str, ...], set[str]
] = {}  # by application, package and path the executors that were there when all had it


def check(spark: Any, names: Iterable[str], who: str, path: Sequence[str] = ()) -> None:
    """Raises where an executor has not one of the packages, and says which executor. path: folders that are searched
    there too."""
    for _ in range(3):
        there = executors(spark)  # more than the last time, where some have come meanwhile
        known = {n: _had.get(_key(spark, n, path), set()) for n in names} if there else {}
        wanted = sorted({n for n in names if not there or not there <= known[n]})
        if not wanted:
            return
        asked = _ask(spark, wanted, who, path, there)
        if there is None:
            return
        if asked >= len(there):  # not where one was busy, and another was asked twice
            for name in wanted:
                _had[_key(spark, name, path)] = there


def _ask(spark: Any, wanted: Sequence[str], who: str, path: Sequence[str], there: set[str] | None) -> int:
    """Raises where a package is lacking; how many executors were asked."""
    if there is None:  # Connect tells of none: a task for each core
        tasks = spark.range(1024)
    else:  # one for each, for Spark gives every executor with a free slot one before any gets a second
        many = max(1, len(there))
        tasks = spark.range(many, numPartitions=many)
    try:
        rows = tasks.mapInArrow(_look([*wanted, "hora"], list(path)), _SAID).collect()
    except Exception as e:
        known = _refusals.known(str(e), whose=lambda: _cluster.interpreter(spark))
        if known is None:
            raise
        raise HoraError(f"{who}: {known}") from e
    found = {(r.host, r.daemon): r for r in rows}
    lacking = sorted((r for r in found.values() if r.name), key=lambda r: (r.host, r.folder))
    if not lacking:
        return len(found)
    first, n = lacking[0], len(lacking)
    whose = f"the executor on {first.host} has" if n == len(found) == 1 else f"all {n} executors have"
    if n < len(found):
        whose = f"{n} of {len(found)} executors ({'the first of them' if n > 1 else 'that'} on {first.host}, in {first.folder}) lack{'s' * (n == 1)}"
    raise HoraError(
        f"{who}: {whose} {'no' if n == len(found) else 'the'} package {first.name!r}; install it in the Python of all workers ({first.python})"
    )


def _key(spark: Any, name: str, path: Sequence[str]) -> tuple[str, ...]:
    return (str(spark.sparkContext.applicationId), name, *path)


_SAID = "host string, daemon long, folder string, python string, name string"


def executors(spark: Any) -> set[str] | None:
    """The names of the executors that have registered; None where Spark does not tell."""
    if _cluster.connected(spark):
        return None
    try:
        if spark.sparkContext._jsc.sc().isLocal():  # all of it in the driver
            return {"driver"}
        return {n for n in str(spark.sparkContext._jsc.sc().getExecutorIds().mkString(",")).split(",") if n}
    except Exception:  # an interior of Spark, which another version may not have
        return None


def _look(wanted: list[str], path: list[str]) -> Any:
    def look(batches: Any) -> Any:
        import importlib.util
        import os
        import platform
        import sys

        import pyarrow

        for _ in batches:
            pass
        before = list(sys.path)
        sys.path.extend(p for p in path if p not in sys.path)
        try:
            lost = [n for n in wanted if importlib.util.find_spec(n) is None]
        finally:
            sys.path[:] = before
        said = {
            "host": platform.node(),
            "daemon": os.getppid(),
            "folder": os.getcwd(),
            "python": sys.executable,
            "name": lost[0] if lost else "",
        }
        yield pyarrow.RecordBatch.from_pydict({k: [v] for k, v in said.items()})

    return look


def of_model(model: Any, blob: bytes) -> list[str]:
    """The packages that a pickled model needs where it is read and asked."""
    found = _travel.packages(blob)
    if not isinstance(model, _net.Net):
        return found
    return [
        *found,
        *(_of_keras(model.backend, model.package) if model.kind == "keras" else _travel.packages(model.blob)),
    ]


def of_training(blob: bytes, kind: str, backend: str) -> list[str]:
    """The packages that the ranks of an Estimator need: those of what they are given, and their framework."""
    found = _travel.packages(blob)
    if kind == "torch":
        return [*found, "torch"]
    if kind == "keras":
        given = pickle.loads(blob)
        for part in given.values():
            if isinstance(part, bytes) and part[:1] == b"\x80":  # pickled by itself
                found += _travel.packages(part)
        found += _of_keras(backend, given["package"])
    return found


def _of_keras(backend: str, package: str) -> list[str]:
    return [package, *([backend] if backend in ("tensorflow", "jax", "torch") else [])]
