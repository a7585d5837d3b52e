"""The functions that Spark calls with the features of a batch of rows: they alone go to Python, and predictions alone
come back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from . import _frames


def asked(
    df: Any, packed: bytes, features: Sequence[str], added: Sequence[tuple[str, str]], count: Any, who: str
) -> Any:
    """A column of what scoring adds to a row: the value alone, or c0, c1 and so on of a struct where it is more than
    one.

    Spark is told that two calls may differ. They do not, but else it asks the model once for a filter by the prediction
    and once more for the prediction.
    """
    from pyspark.sql import functions as F

    kind = added[0][1] if len(added) == 1 else ", ".join(f"c{i} {kind}" for i, (_, kind) in enumerate(added))
    columns = _frames.taken(df, features, who)
    if of_arrays(df.sparkSession):
        return F.arrow_udf(_arrays(packed, count), kind).asNondeterministic()(*columns)
    return F.pandas_udf(_series(packed, count), kind).asNondeterministic()(*columns, _null(df, features))


def of_arrays(spark: Any) -> bool:
    """Whether Spark, at both ends of a connection, calls functions from Arrow to Arrow."""
    from pyspark.sql import functions as F

    return hasattr(F, "arrow_udf") and tuple(int(n) for n in re.findall(r"\d+", spark.version)[:2]) >= (4, 1)


def _arrays(packed: bytes, count: Any) -> Any:
    import pyarrow as pa

    def work(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        import pickle

        import pyarrow as pa

        from hora.spark import _scorer

        given = pickle.loads(packed)
        for columns in batches:
            arrays = list(columns) if isinstance(columns, tuple) else [columns]
            more = _scorer.outputs(pa.Table.from_arrays(arrays, names=given.features), given, count)
            yield (
                more[0]
                if len(more) == 1
                else pa.StructArray.from_arrays(more, names=[f"c{i}" for i in range(len(more))])
            )

    # A signature with the types themselves: texts would be looked up where this function travels to.
    work.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return work


def _series(packed: bytes, count: Any) -> Any:
    import pandas as pd

    def work(batches: Any) -> Any:
        import pickle

        import pandas as pd
        import pyarrow as pa

        from hora.spark import _scorer

        given = pickle.loads(packed)
        # Of NaN in a column of NumPy's Spark would make null.
        kinds = {t: pd.ArrowDtype(t) for t in (pa.float32(), pa.float64())} if hasattr(pd, "ArrowDtype") else {}
        for *columns, null in batches:
            table: Any = pd.DataFrame(dict(zip(given.features, columns, strict=True)), copy=False)
            if null.notna().any():  # of which pandas makes NaN, which is a value
                masks = [(null == name).to_numpy() for name in given.features]
                arrays = [pa.array(c.to_numpy(), mask=m) for c, m in zip(columns, masks, strict=True)]
                table = pa.Table.from_arrays(arrays, names=given.features)
            more = _scorer.outputs(table, given, count)
            found = pa.Table.from_arrays(more, names=[f"c{i}" for i in range(len(more))])
            found = found.to_pandas(integer_object_nulls=True, types_mapper=kinds.get)
            yield found["c0"] if len(more) == 1 else found

    work.__annotations__ = {"batches": Iterator[tuple[pd.Series, ...]], "return": Iterator[pd.Series]}
    return work


def _null(df: Any, features: Sequence[str]) -> Any:
    """The name of the first feature that a row has no value of, or a list with a hole in it."""
    from pyspark.sql import functions as F

    found = [F.lit(None).cast("string")]
    for name in features:
        column, kind = F.col(f"`{name}`"), df.schema[name].dataType
        null = column.isNull()
        if type(kind).__name__ == "ArrayType" and kind.containsNull:
            null = null | F.exists(column, lambda v: v.isNull())
        found.append(F.when(null, F.lit(name)))
    return F.coalesce(*found)
