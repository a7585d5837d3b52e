"""SQL that trains: `select train_xgboost(features, label, '-num_round 10') as (model_id, model) from …`, one model a
reducer."""

from __future__ import annotations

import difflib
import pickle
import re
import threading
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, HoraError
from . import _frames, _packages, _stages, _trainers, _travel

_WHO = "sql"
_REDUCERS = ("mapred.reduce.tasks", "mapreduce.job.reduces")
_CALL = re.compile(r"\btrain_\w*\s*\(", re.IGNORECASE)
_SELECT = re.compile(r"\bselect\s+$", re.IGNORECASE)
_AS = re.compile(r"\s*as\s*\(([^()]*)\)", re.IGNORECASE)
_FROM = re.compile(r"\s*from\b", re.IGNORECASE)
_UNION = re.compile(r"(?<!\w)(?:union|intersect|except|minus)\b", re.IGNORECASE)
_SET = re.compile(r"^\s*set\s+([\w.]+)\s*=\s*(.*?)\s*$", re.IGNORECASE | re.DOTALL)
_WITH = re.compile(r"\bwith\s+", re.IGNORECASE)
_NAMED = re.compile(r"\s*[\w`]+\s*(?:\([^()]*\)\s*)?as\s*\(", re.IGNORECASE)
_CREATE = re.compile(
    r"^\s*create\s+(?:or\s+replace\s+)?table\s+(?:if\s+not\s+exists\s+)?[\w.`]+\s+(?=as\b)", re.IGNORECASE
)


def register_sql(spark: Any) -> Sql:
    """What runs SQL on a session and knows trainers too; `spark.sql` itself stays as it is.

    >>> sql = hora.spark.register_sql(spark)
    >>> sql("set mapred.reduce.tasks=4")
    >>> sql('''create table models as
    ...     select train_xgboost(features, label, '-objective multi:softmax -num_class 10 -num_round 10') as (model_id, model)
    ...     from (select features, label from digits cluster by rand(43)) t''')
    >>> sql("select id, predict_model(model, features) as digit from digits cross join models")
    """
    if not hasattr(spark, "sql") or not hasattr(spark, "conf"):
        raise ArgumentError(f"register_sql: {spark!r} is no SparkSession; give the session")
    _trainers.register_predictions(spark)
    return Sql(spark)


_locks: dict[str, threading.Lock] = {}
_making = threading.Lock()


def _lock_of(spark: Any) -> threading.Lock:
    """The session's own, whoever has registered SQL on it and by which object."""
    classic = getattr(spark, "_jsparkSession", None)
    name = spark.session_id if classic is None else classic.sessionUUID()
    with _making:
        return _locks.setdefault(str(name), threading.Lock())


