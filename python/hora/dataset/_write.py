"""write(): tables as files that mix well and in which damage is found."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from ..errors import ArgumentError
from ._source import arrow, is_frame, to_table

GROUP = 1 << 20  # bytes that a row group has in memory: small ones mix well
FILE = 256 << 20


def write(frame: Any, path: Any, *, group: int = GROUP, codec: str = "snappy", overwrite: bool = False) -> None:
    """Write a table to a file (`….parquet`) or a folder, with row groups of about a MiB, checksums and offset indexes.

    `frame` is of pandas, Polars, Arrow or Spark, or a dict of NumPy arrays (two dimensions become lists). Others see
    nothing of it until all of it is there. It needs pyarrow.

    >>> hora.dataset.write({"x": numpy.zeros((10, 4)), "y": numpy.arange(10)}, "data/train")
    """
    if not is_frame(frame):
        raise ArgumentError(
            f"write data: {type(frame).__name__} is no table; give one of pandas, Polars, Arrow or Spark, or a dict of arrays"
        )
    path = os.fspath(path)
    if os.path.lexists(path) and not overwrite:
        raise ArgumentError(f"write data: {path} is there already; choose another name, or say overwrite=True")
    table = to_table(frame)
    if not table.num_rows:
        raise ArgumentError("write data: the table has no rows; write one that has")
    if not table.num_columns:
        raise ArgumentError("write data: the table has no columns; write one that has")
    each = max(1, table.nbytes // table.num_rows)
    rows = max(1, group // each)
    parent = os.path.dirname(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    made = tempfile.mkdtemp(prefix=".hora-write-", dir=parent)
    try:
        if path.endswith((".parquet", ".parq", ".pq")):
            _file(table, os.path.join(made, "file"), rows, codec)
            os.replace(os.path.join(made, "file"), path)
            return
        folder = os.path.join(made, "folder")
        os.mkdir(folder)
        per = max(rows, FILE // each // rows * rows)
        for i, begin in enumerate(range(0, table.num_rows, per)):
            _file(table.slice(begin, per), os.path.join(folder, f"part-{i:05d}.parquet"), rows, codec)
        with open(os.path.join(folder, "_SUCCESS"), "w"):
            pass
        os.chmod(folder, 0o755)
        if os.path.lexists(path):
            os.rename(path, os.path.join(made, "old"))
        os.rename(folder, path)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _file(table: Any, path: str, rows: int, codec: str) -> None:
    arrow("write data").parquet.write_table(
        table, path, row_group_size=rows, compression=codec, write_page_checksum=True, write_page_index=True,
        data_page_size=256 << 10,
    )  # fmt: skip
