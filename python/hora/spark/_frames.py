"""Spark data frames on their way to columns: what of them can go, in which form, and what their rows are like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any

from ..errors import ArgumentError, HoraError
from ._tables import need

_NUMBERS = {"ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "BooleanType"}
_PLAIN = _NUMBERS | {
    "StringType",
    "BinaryType",
    "DateType",
    "TimestampType",
    "TimestampNTZType",
    "VarcharType",
    "CharType",
}


def _kind(field_type: Any) -> str:
    return type(field_type).__name__


def is_vector(field_type: Any) -> bool:
    """Whether it is a vector of Spark's own machine learning."""
    return _kind(field_type) == "VectorUDT"


def taken(frame: Any, names: Sequence[str], who: str) -> list[Any]:
    """The named columns as what Arrow takes and arrays are made of: vectors as arrays, decimals as numbers."""
    from pyspark.sql import functions as F

    found = []
    for name in names:
        need(name, frame.columns, who)
        kind = frame.schema[name].dataType
        column = F.col(f"`{name}`")
        if is_vector(kind):
            from pyspark.ml.functions import vector_to_array

            found.append(F.when(column.isNotNull(), vector_to_array(column)).alias(name))  # which takes no null
        elif _kind(kind) == "DecimalType":
            found.append(column.cast("double").alias(name))
        elif _kind(kind) == "ArrayType" and _kind(kind.elementType) == "DecimalType":
            found.append(column.cast("array<double>").alias(name))
        elif _kind(kind) == "ArrayType" and _kind(kind.elementType) not in _NUMBERS:
            raise ArgumentError(
                f"{who}: column {name!r} holds {kind.simpleString()}, of which no array is made; turn it into a list of numbers"
            )
        elif _kind(kind) not in _PLAIN | {"ArrayType"}:
            raise ArgumentError(
                f"{who}: column {name!r} holds {kind.simpleString()}, of which no array is made; turn it into numbers, text or lists of "
                "numbers, or name the columns to take in features="
            )
        else:
            found.append(column)
    return found


def arrow(rows: Sequence[Any], schema: Any) -> Any:
    """Collected rows as an Arrow table of the types that they have in batches."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    arrays = [pa.array([r[i] for r in rows], to_arrow_type(f.dataType)) for i, f in enumerate(schema.fields)]
    return pa.Table.from_arrays(arrays, names=[f.name for f in schema.fields])


@dataclass
class Looked:
    """What one pass over a frame has found."""

    rows: int
    widths: dict[str, int]  # of the columns that hold lists
    nans: dict[str, int]  # rows with a NaN, by column, where there are some
    digest: str = ""  # of the values, in whatever order the rows come
    more: dict[str, Any] = _field(default_factory=dict)  # what was asked besides, by its name


def looked_at(frame: Any, who: str, hashed: Sequence[str] = (), more: Mapping[str, Any] | None = None) -> Looked:
    """How many rows there are, and how long the lists are; raises where there are nulls or lists of different lengths.
    One pass. more: aggregates to find besides."""
    from pyspark.sql import functions as F

    asked = [F.count(F.lit(1))]
    told: list[tuple[str, str]] = []
    if hashed:  # two sums of 24 bits, which no table's rows overflow
        whole = F.xxhash64(*[F.col(f"`{n}`") for n in hashed])
        for name, by in (("low", 0), ("high", 24)):
            asked.append(F.sum(F.shiftright(whole, by).bitwiseAND(F.lit((1 << 24) - 1))))
            told.append((name, "digest"))
    for field in frame.schema.fields:
        column = F.col(f"`{field.name}`")
        lists = _kind(field.dataType) == "ArrayType"
        if _kind(field.dataType.elementType if lists else field.dataType) in ("FloatType", "DoubleType"):
            asked.append(F.sum(F.when(F.exists(column, F.isnan) if lists else F.isnan(column), 1).otherwise(0)))
            told.append((field.name, "nans"))
        null = column.isNull() | (F.exists(column, lambda v: v.isNull()) if lists else F.lit(False))
        asked.append(F.sum(F.when(null, 1).otherwise(0)))
        told.append((field.name, "nulls"))
        if lists:
            asked += [F.min(F.size(column)), F.max(F.size(column))]
            told += [(field.name, "least"), (field.name, "most")]
    for name, column in (more or {}).items():
        asked.append(column)
        told.append((name, "more"))
    row = frame.agg(*[a.alias(f"c{i}") for i, a in enumerate(asked)]).collect()[0]
    if not row[0]:
        raise ArgumentError(f"{who}: the table has no rows")
    said = {key: row[i + 1] for i, key in enumerate(told)}
    nulls = [f"{n!r} ({c:,})" for (n, what), c in said.items() if what == "nulls" and c]
    if nulls:
        raise ArgumentError(f"{who}: there are null values in {', '.join(nulls)}; fill or drop such rows first")
    widths = {}
    for (name, what), value in said.items():
        if what == "least":
            if value != said[(name, "most")]:
                raise ArgumentError(
                    f"{who}: the lists of column {name!r} have from {value} to {said[(name, 'most')]} values; make them of one length, by "
                    "cutting or padding"
                )
            widths[name] = int(value)
    nans = {n: int(c) for (n, what), c in said.items() if what == "nans" and c}
    digest = "-".join(f"{int(v):x}" for (_, what), v in said.items() if what == "digest")
    return Looked(int(row[0]), widths, nans, digest, {n: v for (n, what), v in said.items() if what == "more"})


def explained(
    e: BaseException, who: str, large: str = "the models together are", less: str = "fit fewer or smaller models"
) -> BaseException:
    """What Spark raised, in one sentence where it is known what it means. large: what the driver was to take, and less
    how there is less of it."""
    text = str(e)
    if "maxResultSize" in text:
        return HoraError(f"{who}: {large} larger than the driver takes; raise spark.driver.maxResultSize, or {less}")
    if "No module named 'hora'" in text:
        return HoraError(
            f"{who}: the executors have no package hora; install hora's wheel in the Python of all workers"
        )
    lacking = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
    if lacking:
        return HoraError(f"{who}: an executor has no package {lacking[1]!r}; install it in the Python of all workers")
    return e


class Count:
    """Numbers that tasks add to and a function on the driver hears of when a task ends; nothing under Connect, where
    Spark has no such thing."""

    def __init__(self, spark: Any, heard: Any, numbers: int) -> None:
        from . import _cluster

        self.accumulator = None
        if heard is not None and not _cluster.connected(spark):
            self.accumulator = spark.sparkContext.accumulator((0,) * numbers, _sum(heard))


def _sum(heard: Any) -> Any:
    from pyspark.accumulators import AccumulatorParam

    class Sum(AccumulatorParam):
        """Adds tuples; knows the function only where it was made."""

        def __init__(self) -> None:
            self.heard = heard

        def __getstate__(self) -> dict[str, Any]:
            return {"heard": None}

        def zero(self, value: Any) -> Any:
            return (0,) * len(value)

        def addInPlace(self, value1: Any, value2: Any) -> Any:
            total = tuple(a + b for a, b in zip(value1, value2, strict=True))
            if self.heard is not None:
                self.heard(*total)
            return total

    return Sum()
