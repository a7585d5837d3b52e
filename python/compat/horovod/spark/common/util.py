"""Helpers of Horovod's estimators that programs call themselves: data written to a store, and what it is like."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "check_shape_compatibility", "check_validation", "clear_training_cache", "get_dataset_properties", "get_simple_meta_from_parquet",
    "prepare_data", "to_list",
]  # fmt: skip

_guard = threading.Lock()  # of the two below
_numbers = itertools.count()
_training_cache: dict[int, tuple[int, int, dict[str, Any], float]] = {}


def to_list(var: Any, length: int) -> list[Any] | None:
    """A list as it is, anything else as a list of so many; None stays."""
    if var is None:
        return None
    if not isinstance(var, list):
        return [var] * length
    if len(var) != length:
        raise ValueError(f"List given does not have the required number of entries: {len(var)} instead of {length}")
    return var


def check_validation(validation: Any, df: Any = None) -> None:
    """Raises where it is neither a part of the rows nor a column."""
    if validation is None or validation == 0:
        return
    if isinstance(validation, (int, float)) and not isinstance(validation, bool):
        if not 0 < validation < 1:
            raise ValueError(f"Validation split {validation} must be in the range: [0, 1)")
    elif not isinstance(validation, str):
        raise ValueError(f"Param validation must be of type float or str, found: {type(validation).__name__}")
    elif df is not None and validation not in df.columns:
        raise ValueError(f"Validation column {validation} does not exist in the DataFrame")


def clear_training_cache() -> None:
    """Forgets what prepare_data has written."""
    with _guard:
        _training_cache.clear()


@contextlib.contextmanager
def prepare_data(
    num_processes: int, store: Any, df: Any, label_columns: Sequence[str] | None = None, feature_columns: Sequence[str] | None = None,
    validation: Any = None, sample_weight_col: str | None = None, compress_sparse: bool = False, partitions_per_process: int = 10,
    verbose: int = 0,
) -> Iterator[int]:  # fmt: skip
    """Writes the rows as Parquet into the store, validation apart; the number of the data set, for the store's paths."""
    from pyspark.sql import functions as F

    check_validation(validation, df)
    names = [*dict.fromkeys([*(label_columns or []), *(feature_columns or []), *([sample_weight_col] if sample_weight_col else [])])]
    names = names or [c for c in df.columns if c != validation]
    held: Any = None
    if isinstance(validation, str):
        held = F.col(f"`{validation}`").cast("boolean")
    elif validation:
        plain = [n for n in names if type(df.schema[n].dataType).__name__ != "VectorUDT"]
        vectors = [F.col(f"`{n}`").cast("string") for n in names if n not in plain]
        held = F.pmod(F.xxhash64(*[F.col(f"`{n}`") for n in plain], *vectors), F.lit(1 << 20)) < F.lit(int(validation * (1 << 20)))
    with _guard:
        idx = next(_numbers)
    columns = [F.col(f"`{n}`") for n in names]
    parts = num_processes * partitions_per_process
    train = df.select(*columns) if held is None else df.where(~held).select(*columns)
    train.repartition(parts).write.mode("overwrite").parquet(store.get_train_data_path(idx))
    train_rows, val_rows = _count(df, store.get_train_data_path(idx)), 0
    if held is not None:
        df.where(held).select(*columns).repartition(num_processes).write.mode("overwrite").parquet(store.get_val_data_path(idx))
        val_rows = _count(df, store.get_val_data_path(idx))
    metadata = _get_metadata(df.select(*columns))
    with _guard:
        _training_cache[idx] = (train_rows, val_rows, metadata, _row_size(metadata))
    yield idx


def _count(df: Any, path: str) -> int:
    return int(df.sparkSession.read.parquet(path).count())


def get_dataset_properties(dataset_idx: int) -> tuple[int, int, dict[str, Any], float]:
    """Rows for training, rows for validation, the columns' description, and the bytes of a row, of what prepare_data wrote."""
    with _guard:
        if dataset_idx not in _training_cache:
            raise ValueError(f"there is no prepared data set {dataset_idx}; prepare_data gives the number of each")
        return _training_cache[dataset_idx]


def get_simple_meta_from_parquet(
    store: Any, label_columns: Sequence[str], feature_columns: Sequence[str], sample_weight_col: str | None = None,
    dataset_idx: int | None = None,
) -> tuple[int, int, dict[str, Any], float]:  # fmt: skip
    """The same of Parquet files that are in the store already."""
    from hora.spark import active

    spark = active()
    train = spark.read.parquet(store.get_train_data_path(dataset_idx))
    names = [*label_columns, *feature_columns, *([sample_weight_col] if sample_weight_col else [])]
    for name in names:
        if name not in train.columns:
            raise ValueError(f"Column {name} not found in the Parquet data of the store, which has {', '.join(train.columns)}")
    metadata = _get_metadata(train.select(*names))
    val = store.get_val_data_path(dataset_idx)
    return int(train.count()), _count(train, val) if store.exists(val) else 0, metadata, _row_size(metadata)


def _get_metadata(df: Any) -> dict[str, Any]:
    """What each column holds: `shape` is the number of values in a row, `spark_data_type` Spark's type."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F

    lists = {}
    for f in df.schema.fields:
        kind = type(f.dataType).__name__
        if kind in ("VectorUDT", "ArrayType"):
            column = F.col(f"`{f.name}`")
            lists[f.name] = F.max(F.size(vector_to_array(column) if kind == "VectorUDT" else column))
    row = df.agg(*[v.alias(str(i)) for i, v in enumerate(lists.values())]).collect()[0] if lists else []
    sizes = dict(zip(lists, row, strict=True))
    return {
        f.name: {
            "spark_data_type": type(f.dataType), "is_sparse_vector_only": False, "shape": int(sizes.get(f.name) or 1),
            "intermediate_format": "array" if f.name in sizes else "nochange", "max_size": int(sizes.get(f.name) or 1),
        }
        for f in df.schema.fields
    }  # fmt: skip


def _row_size(metadata: Mapping[str, Any]) -> float:
    return float(sum(8 * m["shape"] for m in metadata.values()))


def check_shape_compatibility(
    metadata: Mapping[str, Any], feature_columns: Sequence[str], label_columns: Sequence[str], input_shapes: Any = None,
    output_shapes: Any = None, label_shapes: Any = None,
) -> None:  # fmt: skip
    """Raises where a column's number of values does not fit the shape that the model gives it."""
    _fits(metadata, feature_columns, input_shapes, "Feature", "input")
    _fits(metadata, label_columns, label_shapes if label_shapes is not None else output_shapes, "Label", "output")


def _fits(metadata: Mapping[str, Any], columns: Sequence[str], shapes: Any, what: str, of: str) -> None:
    if shapes is None:
        return
    if len(shapes) != len(columns):
        raise ValueError(f"{what} column count {len(columns)} must equal {of} shapes count {len(shapes)}")
    for name, shape in zip(columns, shapes, strict=True):
        size = 1
        for d in shape:
            size *= abs(int(d)) if d is not None else 1
        if metadata[name]["shape"] != size:
            raise ValueError(f"{what} column '{name}' with {metadata[name]['shape']} values a row must equal {of} shape {tuple(shape)}")