class Sql:
    """Runs SQL: `sql(text)`. `sql.register(name, function)` adds a trainer for train_classifier and train_regressor."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.functions: dict[str, Callable[..., Any]] = {}
        self.reducers: int | None = None
        self._views = 0
        self._lock = _lock_of(spark)  # settings of the session change while a training runs

    def register(self, name: str, function: Callable[..., Any]) -> None:
        """`'-fn name'` of train_classifier and train_regressor: function(columns, options) returns a fitted model."""
        if not name.isidentifier():
            raise ArgumentError(f"sql.register: {name!r} is no name; use letters, digits and _")
        if not callable(function):
            raise ArgumentError(
                f"sql.register: {name!r} is a {type(function).__name__}; give a function of (columns, options)"
            )
        self.functions[name] = function

    def __call__(self, text: str) -> Any:
        """What the last statement of the text gives; statements are separated by semicolons."""
        found = None
        for statement in statements(text):
            found = self._one(statement)
        if found is None:
            raise ArgumentError("sql: the text has no statement")
        return found

    def _one(self, text: str) -> Any:
        setting = _SET.match(text)
        if setting and setting[1].lower() in _REDUCERS:
            if not setting[2].lstrip("-").isdigit() or int(setting[2]) < -1 or setting[2] == "0":
                raise ArgumentError(
                    f"sql: {setting[1]} is {setting[2]!r}; give the number of models, 1 or more, or -1 for Spark's own number"
                )
            self.reducers = int(setting[2]) if int(setting[2]) > 0 else None
            return self.spark.createDataFrame([(setting[1], setting[2])], "key string, value string")
        text = self._create(text)
        made: list[str] = []
        try:
            while (found := find(text)) is not None:
                view = self._train(found)
                made.append(view)
                text = f"{text[: found.start]}select * from {view}{text[found.end :]}"
            return self.spark.sql(text)
        finally:
            if _CREATE.match(text) or text.lstrip().lower().startswith(("create table", "insert")):
                for view in made:  # a table has the rows by now
                    self.spark.catalog.dropTempView(view)

    def _create(self, text: str) -> str:
        """`create table t as …` makes a table of Spark's own, without Hive too."""
        found = _CREATE.match(text)
        if found is None or self.spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive":
            return text
        return f"{found[0]}using {self.spark.conf.get('spark.sql.sources.default', 'parquet')} {text[found.end() :]}"

    def _train(self, call: Call) -> str:
        train = _trainers.trainer(call.name, call.options, self.functions)
        source = self.spark.sql(
            f"{call.named}select {call.arguments[0]} as features, {call.arguments[1]} as label {call.source}"
        )
        source = source.select(*_frames.taken(source, ["features", "label"], f"sql: {call.name}"))
        if getattr(train, "asks", False):
            train.told(*source.selectExpr("min(label)", "max(label)").first(), call.name)
        blob = _travel.pickled_with_code(train, "the trainer")
        _packages.check(self.spark, [*train.packages, *_travel.packages(blob)], f"sql: {call.name}")
        given = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}  # which would merge reducers
        if self.reducers is not None:
            given["spark.sql.shuffle.partitions"] = str(self.reducers)
        with self._lock:
            before = {k: self.spark.conf.get(k, None) for k in given}
            try:
                for k, v in given.items():
                    self.spark.conf.set(k, v)
                rows = source.mapInArrow(make(blob, call.name), "part long, piece long, bytes binary").collect()
            except Exception as e:
                said = _frames.explained(e, f"sql: {call.name}")
                if said is e:
                    raise
                raise said from e
            finally:
                for k, v in before.items():
                    self.spark.conf.unset(k) if v is None else self.spark.conf.set(k, v)
        models = []
        for part, told in sorted(_stages.whole((r[0], r[1], r[2]) for r in rows).items()):
            if told[:1] == b"!":
                raise HoraError(f"sql: {call.name}: reducer {part}: {told[1:].decode()}")
            models.append((f"{call.name}-{part:05d}", bytearray(told[1:])))
        if not models:
            raise ArgumentError(f"sql: {call.name}: the rows to train on are none")
        self._views += 1
        view = f"hora_sql_{id(self):x}_{self._views}"
        names = call.names
        self.spark.createDataFrame(models, f"`{names[0]}` string, `{names[1]}` binary").createOrReplaceTempView(view)
        return view


def make(blob: bytes, name: str) -> Any:
    """What a reducer does. Nested, so that it travels by value."""

    def reduce(batches: Any) -> Any:
        from hora.spark._sql import in_task

        yield from in_task(blob, name, batches)

    return reduce


def in_task(blob: bytes, name: str, batches: Any) -> Any:
    """One model of this reducer's rows, in rows of 256 KiB; after "!" a sentence, after "=" a model."""
    import pyarrow as pa
    from pyspark import TaskContext

    from . import _work
    from ._ensemble import check_label
    from ._tables import columns_of

    held = [b for b in batches if b.num_rows]
    if not held:
        return
    try:
        columns = columns_of(pa.Table.from_batches(held), None, name)
        check_label(columns, "label")
        told = b"=" + pickle.loads(blob)(columns)
    except Exception as e:
        told = b"!" + _work.say(e).encode()
    part = TaskContext.get().partitionId()  # type: ignore[union-attr]
    for row in _stages.pieces([(part, told)]):
        yield pa.RecordBatch.from_arrays(
            [pa.array([row[0]], pa.int64()), pa.array([row[1]], pa.int64()), pa.array([row[2]], pa.binary())],
            names=["part", "piece", "bytes"],
        )


def masked(text: str) -> tuple[str, str]:
    """The text without comments, and the same with what is quoted blanked; both of one length."""
    out, blank = [], []
    at = 0
    while at < len(text):
        c = text[at]
        if text.startswith("--", at):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            out.append(" " * (end - at))
            blank.append(" " * (end - at))
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            if end < 0:
                raise ArgumentError("sql: a comment /* has no end; close it with */")
            end += 2
            kept = text[at:end] if text.startswith("/*+", at) else " " * (end - at)  # a hint is none
            out.append(kept)
            blank.append(" " * (end - at))
        elif c in "'\"`":
            end = at + 1
            while end < len(text) and text[end] != c:
                end += 2 if text[end] == "\\" and c != "`" else 1
            if end >= len(text):
                raise ArgumentError(f"sql: a text that begins with {c} has no end: {text[at : at + 40]!r}")
            end += 1
            out.append(text[at:end])
            blank.append(c + "x" * (end - at - 2) + c)
        else:
            end = at + 1
            out.append(c)
            blank.append(c)
        at = end
    return "".join(out), "".join(blank)


