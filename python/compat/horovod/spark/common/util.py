"""Helpers of Horovod's estimators that programs call themselves: data written to a store, and what it is like."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "check_shape_compatibility", "check_validation", "clear_training_cache", "data_type_to_str",
    "get_dataset_properties",
    "get_output_cols", "get_simple_meta_from_parquet", "get_spark_df_output_schema", "host_hash", "is_databricks",
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
    num_processes: int, store: Any, df: Any, label_columns: Sequence[str] | None = None,
    feature_columns: Sequence[str] | None = None,
    validation: Any = None, sample_weight_col: str | None = None, compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
) -> Iterator[int]:  # fmt: skip
    """Writes the rows as Parquet into the store, validation apart; the number of the data set, for the store's
    paths."""
    from pyspark.sql import functions as F

    check_validation(validation, df)
    names = [
        *dict.fromkeys(
            [*(label_columns or []), *(feature_columns or []), *([sample_weight_col] if sample_weight_col else [])]
        )
    ]
    names = names or [c for c in df.columns if c != validation]
    held: Any = None
    if isinstance(validation, str):
        held = F.coalesce(F.col(f"`{validation}`").cast("boolean"), F.lit(False))
    elif validation:
        plain = [n for n in names if type(df.schema[n].dataType).__name__ != "VectorUDT"]
        vectors = [F.col(f"`{n}`").cast("string") for n in names if n not in plain]
        held = F.pmod(F.xxhash64(*[F.col(f"`{n}`") for n in plain], *vectors), F.lit(1 << 20)) < F.lit(
            int(validation * (1 << 20))
        )
    with _guard:
        idx = next(_numbers)
    columns = [F.col(f"`{n}`") for n in names]
    parts = num_processes * partitions_per_process
    train = df.select(*columns) if held is None else df.where(~held).select(*columns)
    train.repartition(parts).write.mode("overwrite").parquet(store.get_train_data_path(idx))
    train_rows, val_rows = _count(df, store.get_train_data_path(idx)), 0
    if held is not None:
        df.where(held).select(*columns).repartition(num_processes).write.mode("overwrite").parquet(
            store.get_val_data_path(idx)
        )
        val_rows = _count(df, store.get_val_data_path(idx))
    metadata = _get_metadata(df.select(*columns))
    with _guard:
        _training_cache[idx] = (train_rows, val_rows, metadata, _row_size(metadata))
    yield idx


def _train_val_split(df: Any, validation: Any) -> tuple[Any, Any, float]:
    """The rows for training, those for validation (None without), and which part of all the latter are."""
    from pyspark.sql import functions as F

    check_validation(validation, df)
    if not validation:
        return df, None, 0.0
    if not isinstance(validation, str):
        train, val = df.randomSplit([1.0 - validation, float(validation)])
        return train, val, float(validation)
    held = F.coalesce(F.col(f"`{validation}`").cast("boolean"), F.lit(False))
    rows, some = df.agg(F.count(F.lit(1)), F.sum(held.cast("int"))).collect()[0]
    return df.where(~held).drop(validation), df.where(held).drop(validation), (some or 0) / max(1, rows)


_OF_A_ROW = "array<struct<name: string, kind: binary, shape: bigint, size: bigint>>"


def _get_col_info(df: Any) -> tuple[dict[str, set[type]], dict[str, int], dict[str, int]]:
    """Of each column the Python types of its values, their shape, and the most of them that a row has (of sparse
    vectors: that are not 0)."""
    import pickle

    from pyspark.ml.linalg import DenseVector, SparseVector
    from pyspark.sql import functions as F

    def look(row: Any) -> Any:
        for name, value in row.asDict().items():
            if isinstance(value, SparseVector):
                shape, size = int(value.size), len(value.indices)
            elif isinstance(value, (DenseVector, list)):
                shape = size = len(value)
            else:
                shape = size = 1
            yield name, pickle.dumps(type(value)), shape, size

    told = F.udf(lambda row: list(look(row)), _OF_A_ROW, useArrow=False)(
        F.struct(*[F.col("`" + n.replace("`", "``") + "`") for n in df.columns])
    )
    found = df.select(F.explode(told).alias("c")).groupBy("c.name")
    asked = [F.collect_set("c.kind"), *(f(f"c.{what}") for what in ("shape", "size") for f in (F.min, F.max))]
    kinds: dict[str, set[type]] = {n: set() for n in df.columns}
    shapes: dict[str, set[int]] = {n: set() for n in df.columns}
    sizes: dict[str, set[int]] = {n: set() for n in df.columns}
    for name, types, *bounds in found.agg(*[a.alias(f"a{i}") for i, a in enumerate(asked)]).collect():
        kinds[name] = {pickle.loads(bytes(t)) for t in types}
        shapes[name], sizes[name] = set(bounds[:2]), set(bounds[2:])
    for name in df.columns:
        if len(shapes[name]) > 1:
            raise ValueError(f"Column {name} does not have uniform shape. shape set: {shapes[name]}")
        if len(sizes[name]) > 1 and SparseVector not in kinds[name]:
            raise ValueError(f"Rows of column {name} have varying sizes. This is only allowed for SparseVector")
    return kinds, {n: max(v, default=1) for n, v in shapes.items()}, {n: max(v, default=1) for n, v in sizes.items()}


def get_output_cols(input_df_schema: Any, output_cols: Sequence[str]) -> list[str]:
    """The columns that a model's transform gives."""
    return [*input_df_schema.names, *output_cols]


