"""PartitionEnsemble on a Spark cluster: the parts of a data frame, each fitted by the task that holds it; the driver
gets the models."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import HoraError
from . import _frames, _local, _members, _packages, _plan, _stages, _travel, _votes, _work
from ._ensemble import check_label, validation_rows, why_empty
from ._tables import Columns, Layout, need, tell_nans

_WHO = _plan.WHO
_PLACE = "hora_place"
_FEW = 50_000  # rows up to which they are dealt exactly; more are dealt in turn by each task
_VALUES = 500  # of a column to split by, up to which the driver deals them; more are dealt by the cluster
_HOME, _VALUE, _COUNT = "hora_home", "hora_value", "hora_count"
_AT_ONCE = 64  # rows of 256 KiB in one batch


def fit(base: Any, settings: dict[str, Any], frame: Any, progress: Callable[[int, int], Any] | None) -> _votes.Ensemble:
    """The ensemble, fitted by the cluster."""
    spark = frame.sparkSession
    label, by, extra = settings["label"], settings["by"], settings["extra"]
    names = list(frame.columns)
    features = [w for w in _plan.feature_names(settings, names) if w != label]
    wanted = list(features)
    if _members.is_estimator(base) or label in names:
        need(label, names, _WHO, "label column")
        wanted.append(label)
    by_column = by not in ("rows", "columns", "both")
    if by_column:
        need(by, names, _WHO + ": by is 'rows', 'columns', 'both' or the name of a column")
    wanted = list(dict.fromkeys([*wanted, *extra, *([by] if by_column else [])]))
    frame = frame.select(*_frames.taken(frame, wanted, _WHO))
    blob = _travel.pickled_with_code(base, "base")
    _packages.check(spark, _travel.packages(blob), _WHO)
    looked = _frames.looked_at(frame, _WHO)
    tell_nans(looked.nans, [n for n in wanted if n != label], _WHO)
    rows = looked.rows
    layout = _layout(frame, features, looked.widths)
    frame, validation = _hold_out(frame, settings, rows, wanted)
    if validation is not None:
        check_label(validation, label)
        rows -= len(validation[label])
    training, merged = _deal(frame, settings, rows)
    subsets = [_plan.subsets(settings, layout)[m[0]] for m in merged]
    task = _work.Task(blob, layout, label, settings["vote"], settings["weight"], subsets, validation)
    seen = [n for n in wanted if n in (*features, label, *extra)]
    many = len(merged)
    heard = None if progress is None else (lambda done: progress(done, many))
    count = _frames.Count(spark, heard, 1)
    job = make(pickle.dumps((task, seen), protocol=5), secrets.token_hex(8), count.accumulator)
    placed = training.repartition(many, _PLACE) if _PLACE in training.columns else training.repartition(many)
    try:
        got = placed.mapInArrow(job, "part long, piece long, bytes binary").collect()
    except Exception as e:
        told = _frames.explained(e, _WHO)
        if told is e:
            raise
        raise told from e
    outcomes = _outcomes(got, many)
    for outcome, m in zip(outcomes, merged, strict=True):
        outcome["partition"], outcome["merged"] = m[0], m if len(m) > 1 else []
    return _votes.assemble(outcomes, settings, layout, None if validation is None else validation[label])


def _outcomes(got: Sequence[Any], many: int) -> list[dict[str, Any]]:
    """What the tasks sent: for each part a head and the pieces of its model."""
    blobs = _stages.whole((r[0], r[1], r[2]) for r in got)
    found: list[dict[str, Any] | None] = [None] * many
    for i in range(many):
        if i in blobs:
            size = int.from_bytes(blobs[i][:8], "little")
            found[i] = pickle.loads(blobs[i][8 : 8 + size])
            found[i]["blob"] = blobs[i][8 + size :]  # type: ignore[index]
    lost = [i for i, o in enumerate(found) if o is None]
    if lost and not any(o is not None and "error" in o for o in found):
        raise HoraError(f"{_WHO}: partitions {lost[:10]} got no rows; say min_rows=1, or a lower n")
    return _local.raise_errors(found)


def make(given: bytes, run: str, count: Any) -> Any:
    """What a task does. Nested, so that it travels by value and a missing package is told in a sentence."""

    def fit_part(batches: Any) -> Any:
        from hora.spark._ensemble_cluster import in_task

        yield from in_task(given, run, count, batches)

    return fit_part


def in_task(given: bytes, run: str, count: Any, batches: Any) -> Any:
    """Fits the part that this task's rows are and gives it as rows of 256 KiB."""
    import os
    import tempfile

    import pyarrow as pa
    from pyspark import TaskContext

    from ._tables import columns_of

    held = [b for b in batches if b.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held)
    part = TaskContext.get().partitionId()  # type: ignore[union-attr]
    task, seen = pickle.loads(given)
    folder = os.path.join(tempfile.gettempdir(), f"hora-ensemble-{os.getuid()}-{run}")
    try:
        columns = columns_of(table.select(seen), None, _WHO)
        check_label(columns, task.label)
    except Exception as e:
        outcome: dict[str, Any] = {"partition": part, "rows": table.num_rows, "error": _work.say(e)}
    else:
        with _work.turn(folder, 1 << 20) as place:
            outcome = _work.fit(task, part, columns)
            if place is not None:
                _work.tell_first(folder, _work.at_once(outcome, 1 << 20))
    blob = outcome.pop("blob", b"")
    head = pickle.dumps(outcome, protocol=5)
    rows = list(_stages.pieces([(part, len(head).to_bytes(8, "little") + head + blob)]))
    if count is not None:
        count.add((1,))
    for at in range(0, len(rows), _AT_ONCE):
        number, piece, data = zip(*rows[at : at + _AT_ONCE], strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(number, pa.int64()), pa.array(piece, pa.int64()), pa.array(data, pa.binary())],
            names=["part", "piece", "bytes"],
        )


