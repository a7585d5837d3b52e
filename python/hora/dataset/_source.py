"""What open() and read() take: names of files, and tables that are in memory."""

from __future__ import annotations

import datetime
import decimal
import math
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError


def sources(source: Any, keeper: Any) -> list[str]:
    """The names of a source's files. A table is written to a folder that goes when its keeper does."""
    if isinstance(source, (str, os.PathLike)):
        return [os.fspath(source)]
    if is_frame(source):
        from ._write import write

        folder = tempfile.mkdtemp(prefix="hora-data-")
        weakref.finalize(keeper, shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, "frame.parquet")
        write(source, path)
        return [path]
    try:
        return [os.fspath(s) for s in source]
    except TypeError:
        raise ArgumentError(
            f"open data: {type(source).__name__} is no source; give a path, a pattern, an address, a list of them, "
            "a table of pandas, Polars, Arrow or Spark, or a dict of NumPy arrays"
        ) from None


def is_frame(source: Any) -> bool:
    """Whether it is a table: asked without importing what it may be of."""
    if isinstance(source, Mapping):
        return True
    for cls in type(source).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in ("pandas", "polars") and cls.__name__ in ("DataFrame", "LazyFrame"):
            return True
        if root == "pyarrow" and cls.__name__ in ("Table", "RecordBatch", "Dataset", "RecordBatchReader"):
            return True
        if root == "pyspark" and cls.__name__ == "DataFrame":
            return True
    return False


def to_table(frame: Any) -> Any:
    """A table of Arrow with the frame's rows."""
    pa = arrow("write data")
    root = type(frame).__module__.partition(".")[0]
    if isinstance(frame, Mapping):
        return pa.table({name: _column(pa, values) for name, values in frame.items()})
    if root == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if root == "polars":
        return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
    if root == "pyspark":
        if hasattr(frame, "toArrow"):
            return frame.toArrow()
        return pa.Table.from_pandas(frame.toPandas(), preserve_index=False)
    if hasattr(frame, "read_all"):
        return frame.read_all()
    if hasattr(frame, "to_table"):
        return frame.to_table()
    return frame if isinstance(frame, pa.Table) else pa.Table.from_batches([frame])


def _column(pa: Any, values: Any) -> Any:
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if len(shape) < 2:
        return pa.array(values)
    if len(shape) > 2:
        raise ArgumentError(
            f"write data: an array of shape {shape}; a column has one or two dimensions: reshape it to [rows, values]"
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), shape[1])


def arrow(do: str) -> Any:
    """The module pyarrow."""
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ArgumentError(
            f"{do}: pyarrow is needed to write Parquet and is not installed for {sys.executable}; pip install pyarrow"
        ) from None
    return pyarrow


def conditions(filter: Any) -> list[list[dict[str, Any]]]:
    """filter= as lists of comparisons: all of one of the lists must hold."""
    if filter is None:
        return []
    if isinstance(filter, tuple) and len(filter) in (2, 3) and isinstance(filter[0], str):
        filter = [filter]
    if not isinstance(filter, Sequence) or isinstance(filter, str) or not filter:
        raise ArgumentError(
            f'filter={filter!r}: give a list of comparisons, as [("label", "==", 3), ("size", ">", 0.5)]'
        )
    groups = filter if all(isinstance(g, list) for g in filter) else [filter]
    return [[_condition(c) for c in group] for group in groups]


def _condition(c: Any) -> dict[str, Any]:
    if not isinstance(c, (tuple, list)) or len(c) not in (2, 3) or not all(isinstance(part, str) for part in c[:2]):
        raise ArgumentError(f'filter=: {c!r} is no comparison; write ("column", "<", 3), or ("column", "is null")')
    if len(c) == 3 and c[2] is None:
        raise ArgumentError(
            f'filter=: {c!r} compares with None, which nothing is equal to; write ("{c[0]}", "is null") or "not null"'
        )
    return {"column": c[0], "op": c[1]} | ({"value": _plain(c[2])} if len(c) == 3 else {})


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple, set, frozenset)) or (
        hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1
    ):
        return [_plain(v) for v in (sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)]
    if hasattr(value, "dtype") and getattr(value.dtype, "kind", "") == "M":
        return str(value)
    if isinstance(value, (datetime.date, datetime.datetime)):
        if getattr(value, "tzinfo", None) is not None:
            assert isinstance(value, datetime.datetime)
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, decimal.Decimal):  # decimals come out as float64
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ArgumentError(f"filter=: a column is compared with {value}; leave the comparison out, or give a number")
    if not isinstance(value, (str, bytes, int, float, type(None))):
        raise ArgumentError(f"filter=: a column is compared with {value!r}; give a number, a text, a bool or a date")
    return {"bytes": value.hex()} if isinstance(value, bytes) else value
