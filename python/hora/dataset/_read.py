"""read(): all of a table's rows at once, in the order of the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._views import Ragged, TextLists, Texts, join

ROWS = 1 << 16


class Table(Mapping[str, Any]):
    """A table in memory: columns as NumPy arrays, `Texts`, `Ragged` or `TextLists` by name; made by `read`.

    `nulls[name]` is where a column has nulls (True), for columns that have any.
    """

    def __init__(self, columns: dict[str, Any], nulls: dict[str, Any], rows: int) -> None:
        self.columns, self.nulls, self.rows = columns, nulls, rows

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def to_numpy(self) -> dict[str, Any]:
        """Arrays by name. Texts become arrays of objects; a column with nulls is a masked array."""
        out = {}
        for name, column in self.columns.items():
            array = column if isinstance(column, (np.ndarray, Ragged)) else np.asarray(column)
            out[name] = np.ma.MaskedArray(array, self.nulls[name]) if name in self.nulls else array
        return out

    def to_arrow(self) -> Any:
        """A table of Arrow; nulls are nulls. It needs pyarrow."""
        from ._source import arrow

        pa = arrow("make a table of Arrow")
        return pa.table({name: self._arrow(pa, name, column) for name, column in self.columns.items()})

    def _arrow(self, pa: Any, name: str, column: Any) -> Any:
        null = self.nulls.get(name)
        if isinstance(column, Texts):
            values = column.tolist()
            if null is not None:
                values = [None if n else v for v, n in zip(values, null, strict=True)]
            return pa.array(values, pa.large_binary() if column.binary else pa.large_string())
        if isinstance(column, TextLists):
            return pa.array(column.tolist(), pa.large_list(pa.large_binary() if column.binary else pa.large_string()))
        if isinstance(column, Ragged):
            return pa.LargeListArray.from_arrays(pa.array(column.ends), pa.array(column.data))
        if column.dtype.kind == "V":
            return pa.array(
                [None if null is not None and null[i] else v.tobytes() for i, v in enumerate(column)],
                pa.binary(column.dtype.itemsize),
            )
        if column.ndim == 2:
            flat = pa.array(column.reshape(-1), mask=None if null is None else null.reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, column.shape[1])
        return pa.array(column, mask=null)

    def to_pandas(self) -> Any:
        """A frame of pandas; a list becomes an array in its row, a null None, NaN or NaT. It needs pandas."""
        import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]

        out = {}
        for name, column in self.columns.items():
            null = self.nulls.get(name)
            values: Any = column
            if isinstance(column, Texts):
                values = np.asarray(column)
            elif isinstance(column, (Ragged, TextLists)):
                values = _objects(list(column))
            elif column.ndim == 2:
                values = _objects(list(column if null is None else with_holes(column, null)))
                null = None if null is None else null.all(1)
            elif column.dtype.kind == "V":
                values = _objects([v.tobytes() for v in column])
            elif column.dtype == "M8[D]":
                values = column.astype("M8[s]")
            if null is not None:
                values = with_holes(values, null)
            out[name] = pd.Series(values)
        return pd.DataFrame(out)

    def __repr__(self) -> str:
        return f"<hora.dataset.Table {self.rows} rows of {', '.join(self.columns)}>"


def read(
    source: Any,
    *,
    columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    filter: Any = None,
    nulls: Mapping[str, Any] | None = None,
    ragged: Sequence[str] = (),
    on_error: str = "raise",
    threads: int | None = None,
) -> Table:
    """Read all rows of a source, in the order of the files: the whole table, on whoever asks for it.

    `columns`, `filter`, `nulls` and `ragged` are those of `open`; where `nulls` says nothing they are told apart.

    >>> hora.dataset.read("data/train", columns=["id", "label"], filter=[("label", "==", 3)]).to_pandas()
    """
    from ._loader import open

    loader = open(
        source, columns=columns, batch=ROWS, shuffle=False, filter=filter, on_error=on_error, threads=threads, rank=0,
        size=1,
        memory=1 << 62, nulls={"*": "mask"} | dict(nulls or {}), ragged=ragged,
    )  # fmt: skip
    parts = list(loader._quiet())
    names = [f["name"] for f in loader.fields]
    columns_, nulls = {}, {}
    for name in names:
        columns_[name] = join([p[name] for p in parts])
        if name + ".null" in parts[0]:
            null = join([p[name + ".null"] for p in parts])
            if null.any():
                nulls[name] = null
    rows = sum(p.rows for p in parts)
    return Table(columns_, nulls, rows)


def with_holes(values: Any, null: Any) -> Any:
    """A copy of an array with NaN, NaT or None where it has nulls; whole numbers become float64, as in pandas."""
    kind = values.dtype.kind
    if kind in "fmM":
        values = values.copy()
    else:
        values = values.astype("f8" if kind in "iu" else object)
    values[null] = {"f": np.nan, "O": None}.get(values.dtype.kind, "NaT")
    return values


def _objects(items: list[Any]) -> Any:
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return array