def _layout(frame: Any, features: Sequence[str], widths: dict[str, int]) -> Layout:
    """The matrix of features, whose columns' types Spark knows."""
    empty: Columns = {}
    for name in features:
        text = type(frame.schema[name].dataType).__name__ not in ("ArrayType", *_frames._NUMBERS)
        empty[name] = np.empty((0, widths[name])) if name in widths else np.empty(0, dtype=object if text else float)
    return Layout.of(empty, features, _WHO)


def _hold_out(frame: Any, settings: dict[str, Any], rows: int, names: Sequence[str]) -> tuple[Any, Columns | None]:
    """The rows to fit on, and those that no member sees. Which they are is a hash of a row's values, so a plan that
    runs twice agrees."""
    from pyspark.sql import functions as F

    held = validation_rows(settings, rows, settings["label"] in names)
    if not held:
        return frame, None
    bar = max(1, round(held / rows * 1_000_000))
    drawn = F.pmod(F.xxhash64(F.lit(settings["seed"]), *[F.col(f"`{n}`") for n in names]), F.lit(1_000_000)) < bar
    found = collected(frame.where(drawn))
    if found is None:
        raise HoraError(f"{_WHO}: no row was drawn for validation, of {rows:,}; raise validation=")
    return frame.where(~drawn), found


def collected(frame: Any) -> Columns | None:
    """A small frame's columns; None where it has no rows."""
    import pyarrow as pa

    from ._tables import columns_of

    def as_bytes(batches: Any) -> Any:
        import io

        import pyarrow as pa

        for batch in batches:
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, batch.schema) as out:
                out.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"bytes": pa.array([sink.getvalue()], pa.binary())})

    try:
        rows = frame.mapInArrow(as_bytes, "bytes binary").collect()
    except Exception as e:
        told = _frames.explained(e, _WHO, "the rows held out for validation are", "lower validation=")
        if told is e:
            raise
        raise told from e
    got = [b for row in rows for b in pa.ipc.open_stream(bytes(row[0])) if b.num_rows]
    return columns_of(pa.Table.from_batches(got), None, _WHO) if got else None


def _deal(frame: Any, settings: dict[str, Any], rows: int) -> tuple[Any, list[list[int]]]:
    """The frame with the place of each row's member, or without where rows go in turn; and which partitions each member
    is of."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    n, by, least = settings["n"], settings["by"], settings["min_rows"]
    if by == "columns":
        everywhere = F.explode(F.array(*[F.lit(p) for p in places(n)]))
        return frame.withColumn(_PLACE, everywhere), [[i] for i in range(n)]
    if by in ("rows", "both"):
        counts = [rows // n + (i < rows % n) for i in range(n)]
        merged = _plan.merge(counts, least, why_empty(by, rows))
        if rows > max(_FEW, 20 * n):
            return frame, merged
        at = (
            F.row_number().over(
                Window.orderBy(F.xxhash64(F.lit(settings["seed"]), *[F.col(f"`{c}`") for c in frame.columns]))
            )
            - 1
        )
        return frame.withColumn(_PLACE, _placed(F.pmod(at, F.lit(len(merged))), len(merged))), merged
    frame, home, counts = _homes(frame, by, n)
    merged = _plan.merge(counts, least, why_empty(by, rows))
    member = {p: i for i, m in enumerate(merged) for p in m}
    members = F.element_at(F.array(*[F.lit(member.get(p, 0)) for p in range(n)]), (home + 1).cast("int"))
    return frame.withColumn(_PLACE, _placed(members, len(merged))).drop(_HOME), merged


def _homes(frame: Any, by: str, n: int) -> tuple[Any, Any, list[int]]:
    """The frame, a column of it with the partition of each row, and how many rows each partition has: the column's
    values are dealt in turn, in their order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    column = F.col(f"`{by}`")
    values = frame.groupBy(column.alias(_VALUE)).agg(F.count(F.lit(1)).alias(_COUNT))
    found = values.limit(_VALUES + 1).collect()
    counts = [0] * n
    if len(found) > _VALUES:
        home = F.pmod(F.row_number().over(Window.orderBy(_VALUE)) - 1, F.lit(n))
        dealt = values.withColumn(_HOME, home)
        for p, count in dealt.groupBy(_HOME).agg(F.sum(_COUNT)).collect():
            counts[p] = count
        return frame.join(dealt.drop(_COUNT), column.eqNullSafe(F.col(_VALUE))).drop(_VALUE), F.col(_HOME), counts
    kind: Any = object if isinstance(found[0][0], (str, bytes)) else None
    order = _plan.deal_values(np.array([r[0] for r in found], dtype=kind), n)
    for r, p in zip(found, order, strict=True):
        counts[p] += r[1]
    pairs = [F.lit(x) for r, p in zip(found, order.tolist(), strict=True) for x in (r[0], p)]
    return frame, F.element_at(F.create_map(*pairs), column), counts


def _placed(members: Any, many: int) -> Any:
    from pyspark.sql import functions as F

    return F.element_at(F.array(*[F.lit(p) for p in places(many)]), (members + 1).cast("int"))


def places(many: int) -> list[int]:
    """For each of many partitions a number that Spark's hash takes there, so that one partition is one member's and no
    other's."""
    found = [-1] * many
    left, number = many, 0
    while left:
        at = _murmur(number) % many
        if found[at] < 0:
            found[at] = number
            left -= 1
        number += 1
    return found


def _murmur(value: int) -> int:
    """Spark's hash of an int: Murmur3 of its four bytes with seed 42, as a signed number."""
    mask = 0xFFFFFFFF

    def turned(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & mask

    k = turned(value * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (turned(42 ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
