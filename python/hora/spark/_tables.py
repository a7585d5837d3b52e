"""Tables of any kind as columns: a mapping from name to NumPy array, lists as matrices; and matrices of features from
them."""

from __future__ import annotations

import decimal
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError

Columns = dict[str, np.ndarray]

TEXT = "U"  # what stands for text in `kind_of`


def columns_of(table: Any, wanted: Sequence[str] | None, who: str) -> Columns:
    """The wanted columns (all, with None) of a pandas, Arrow or NumPy table or of a mapping, without nulls."""
    if isinstance(table, np.ndarray):
        if table.dtype.names:
            table = {name: table[name] for name in table.dtype.names}
        else:
            table = {"features": table}
    root = type(table).__module__.partition(".")[0]
    if root == "pyarrow" and hasattr(table, "schema"):
        names, take = (
            list(table.schema.names),
            lambda name: _of_arrow(table.column(table.schema.names.index(name)), name, who),
        )
    elif root == "pandas" and hasattr(table, "columns"):
        names, take = (
            [str(c) for c in table.columns],
            lambda name: _of_series(table.iloc[:, names.index(name)], name, who),
        )
    elif isinstance(table, Mapping):
        names, take = [str(c) for c in table], lambda name: _of_values(table[name], name, who)
    else:
        raise ArgumentError(
            f"{who}: a table of type {_type(table)} is not known; give a pandas DataFrame, an Arrow table, a NumPy array, "
            "a mapping from names to arrays, or a Spark DataFrame"
        )
    if wanted is not None:
        for name in wanted:
            need(name, names, who)
    found = {name: take(name) for name in (names if wanted is None else wanted)}
    lengths = {len(v) for v in found.values()}
    if len(lengths) > 1:
        raise ArgumentError(
            f"{who}: the columns have different numbers of rows: {', '.join(f'{k} {len(v)}' for k, v in found.items())}"
        )
    return found


def need(name: str, names: Iterable[str], who: str, what: str = "column") -> None:
    """Raises where a name is not among those that there are."""
    import difflib

    names = list(names)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, 3)
    hint = (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"it has {', '.join(map(repr, names[:20])) or 'none'}"
    )
    raise ArgumentError(f"{who}: the table has no {what} {name!r}; {hint}")


def fresh(made: Iterable[str | None], names: Iterable[str], who: str, say: str) -> None:
    """Raises where a column that is to be added is there already."""
    there = set(names)
    for name in made:
        if name and name in there:
            raise ArgumentError(f"{who}: the table has a column {name!r} already; {say}")


def nans(columns: Columns) -> dict[str, int]:
    """How many rows have a NaN, by column, where there are some."""
    found = {n: np.isnan(v).reshape(len(v), -1).any(axis=1) for n, v in columns.items() if v.dtype.kind == "f"}
    return {n: int(f.sum()) for n, f in found.items() if f.any()}


def tell_nans(found: Mapping[str, int], features: Sequence[str], who: str) -> None:
    """NaN in features is a value, which models are given as it is; that is said. In what else is trained with it is
    refused."""
    other = [f"{n!r} ({c:,})" for n, c in found.items() if n not in features]
    if other:
        raise ArgumentError(f"{who}: there is NaN in {', '.join(other)}; fill or drop such rows first")
    if found:
        some = ", ".join(f"{n!r} ({c:,} rows)" for n, c in found.items())
        warnings.warn(f"{who}: there is NaN in {some}, which the model is given as it is", stacklevel=3)


def rows_of(columns: Columns) -> int:
    return len(next(iter(columns.values()))) if columns else 0


def take(columns: Columns, at: Any) -> Columns:
    """Some of the rows."""
    return {k: v[at] for k, v in columns.items()}


def _type(value: Any) -> str:
    t = type(value)
    return t.__qualname__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__qualname__}"


def _nulls(count: int, name: str, who: str) -> None:
    if count:
        raise ArgumentError(
            f"{who}: column {name!r} has {count:,} null value{'s' * (count > 1)}; fill or drop such rows first"
        )


def _of_arrow(column: Any, name: str, who: str) -> np.ndarray:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(column, pa.ChunkedArray):  # of no chunks, with some versions
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    _nulls(column.null_count, name, who)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _of_arrow(column.dictionary_decode(), name, who)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        rows = len(column)
        flat = column.flatten()  # which heeds offsets, as `values` does not
        if rows and len(flat) % rows == 0 and not pa.types.is_fixed_size_list(kind):
            sizes = np.diff(column.offsets.to_numpy())
            ragged = bool((sizes != sizes[0]).any())
        else:
            ragged = bool(rows and len(flat) % rows)
        if ragged:
            sizes = np.diff(column.offsets.to_numpy())
            _ragged(int(sizes.min()), int(sizes.max()), name, who)
        values = _of_arrow(flat, name, who)
        if values.dtype.kind not in "fiub":
            _unsupported(str(kind), name, who)
        return (
            values.reshape(rows, -1)
            if rows
            else values.reshape(0, kind.list_size if pa.types.is_fixed_size_list(kind) else 0)
        )
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column.to_numpy(zero_copy_only=False)
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        return _objects(column.to_pylist())
    if pa.types.is_temporal(kind):
        return column.to_numpy(zero_copy_only=False)
    _unsupported(str(kind), name, who)
    raise AssertionError


def _of_series(series: Any, name: str, who: str) -> np.ndarray:
    whole = series.dtype.kind if isinstance(series.dtype, np.dtype) else "?"
    if whole == "f":
        return series.to_numpy()  # where NaN is a value, as in NumPy
    _nulls(int(series.isna().sum()), name, who)
    if type(series.dtype).__module__.startswith("pandas") and str(series.dtype).lower().rstrip("0123456789") in (
        "int", "uint", "float", "boolean", "double", "int64[pyarrow]",
    ):  # fmt: skip
        return series.to_numpy(dtype=series.dtype.numpy_dtype)
    return _of_values(series.to_numpy(), name, who)


