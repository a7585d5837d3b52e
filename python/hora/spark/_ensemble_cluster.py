"""PartitionEnsemble on a Spark cluster: the parts of a data frame, each fitted by the task that holds it; the driver
gets the models."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import HoraError
from . import _cluster, _frames, _local, _members, _packages, _plan, _stages, _travel, _votes, _work
from ._ensemble import check_label, validation_rows, why_empty
from ._tables import Columns, Layout, need, tell_nans

_WHO = _plan.WHO
_PLACE = "hora_place"
_FEW = 50_000  # rows up to which they are dealt exactly; more are dealt in turn by each task
_TOGETHER = 32  # members that one task fits, one after another: Spark takes 0.1 s for a task, whatever that does
_FEW_MEMBERS = 16  # up to which each has a task of its own
_TASK_BYTES = 64 << 20  # of rows that a task gets on average; where the members have more, each has its own
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
    grouped = by if by_column and not _plan.holds_out(settings) else ""
    looked = _frames.looked_at(frame, _WHO, more=_lengths(frame), by=grouped, most=_VALUES)
    tell_nans(looked.nans, [n for n in wanted if n != label], _WHO)
    rows = looked.rows
    layout = _layout(frame, features, looked.widths)
    frame, validation = _hold_out(frame, settings, rows, wanted)
    if validation is not None:
        check_label(validation, label)
        rows -= len(validation[label])
    training, merged = _deal(frame, settings, rows, looked.values)
    subsets = [_plan.subsets(settings, layout)[m[0]] for m in merged]
    task = _work.Task(blob, layout, label, settings["vote"], settings["weight"], subsets, validation)
    seen = [n for n in wanted if n in (*features, label, *extra)]
    many = len(merged)
    tasks = _tasks(spark, many, rows * (many if by == "columns" else 1) * _row_bytes(frame, looked))
    training, homes = _placed_in(training, many, tasks)
    heard = None if progress is None else (lambda done: progress(done, many))
    count = _frames.Count(spark, heard, 1)
    job = make(pickle.dumps((task, seen, homes), protocol=5), secrets.token_hex(8), count.accumulator)
    try:
        got = _received(training.mapInArrow(job, "part long, piece long, bytes binary"), heard)
    except Exception as e:
        told = _frames.explained(e, _WHO)
        if told is e:
            raise
        raise told from e
    outcomes = _outcomes(got, many)
    for outcome, m in zip(outcomes, merged, strict=True):
        outcome["partition"], outcome["merged"] = m[0], m if len(m) > 1 else []
    return _votes.assemble(outcomes, settings, layout, None if validation is None else validation[label])


@dataclass
class Homes:
    """Which members' rows come to which task: every tasks-th to one."""

    many: int
    tasks: int
    places: list[int] | None  # the number that each member's rows bear; None where they bear none