def statements(text: str) -> list[str]:
    """The statements of a text, without comments."""
    clean, blank = masked(text)
    found, start = [], 0
    for at in [*(i for i, c in enumerate(blank) if c == ";"), len(blank)]:
        if clean[start:at].strip():
            found.append(clean[start:at].strip())
        start = at + 1
    return found


class Call:
    """`select train_…(…) as (…) from …` inside a statement."""

    def __init__(
        self, name: str, arguments: list[str], names: tuple[str, str], source: str, start: int, end: int
    ) -> None:
        self.name, self.arguments, self.names, self.source, self.start, self.end = (
            name,
            arguments,
            names,
            source,
            start,
            end,
        )
        self.options = _text(arguments[2]) if len(arguments) > 2 else ""
        self.named = ""  # the queries of a `with` that stand before it


def _text(argument: str) -> str:
    argument = argument.strip()
    if len(argument) < 2 or argument[0] not in "'\"" or argument[-1] != argument[0]:
        raise ArgumentError(f"sql: the options {argument!r} are no quoted text; write them as '-num_round 10'")
    return argument[1:-1]


def find(text: str) -> Call | None:
    """The first trainer that a statement calls."""
    clean, blank = masked(text)
    # Tables and columns may be called so too: a trainer that there is not stands behind select.
    calls = (c for c in _CALL.finditer(blank) if _name(c) in _trainers.NAMES or _SELECT.search(blank[: c.start()]))
    call = next(calls, None)
    if call is None:
        return None
    name = _name(call)
    if name not in _trainers.NAMES:
        near = difflib.get_close_matches(name, _trainers.NAMES, 3, 0.5)
        raise ArgumentError(
            f"sql: there is no trainer {name}; "
            + (f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_trainers.NAMES)}")
        )
    select = _SELECT.search(blank[: call.start()])
    if select is None:
        raise ArgumentError(
            f"sql: {name} stands directly behind select and alone there; join its models with others in a select around it"
        )
    close = _closing(blank, call.end() - 1, name)
    arguments = _split(clean, blank, call.end(), close)
    if len(arguments) not in (2, 3):
        raise ArgumentError(
            f"sql: {name} takes features, label and, quoted, options; it is given {len(arguments)} argument{'s' * (len(arguments) != 1)}"
        )
    names, after = ("model_id", "model"), close + 1
    said = _AS.match(blank, after)
    if said is not None:
        given = [n.strip().strip("`") for n in clean[said.start(1) : said.end(1)].split(",")]
        if len(given) != 2 or not all(given):
            raise ArgumentError(f"sql: {name} gives two columns; say as (model_id, model)")
        names, after = (given[0], given[1]), said.end()
    if _FROM.match(blank, after) is None:
        raise ArgumentError(
            f"sql: behind {name}(…) comes as (model_id, model) and then from; here comes {clean[after : after + 30].strip()!r}"
        )
    end, depth = after, 0
    while end < len(blank) and depth >= 0 and not (depth == 0 and _UNION.match(blank, end)):
        depth += (blank[end] == "(") - (blank[end] == ")")
        end += depth >= 0
    found = Call(name, arguments, names, clean[after:end], select.start(), end)
    found.named = _named(clean, blank, select.start())
    return found


def _name(call: re.Match[str]) -> str:
    return call[0].partition("(")[0].strip().lower()


def _named(clean: str, blank: str, before: int) -> str:
    """`with a as (…), b as (…) `, as far as it stands before a place."""
    found = next(
        (
            m
            for m in _WITH.finditer(blank, 0, before)
            if blank.count("(", 0, m.start()) == blank.count(")", 0, m.start())
        ),
        None,
    )
    if found is None:
        return ""
    parts, at = [], found.end()
    while (one := _NAMED.match(blank, at)) is not None:
        end = _closing(blank, one.end() - 1, "as")
        if end > before:
            break
        parts.append(clean[at : end + 1])
        rest = blank[end + 1 :].lstrip()
        at = len(blank) - len(rest) + 1
        if not rest.startswith(","):
            break
    return f"with {', '.join(parts)} " if parts else ""


def _closing(blank: str, at: int, name: str) -> int:
    depth = 0
    for i in range(at, len(blank)):
        depth += (blank[i] == "(") - (blank[i] == ")")
        if not depth:
            return i
    raise ArgumentError(f"sql: the bracket behind {name} is not closed")


def _split(clean: str, blank: str, start: int, end: int) -> list[str]:
    """What is between the commas that are in no bracket."""
    found, depth, begun = [], 0, start
    for i in range(start, end):
        depth += (blank[i] == "(") - (blank[i] == ")")
        if blank[i] == "," and not depth:
            found.append(clean[begun:i].strip())
            begun = i + 1
    last = clean[begun:end].strip()
    return [*found, last] if found or last else []
