"""A fitted model at work in a Spark worker: loaded once, asked in batches of limited bytes, with failing rows found and
listed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, HoraError
from . import _members, _settings, _votes, _work
from ._tables import Columns, Layout, columns_of, rows_of, take

MOST_FAILURES = 1000  # rows of one batch; a model that fails on so many is broken

_loaded: dict[str, Any] = {}
_placed: tuple[int, str] | None = None  # the threads and the GPU that the model has


@dataclass
class Given:
    """What scoring takes, the same in every task."""

    model: bytes  # pickled: an ensemble, a model, or a function that loads one
    loads: bool  # it is such a function
    digest: str
    features: list[str]
    kind: str  # of the predictions, as Spark names it
    shares: bool  # the classes' shares too
    lists: bool  # failing rows get a sentence instead of ending the job
    bytes: int  # of features in one batch
    threads: int  # 0: as many as the task has cores
    calls: bool = False  # the model is a function of the user's


def load(given: Given) -> Any:
    """The model, once a worker. Spark's workers serve one task after the other, and the next one's GPU may be
    another."""
    global _placed
    place = _place(given.threads)
    if given.digest not in _loaded:
        _loaded.clear()  # of an earlier job: one model at a time
        _for_tensorflow(place[0])
        model = pickle.loads(given.model)
        if given.loads:
            model = model()
            if model is None:
                raise ArgumentError(
                    "predict: the function that loads the model returned nothing; let it return the model"
                )
        model = getattr(model, "ensemble", model)
        asked = model if isinstance(model, _votes.Ensemble) else _members.known(model)
        _loaded[given.digest], _placed = asked, None
    if _placed != place:
        _set_up(_loaded[given.digest], *place)
        _placed = place
    return _loaded[given.digest]


def _place(threads: int) -> tuple[int, str]:
    """The threads and the GPU that the task has."""
    gpu = ""
    try:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            threads = threads or context.cpus()
            found = context.resources().get("gpu")
            gpu = found.addresses[0] if found is not None and found.addresses else ""
    except ImportError:
        pass
    if gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        gpu = str(visible.split(",").index(gpu)) if gpu in visible.split(",") else gpu
    return threads or 1, gpu


def _for_tensorflow(threads: int) -> None:
    """What TensorFlow goes by when it begins in this process, whoever loads the model: so many threads, unless the user
    has said how many, and of a GPU no more memory than it needs, for there are other slots on the host."""
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        _settings.put(name, str(threads))
    _settings.put("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def _set_up(model: Any, threads: int, gpu: str) -> None:
    """The model uses so many threads, and that GPU."""
    for one in [m.asked for m in model.members] if isinstance(model, _votes.Ensemble) else [model]:
        one.settle(threads, gpu)
    try:
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads)
    except ImportError:
        pass


def one_thread(model: Any) -> Any:
    """The model, told to use one thread; torch would be told for the whole process."""
    if not isinstance(model, _members._Torch):
        model.threads(1)
    return model


def said(load: Callable[[], Any], given: Given, row: Any) -> str:
    """How Spark names what a model predicts for a row, or what is wrong: `error: ` and `failed: ` begin such a
    sentence."""
    try:
        model = load()
    except Exception as e:
        return f"error: the model cannot be loaded: {_work.say(e)}"
    try:
        return kind_of(ask(model, given, columns_of(row, given.features, "predict"))[0])
    except Exception as e:
        return f"failed: {_work.say(e)}"


def ask(model: Any, given: Given, columns: Columns) -> tuple[np.ndarray, np.ndarray | None]:
    """Predictions and, where they are wanted, shares."""
    rows = rows_of(columns)
    if isinstance(model, _votes.Ensemble):
        values, shares = model.answers(columns)
        return values, shares if given.shares else None
    layout = Layout.of(columns, given.features, "predict") if not isinstance(model, _members._Function) else None
    x = np.empty((rows, 0)) if layout is None else layout.matrix(columns)
    shares = model.proba(x, columns) if given.shares else None
    if given.kind.startswith("array<") and isinstance(model, (_members._Torch, _members._Function)):
        return model.outputs(x, columns), shares
    if shares is not None and not isinstance(model, _members._Function):
        classes = model.classes()
        best = shares.argmax(axis=1)
        values = (
            model.answer(x, columns) if type(model) is _members.Asked else best if classes is None else classes[best]
        )
    else:
        values = model.answer(x, columns)
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if len(values) != rows:
        raise ArgumentError(f"predict: the model gave {len(values)} predictions for {rows} rows")
    return values, shares


def kind_of(values: np.ndarray) -> str:
    """How Spark names what the predictions are."""
    one = {
        "f": "double",
        "i": "bigint",
        "u": "bigint",
        "b": "boolean",
        "U": "string",
        "S": "string",
        "O": "string",
    }.get(values.dtype.kind)
    if one is None:
        raise ArgumentError(
            f"predict: predictions of type {values.dtype} have no column type; return numbers, text or rows of numbers"
        )
    return one if values.ndim == 1 else f"array<{one}>"


def score(table: Any, given: Given) -> tuple[list[Any] | np.ndarray, list[Any] | None, list[str | None] | None]:
    """For one Arrow or pandas table: predictions, shares and sentences about the rows that failed (None: none did)."""
    model = load(given)
    rows = len(table)
    if not rows:
        return [], [] if given.shares else None, None
    try:
        columns = columns_of(table, given.features, "predict")
    except ArgumentError as e:
        if not given.lists:
            raise
        return _apart(model, given, table, rows, e)
    size = max(1, sum(v.nbytes for v in columns.values()) // rows)
    step = max(1, given.bytes // size)
    if step >= rows:
        try:
            values, shares = ask(model, given, columns)
            return values, None if shares is None else list(shares), None
        except Exception:
            if not given.lists:
                raise
    return _search(rows, step, given, lambda at: ask(model, given, take(columns, at)))


def _apart(model: Any, given: Given, table: Any, rows: int, said: Exception) -> Any:
    """The same where some rows are nulls or lists of odd lengths, which are put aside first."""
    root = type(table).__module__.partition(".")[0]
    cut = (lambda at: table.take(at)) if root == "pyarrow" else (lambda at: table.iloc[at])
    bad = odd_rows(table, given.features)
    good = np.flatnonzero([b is None for b in bad])
    if len(good) == rows:  # no single row is at fault
        raise said
    values: list[Any] = [None] * rows
    shares: list[Any] | None = [None] * rows if given.shares else None
    if len(good):
        some, their, errors = score(cut(good), given)
        for i, at in enumerate(good.tolist()):
            values[at] = some[i]
            if shares is not None and their is not None:
                shares[at] = their[i]
            if errors is not None:
                bad[at] = errors[i]
    return values, shares, bad


def odd_rows(table: Any, features: list[str]) -> list[str | None]:
    """What is wrong with each row: a null, or a list that is shorter or longer than most."""
    bad: list[str | None] = [None] * len(table)
    for name in features:
        column = table[name]
        values = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
        sizes = [len(v) for v in values if v is not None and hasattr(v, "__len__") and not isinstance(v, (str, bytes))]
        usual = max(set(sizes), key=sizes.count) if sizes else None
        for i, v in enumerate(values):
            if bad[i] is not None:
                continue
            if v is None or (hasattr(v, "__iter__") and not isinstance(v, (str, bytes)) and any(x is None for x in v)):
                bad[i] = f"column {name!r} is null"
            elif usual is not None and len(v) != usual:
                bad[i] = f"column {name!r} has {len(v)} values where other rows have {usual}"
    return bad


def _search(rows: int, step: int, given: Given, call: Callable[[Any], tuple[np.ndarray, np.ndarray | None]]) -> Any:
    """Asks in pieces; one that fails is halved until the rows are found that it fails for."""
    values: list[Any] = [None] * rows
    shares: list[Any] | None = [None] * rows if given.shares else None
    errors: list[str | None] = [None] * rows
    waiting = [(at, min(rows, at + step)) for at in range(0, rows, step)][::-1]
    failed = 0
    while waiting:
        start, end = waiting.pop()
        try:
            some, their = call(slice(start, end))
        except Exception as e:
            if not given.lists:
                raise
            if end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
                continue
            errors[start] = f"{type(e).__name__}: {e}"
            failed += 1
            if failed >= MOST_FAILURES and failed == start + 1:
                raise HoraError(
                    f"predict: the model fails on each of the first {failed} rows of a batch: {type(e).__name__}: {e}"
                ) from e
        else:
            values[start:end] = some.tolist()
            if shares is not None and their is not None:
                shares[start:end] = list(their)
    return values, shares, errors if failed else None


def arrow_values(values: Any, kind: str) -> Any:
    """Predictions as an Arrow array of the type that Spark was told."""
    import pyarrow as pa

    one = {"double": pa.float64(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}[
        kind.removeprefix("array<").rstrip(">")
    ]
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        wanted = {"double": np.float64, "bigint": np.int64, "boolean": np.bool_}.get(
            kind.removeprefix("array<").rstrip(">")
        )
        if wanted is not None and values.ndim == 1:
            return pa.array(values.astype(wanted, copy=False))
        if wanted is not None:
            return matrix(values.astype(wanted, copy=False))
    items = [v.tolist() if isinstance(v, (np.ndarray, np.generic)) else v for v in values]
    try:
        return pa.array(items, pa.list_(one) if kind.startswith("array<") else one)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
        raise ArgumentError(
            f"predict: predictions are no {kind}, as the first row's was: {e}; say what they are with returns="
        ) from None


def matrix(values: np.ndarray) -> Any:
    """Rows of numbers as an Arrow array of lists."""
    import pyarrow as pa

    offsets = np.arange(0, values.size + 1, max(1, values.shape[1]), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(values).reshape(-1)))


def lists_of(shares: Any) -> Any:
    """Shares as an Arrow array of lists."""
    import pyarrow as pa

    if shares and all(s is not None for s in shares):
        return matrix(np.asarray(shares, dtype=np.float64))
    return pa.array([None if s is None else list(s) for s in shares], pa.list_(pa.float64()))


def outputs(table: Any, given: Given, count: Any) -> list[Any]:
    """The Arrow columns that are added to a batch."""
    import pyarrow as pa

    values, shares, errors = score(table, given)
    if count is not None:
        count.add((len(table), 0 if errors is None else sum(e is not None for e in errors)))
    found = [arrow_values(values, given.kind)]
    if given.shares:
        found.append(lists_of([None] * len(table) if shares is None else shares))
    if given.lists:
        found.append(pa.nulls(len(table), pa.string()) if errors is None else pa.array(errors, pa.string()))
    return found
