"""Whole tables to arrays, with one thread: floats (snappy), dictionaries with nulls, lists (zstd), bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np

NAMES = [f"f{i}" for i in range(20)]


def numbers(columns, check: bool) -> float:
    return float(sum(np.nansum(np.asarray(c, "f8")) for c in columns)) if check else 0.0


def hora_flat(folder: Path, file: str, check: bool) -> tuple[int, float]:
    import hora.dataset

    rows, total = 0, 0.0
    for b in hora.dataset.open(
        folder / file,
        columns=NAMES,
        batch=50_000,
        shuffle=False,
        memory="512MiB",
        threads=1,
    ):
        rows += b.rows
        total += numbers(b.values(), check)
    return rows, total


def hora_lists(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import hora.dataset

    rows, total = 0, 0.0
    for b in hora.dataset.open(folder / "lists.parquet", batch=4096, shuffle=False, memory="512MiB", threads=1):
        rows += b.rows
        total += numbers([b["x"]], check)
    return rows, total


def hora_bytes(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import hora.dataset

    rows, total = 0, 0.0
    for b in hora.dataset.open(
        folder / "samples.parquet",
        columns=["data"],
        batch=256,
        shuffle=False,
        memory="512MiB",
        threads=1,
    ):
        rows += b.rows
        total += float(b["data"].data.sum(dtype="f8")) if check else 0
    return rows, total


def arrow(folder: Path, file: str, check: bool, what: str) -> tuple[int, float]:
    import pyarrow.parquet as pq

    table = pq.read_table(
        folder / file,
        columns=[what] if what in ("data", "x") else NAMES,
        use_threads=False,
    )
    total = 0.0
    for name in table.column_names:
        for chunk in table[name].chunks if check else ():
            if what == "data":
                raw = np.frombuffer(chunk.buffers()[2], "u1")
                offsets = np.frombuffer(chunk.buffers()[1], "i4")
                total += float(raw[offsets[chunk.offset] : offsets[chunk.offset + len(chunk)]].sum(dtype="f8"))
            else:
                total += numbers(
                    [chunk.flatten() if what == "x" else chunk.to_numpy(zero_copy_only=False)],
                    True,
                )
    return table.num_rows, total


def polars(folder: Path, file: str, check: bool, what: str) -> tuple[int, float]:
    import polars as pl

    frame = pl.scan_parquet(folder / file).select([what] if what in ("data", "x") else NAMES).collect()
    total = 0.0
    if check and what == "data":
        total = float(sum(np.frombuffer(v, "u1").sum(dtype="f8") for v in frame["data"]))
    elif check:
        for name in frame.columns:
            column = frame[name].explode() if what == "x" else frame[name]
            total += numbers([column.to_numpy()], True)
    return frame.height, total


def alone(folder: Path, turn: int, check: bool, name: str) -> tuple[int, float, int]:
    """The library's decoder and nothing after it: dataset's BenchmarkDecode, which hands nothing out to compare; five
    passes."""
    import pyarrow.parquet as pq

    env = os.environ | {"HORA_BENCH_DATA": str(folder), "GOMAXPROCS": "1"}
    command = [
        str(folder / "decode.test"),
        "-test.run=^$",
        f"-test.bench=^BenchmarkDecode$/^{name}$",
        "-test.benchtime=5x",
    ]
    subprocess.run(command, env=env, check=True, capture_output=True)
    return pq.ParquetFile(folder / f"{name}.parquet").metadata.num_rows, NOT_COMPARED, 5


NOT_COMPARED = -1.0
FILES = {
    "flat": "flat.parquet",
    "dictionary, nulls": "nulls.parquet",
    "list, zstd": "lists.parquet",
    "bytes": "samples.parquet",
}
WHAT = {"list, zstd": "x", "bytes": "data"}
CONTESTANTS = {}
for _name, _file in FILES.items():
    _what = WHAT.get(_name, "")
    _ours = {"x": hora_lists, "data": hora_bytes}.get(
        _what, lambda folder, turn, check, file=_file: hora_flat(folder, file, check)
    )
    CONTESTANTS[f"hora, {_name}"] = _ours
    CONTESTANTS[f"hora's decoder alone, {_name}"] = lambda folder, turn, check, file=_file: alone(folder, turn, check, file.split(".")[0])
    CONTESTANTS[f"pyarrow, {_name}"] = lambda folder, turn, check, file=_file, what=_what: arrow(folder, file, check, what)
    CONTESTANTS[f"Polars, {_name}"] = lambda folder, turn, check, file=_file, what=_what: polars(folder, file, check, what)