def _of_values(values: Any, name: str, who: str) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
        if not isinstance(values, np.ndarray):
            values = _objects(list(values))
    if values.ndim == 0:
        raise ArgumentError(f"{who}: column {name!r} is one value, not an array of one for each row")
    if values.dtype.kind in "fiubM":
        return values if values.ndim <= 2 else values.reshape(len(values), -1)
    if values.dtype.kind in "US":
        return values.astype(object)
    if values.dtype.kind != "O":
        _unsupported(str(values.dtype), name, who)
    _nulls(sum(v is None or (isinstance(v, float) and v != v) for v in values.flat), name, who)
    if not len(values):
        return values
    first = values.flat[0]
    if isinstance(first, (str, bytes)):
        if not all(isinstance(v, (str, bytes)) for v in values.flat):
            _unsupported("text and other things together", name, who)
        return values
    if isinstance(first, (bool, int, float, decimal.Decimal, np.generic)):
        try:
            return np.array([float(v) if isinstance(v, decimal.Decimal) else v for v in values.flat])
        except (TypeError, ValueError):
            _unsupported("numbers and other things together", name, who)
    if hasattr(first, "toArray"):  # pyspark's vectors
        values = _objects([v.toArray() for v in values])
        first = values[0]
    if isinstance(first, (list, tuple, np.ndarray)):
        sizes = [len(v) for v in values]
        if min(sizes) != max(sizes):
            _ragged(min(sizes), max(sizes), name, who)
        matrix = np.array([np.asarray(v) for v in values])
        if matrix.dtype.kind not in "fiub":
            _unsupported(f"lists of {_type(np.ravel(first)[0]) if len(first) else 'nothing'}", name, who)
        return matrix.reshape(len(values), -1)
    _unsupported(_type(first), name, who)
    raise AssertionError


def _objects(values: list) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _ragged(least: int, most: int, name: str, who: str) -> None:
    raise ArgumentError(
        f"{who}: the lists of column {name!r} have from {least} to {most} values; make them of one length, by cutting or padding"
    )


def _unsupported(kind: str, name: str, who: str) -> None:
    raise ArgumentError(
        f"{who}: column {name!r} holds {kind}, of which no array is made; turn it into numbers, text or lists of numbers, or name the "
        "columns to take in features="
    )


@dataclass(frozen=True)
class Layout:
    """How columns of features lie beside each other in one matrix: names and widths (0 is a plain column of one number
    a row)."""

    names: tuple[str, ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, columns: Columns, names: Sequence[str], who: str) -> Layout:
        for name in names:
            if columns[name].dtype.kind not in "fiub":
                raise ArgumentError(
                    f"{who}: feature {name!r} holds no numbers; encode it as numbers, or leave it out of features="
                )
        return cls(tuple(names), tuple(columns[n].shape[1] if columns[n].ndim == 2 else 0 for n in names))

    @property
    def width(self) -> int:
        return sum(max(1, w) for w in self.widths)

    def wide_names(self) -> list[str]:
        """A name for each column of the matrix."""
        return [f"{n}[{i}]" if w else n for n, w in zip(self.names, self.widths, strict=True) for i in range(max(1, w))]

    def find(self, wanted: Any, who: str) -> list[int]:
        """The positions in the matrix of columns by name (`x`, `features[3]`) or by number."""
        wide = self.wide_names()
        found: list[int] = []
        for one in [wanted] if isinstance(wanted, (str, int)) else wanted:
            if isinstance(one, (int, np.integer)):
                if not 0 <= one < len(wide):
                    raise ArgumentError(
                        f"{who}: feature_subsets names column {one}, of {len(wide)}; they are counted from 0"
                    )
                found.append(int(one))
            elif one in self.names:
                at = self.names.index(one)
                start = sum(max(1, w) for w in self.widths[:at])
                found += range(start, start + max(1, self.widths[at]))
            else:
                need(one, wide, who, "feature")
                found.append(wide.index(one))
        return sorted(set(found))

    def matrix(self, columns: Columns, subset: Sequence[int] | None = None) -> np.ndarray:
        """One row a row; float32 where all are, else float64."""
        parts = [columns[n] if columns[n].ndim == 2 else columns[n][:, None] for n in self.names]
        for part, width, name in zip(parts, self.widths, self.names, strict=True):
            if part.shape[1] != max(1, width):
                raise ArgumentError(
                    f"column {name!r} has {part.shape[1]} values a row where the models were fitted with {max(1, width)}"
                )
        kind = np.float32 if all(p.dtype == np.float32 for p in parts) else np.float64
        whole = parts[0] if len(parts) == 1 else np.concatenate([p.astype(kind, copy=False) for p in parts], axis=1)
        if subset is not None:
            whole = whole[:, np.asarray(subset)]
        return np.ascontiguousarray(whole, dtype=kind)

    def narrowed(self, columns: Columns, subset: Sequence[int] | None) -> Columns:
        """The columns without what is not of the subset; matrices keep their name and become narrower."""
        if subset is None:
            return dict(columns)
        found = {n: v for n, v in columns.items() if n not in self.names}
        start = 0
        for name, width in zip(self.names, self.widths, strict=True):
            at = [i - start for i in subset if start <= i < start + max(1, width)]
            if at:
                found[name] = columns[name][:, at] if width else columns[name]
            start += max(1, width)
        return found