def get_spark_df_output_schema(
    input_df_schema: Any, label_cols: Sequence[str], output_cols: Sequence[str], metadata: Mapping[str, Any]
) -> Any:
    """The schema of what a model's transform gives: the frame's own columns, and each output in its label's type."""
    from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
    from pyspark.sql.types import StructField, StructType

    if len(label_cols) != len(output_cols):
        raise ValueError("Number of output columns must equal to number of label columns.")
    for name in output_cols:
        if name in input_df_schema.names:
            raise ValueError(f"Output col '{name}' exists in original df schema: {', '.join(input_df_schema.names)}")
    made = []
    for label, name in zip(label_cols, output_cols, strict=True):
        kind = metadata[label]["spark_data_type"]
        own = input_df_schema[label].dataType if label in input_df_schema.names else None
        made.append(StructField(name, VectorUDT() if kind in (DenseVector, SparseVector) else own or kind(), True))
    return StructType([*input_df_schema.fields, *made])


def data_type_to_str(dtype: Any) -> str:
    """The short name of a type of Spark's."""
    name = str(dtype.__name__)
    known = {
        "VectorUDT": "Vector", "SparseVector": "Vector", "DenseVector": "Vector", "IntegerType": "Int",
        "StringType": "String",
        "FloatType": "Float", "BinaryType": "Binary", "DoubleType": "Double", "LongType": "Long",
        "BooleanType": "Boolean",
    }  # fmt: skip
    if name not in known:
        raise ValueError(f"Unrecognized data type: {dtype}")
    return known[name]


def host_hash(salt: str | None = None) -> str:
    """That of horovod.runner.common.util; each of YARN's containers, which share no memory, has its own."""
    from horovod.runner.common.util import host_hash as of_host

    return of_host.host_hash("-".join(s for s in (os.environ.get("CONTAINER_ID"), salt) if s) or None)


def is_databricks() -> bool:
    """Whether this is a Databricks runtime."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def _count(df: Any, path: str) -> int:
    return int(df.sparkSession.read.parquet(path).count())


def get_dataset_properties(dataset_idx: int) -> tuple[int, int, dict[str, Any], float]:
    """Rows for training, rows for validation, the columns' description, and the bytes of a row, of what prepare_data
    wrote."""
    with _guard:
        if dataset_idx not in _training_cache:
            raise ValueError(f"there is no prepared data set {dataset_idx}; prepare_data gives the number of each")
        return _training_cache[dataset_idx]


def get_simple_meta_from_parquet(
    store: Any, label_columns: Sequence[str], feature_columns: Sequence[str], sample_weight_col: str | None = None,
    dataset_idx: int | None = None,
) -> tuple[int, int, dict[str, Any], float]:  # fmt: skip
    """The same of Parquet files that are in the store already."""
    from hora.spark.frontend import active_session

    spark = active_session()
    train = spark.read.parquet(store.get_train_data_path(dataset_idx))
    names = [*label_columns, *feature_columns, *([sample_weight_col] if sample_weight_col else [])]
    for name in names:
        if name not in train.columns:
            raise ValueError(
                f"Column {name} not found in the Parquet data of the store, which has {', '.join(train.columns)}"
            )
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
            raise ValueError(
                f"{what} column '{name}' with {metadata[name]['shape']} values a row must equal {of} shape {tuple(shape)}"
            )
