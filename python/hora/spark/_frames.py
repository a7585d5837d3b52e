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
    values: list[tuple[Any, int]] | None = None  # of the column to group by, and how many rows each has


def looked_at(
    frame: Any,
    who: str,
    hashed: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
    by: str = "",
    most: int = 0,
) -> Looked:
    """How many rows there are, and how long the lists are; raises where there are nulls or lists of different lengths.
    One pass, and a second one where there are nulls, NaN or infinities. more: aggregates to find besides. by: a column
    whose values are found besides where it has at most `most`; the aggregates are sums then."""
    from pyspark.sql import functions as F

    asked = {("", "rows"): F.count(F.lit(1))}
    if hashed:  # two sums of 24 bits, which no table's rows overflow
        whole = F.xxhash64(*[F.col(f"`{n}`") for n in hashed])
        for name, at in (("low", 0), ("high", 24)):
            asked[(name, "digest")] = F.sum(F.shiftright(whole, at).bitwiseAND(F.lit((1 << 24) - 1)))
    for field in frame.schema.fields:
        if _kind(field.dataType) == "ArrayType":
            size = F.size(F.col(f"`{field.name}`"))
            asked |= {(field.name, "least"): F.min(size), (field.name, "most"): F.max(size)}
    holes = _holes(frame.schema.fields)
    if holes is not None:
        asked[("", "holes")] = F.sum(F.when(holes.isNull() | F.isnan(holes), 1).otherwise(0))
    asked |= {(name, "more"): column for name, column in (more or {}).items()}
    said, values = _found(frame, asked, by, most)
    if not said[("", "rows")]:
        raise ArgumentError(f"{who}: the table has no rows")
    nans = _told_holes(frame, who) if said.get(("", "holes")) else {}
    widths = {}
    for (name, what), value in said.items():
        if what == "least":
            if value != said[(name, "most")]:
                raise ArgumentError(
                    f"{who}: the lists of column {name!r} have from {value} to {said[(name, 'most')]} values; make them of one length, by "
                    "cutting or padding"
                )
            widths[name] = int(value)
    digest = "-".join(f"{int(v):x}" for (_, what), v in said.items() if what == "digest")
    others = {n: v for (n, what), v in said.items() if what == "more"}
    return Looked(int(said[("", "rows")]), widths, nans, digest, others, values)


def _found(
    frame: Any, asked: Mapping[tuple[str, str], Any], by: str, most: int
) -> tuple[dict[tuple[str, str], Any], list[tuple[Any, int]] | None]:
    """The aggregates of all rows, and the values of a column with their rows, where it has not too many."""
    from pyspark.sql import functions as F

    aggregates = [a.alias(f"c{i}") for i, a in enumerate(asked.values())]
    if by:
        rows = frame.groupBy(F.col(f"`{by}`").alias("value")).agg(*aggregates).limit(most + 1).collect()
        if rows and len(rows) <= most:
            joined = {"least": min, "most": max}
            said = {k: joined.get(k[1], sum)(r[i + 1] or 0 for r in rows) for i, k in enumerate(asked)}
            return said, [(r[0], int(r[1])) for r in rows]
    row = frame.agg(*aggregates).collect()[0]
    return dict(zip(asked, row, strict=True)), None


def _holes(fields: Sequence[Any]) -> Any:
    """A number that is null or NaN in each row that has a null or a NaN, and in some that have infinities; None where
    no row can have one. One sum of all columns, for which Spark makes far less code than for counts of each."""
    from pyspark.sql import functions as F

    terms = []
    for field in fields:
        column, kind = f"`{field.name}`", field.dataType
        if _kind(kind) == "ArrayType":
            real = _kind(kind.elementType) in ("FloatType", "DoubleType")
            if field.nullable or kind.containsNull or real:
                inside = f"exists({column}, v -> v is null{' or isnan(v)' if real else ''})"
                terms.append(f"case when {column} is null or {inside} then null else 0D end")
        elif _kind(kind) in ("FloatType", "DoubleType"):
            terms.append(f"double({column})")
        elif field.nullable:
            terms.append(f"case when {column} is null then null else 0D end")
    while len(terms) > 1:  # by pairs, as Spark descends into what is deep
        pairs = [f"({a} + {b})" for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(terms) // 2 * 2 :]
    return F.expr(terms[0]) if terms else None


def _told_holes(frame: Any, who: str) -> dict[str, int]:
    """How many rows have a NaN, by column; raises where there are nulls."""
    from pyspark.sql import functions as F

    asked: dict[tuple[str, str], Any] = {}
    for field in frame.schema.fields:
        column = F.col(f"`{field.name}`")
        lists = _kind(field.dataType) == "ArrayType"
        if _kind(field.dataType.elementType if lists else field.dataType) in ("FloatType", "DoubleType"):
            nan = F.exists(column, F.isnan) if lists else F.isnan(column)
            asked[(field.name, "nans")] = F.sum(F.when(nan, 1).otherwise(0))
        null = column.isNull() | (F.exists(column, lambda v: v.isNull()) if lists else F.lit(False))
        asked[(field.name, "nulls")] = F.sum(F.when(null, 1).otherwise(0))
    said, _ = _found(frame, asked, "", 0)
    nulls = [f"{n!r} ({c:,})" for (n, what), c in said.items() if what == "nulls" and c]
    if nulls:
        raise ArgumentError(f"{who}: there are null values in {', '.join(nulls)}; fill or drop such rows first")
    return {n: int(c) for (n, what), c in said.items() if what == "nans" and c}


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