def _tasks(spark: Any, many: int, size: int) -> int:
    """How many tasks fit the members: few of them where the members are small, and as many to each slot."""
    if many <= _FEW_MEMBERS or _cluster.dynamic(spark):  # executors come for tasks that wait
        return many
    slots = max(1, _cluster.slots(spark) or _cluster.default_tasks(spark))
    turns = -(-many // (slots * _TOGETHER))
    return min(many, max(slots * turns, -(-size // _TASK_BYTES)))


def _lengths(frame: Any) -> dict[str, Any]:
    """Aggregates: how many bytes the texts of each column have together."""
    from pyspark.sql import functions as F

    kinds = ("StringType", "BinaryType", "VarcharType", "CharType")
    texts = [f.name for f in frame.schema.fields if type(f.dataType).__name__ in kinds]
    return {n: F.sum(F.octet_length(F.col(f"`{n}`"))) for n in texts}


def _row_bytes(frame: Any, looked: _frames.Looked) -> int:
    return sum(
        16 + (looked.more[n] or 0) // looked.rows if n in looked.more else 8 * looked.widths.get(n, 1)
        for n in frame.columns
    )


def _placed_in(frame: Any, many: int, tasks: int) -> tuple[Any, Homes]:
    """The frame in one partition a task, with all rows of a member in one of them."""
    from pyspark.sql import functions as F

    if _PLACE not in frame.columns:
        tasks = next(t for t in range(tasks, many + 1) if many % t == 0)  # so that all members get as many rows
        dealt = frame.repartition(tasks)
        if tasks < many:  # blocks come in any order, and members are to have the same rows in each run
            dealt = dealt.sortWithinPartitions(F.xxhash64(*[F.col(f"`{c}`") for c in frame.columns]))
        return dealt, Homes(many, tasks, None)
    found = places(many, tasks)
    numbers = F.element_at(_listed(found), (F.col(_PLACE) + 1).cast("int"))
    return frame.withColumn(_PLACE, numbers).repartition(tasks, _PLACE), Homes(many, tasks, found)


def _received(frame: Any, heard: Callable[[int], Any] | None) -> list[Any]:
    """The rows that the tasks sent. A client of Connect, which hears of no task, counts the parts that have come: in
    their order, as fast as the slowest before them."""
    if heard is None or not _cluster.connected(frame.sparkSession):
        return list(frame.collect())
    got: list[Any] = []
    parts: set[int] = set()
    for row in frame.toLocalIterator():
        got.append(row)
        if row[0] not in parts:
            parts.add(row[0])
            heard(len(parts))
    return got


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
    """Fits the parts that this task's rows are, one after another, and gives each as rows of 256 KiB."""
    import os
    import tempfile

    import pyarrow as pa
    from pyspark import TaskContext

    held = [b for b in batches if b.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held)
    del held
    task, seen, homes = pickle.loads(given)
    pickle.loads(task.base)  # what it imports all tasks import at once, and the first fit, which runs alone, not again
    folder = os.path.join(tempfile.gettempdir(), f"hora-ensemble-{os.getuid()}-{run}")
    for part, its in parted(table, homes, TaskContext.get().partitionId()):  # type: ignore[union-attr]
        rows = list(_stages.pieces([(part, _fitted(task, part, its.select(seen), folder))]))
        if count is not None:
            count.add((1,))
        for at in range(0, len(rows), _AT_ONCE):
            number, piece, data = zip(*rows[at : at + _AT_ONCE], strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(number, pa.int64()), pa.array(piece, pa.int64()), pa.array(data, pa.binary())],
                names=["part", "piece", "bytes"],
            )


def parted(table: Any, homes: Homes, at: int) -> Any:
    """The members that a task's rows are of, each with its rows."""
    if homes.places is None:  # any rows will do: they are dealt in turn
        mine = range(at, homes.many, homes.tasks)
        for i, part in enumerate(mine):
            its = table if len(mine) == 1 else table.take(np.arange(i, table.num_rows, len(mine)))
            if its.num_rows:
                yield part, its
        return
    part_of = {place: part for part, place in enumerate(homes.places)}
    numbers = table.column(_PLACE).to_numpy()
    if len(found := np.unique(numbers)) > 1:  # each member's rows beside each other, in the order in which they came
        order = np.argsort(numbers, kind="stable")
        table, numbers = table.combine_chunks().take(order), numbers[order]
    begin = 0
    for number, end in zip(found.tolist(), np.searchsorted(numbers, found, "right").tolist(), strict=True):
        yield part_of[number], table.slice(begin, end - begin)
        begin = end


def _fitted(task: Any, part: int, table: Any, folder: str) -> bytes:
    """What the driver is sent of a member."""
    from ._tables import columns_of

    try:
        columns = columns_of(table, None, _WHO)
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
    return len(head).to_bytes(8, "little") + head + blob


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


def _deal(
    frame: Any, settings: dict[str, Any], rows: int, values: list[tuple[Any, int]] | None = None
) -> tuple[Any, list[list[int]]]:
    """The frame with the number of each row's member, or without where rows go in turn; and which partitions each
    member is of. values: of the column to split by, with their rows, where they are known."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    n, by, least = settings["n"], settings["by"], settings["min_rows"]
    if by == "columns":
        everywhere = F.explode(F.array(*[F.lit(p) for p in range(n)]))
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
        return frame.withColumn(_PLACE, F.pmod(at, F.lit(len(merged)))), merged
    frame, home, counts = _homes(frame, by, n, values)
    merged = _plan.merge(counts, least, why_empty(by, rows))
    member = {p: i for i, m in enumerate(merged) for p in m}
    members = F.element_at(_listed([member.get(p, 0) for p in range(n)]), (home + 1).cast("int"))
    return frame.withColumn(_PLACE, members).drop(_HOME), merged


def _homes(frame: Any, by: str, n: int, known: list[tuple[Any, int]] | None = None) -> tuple[Any, Any, list[int]]:
    """The frame, a column of it with the partition of each row, and how many rows each partition has: the column's
    values are dealt in turn, in their order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    column = F.col(f"`{by}`")
    values = frame.groupBy(column.alias(_VALUE)).agg(F.count(F.lit(1)).alias(_COUNT))
    found = known or values.limit(_VALUES + 1).collect()
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
    given = [r[0] for r in found]
    keys = _listed(given) if {type(v) for v in given} == {int} else F.array(*[F.lit(v) for v in given])
    return frame, F.element_at(F.map_from_arrays(keys, _listed(order.tolist())), column), counts


def _placed(members: Any, many: int) -> Any:
    from pyspark.sql import functions as F

    return F.element_at(_listed(places(many)), (members + 1).cast("int"))


def _listed(numbers: Sequence[int]) -> Any:
    """An array of whole numbers, said in one word with Spark: each literal by itself would be a call."""
    from pyspark.sql import functions as F

    return F.expr(f"array({', '.join(map(str, numbers))})")


def places(many: int, tasks: int = 0) -> list[int]:
    """For each of many members a number of its own that Spark's hash takes to the partition of its turn among tasks of
    them; without tasks each has a partition that is no other's."""
    tasks = tasks or many
    found = [-1] * many
    least = list(range(tasks))  # of each partition's members the first that has no number
    left, number = many, 0
    while left:
        at = _murmur(number) % tasks
        if least[at] < many:
            found[least[at]] = number
            least[at] += tasks
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
