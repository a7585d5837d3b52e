"""Folders of estimators and of fitted ensembles: `metadata/`, as Spark's own have, and `data/`, pickles in rows of 256
KiB.

Written through Spark where a session is active, so onto any of its file systems; else by pyarrow. Both read both.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .. import _version
from ..errors import ArgumentError, HoraError
from . import _cluster, _travel, _votes
from ._params import HAVE_SPARK
from ._tables import Layout

PIECE = 256 << 10
_AT_ONCE = 64  # rows that Spark is given at a time, about 16 MiB
_FETCHED = 16 << 20  # bytes of rows that Spark is asked for at a time
_LAST = -1  # the part that the last model of vote "stack" is

if HAVE_SPARK:
    from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter
else:

    class MLWriter:  # type: ignore[no-redef]
        shouldOverwrite = False

        def overwrite(self) -> MLWriter:
            self.shouldOverwrite = True
            return self

    class MLReader:  # type: ignore[no-redef]
        pass


def pieces(parts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, bytes]]:
    """Rows of at most 256 KiB."""
    for part, blob in parts:
        for i, at in enumerate(range(0, max(1, len(blob)), PIECE)):
            yield part, i, blob[at : at + PIECE]


def whole(rows: Iterable[tuple[int, int, bytes]]) -> dict[int, bytes]:
    """The same put together, in whatever order the rows come."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for part, i, piece in rows:
        found.setdefault(part, []).append((i, bytes(piece)))
    return {part: b"".join(p for _, p in sorted(some)) for part, some in found.items()}


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def save(self, path: str) -> None:
        """Writes the folder."""
        meta, parts = self.contents()
        spark = (self._sparkSession or _cluster.active_session()) if HAVE_SPARK else None
        if spark is None:
            _save_here(self.instance, path, meta, parts, self.shouldOverwrite)
        else:
            _save_there(spark, self.instance, path, meta, parts, self.shouldOverwrite)

    saveImpl = save


class EstimatorWriter(_Writer):
    """Of PartitionEnsemble."""

    def contents(self) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
        """What the metadata has besides the Params, and the blobs."""
        i = self.instance
        parts = [(0, _travel.pickled_with_code(i.base, "base"))] + (
            [(_LAST, _travel.pickled_with_code(i.final, "final"))] if i.final is not None else []
        )
        return {"hora": {"version": _version.__version__, "kind": "estimator"}}, parts


class ModelWriter(_Writer):
    """Of PartitionEnsembleModel."""

    def contents(self) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
        """What the metadata has besides the Params, and the blobs."""
        e: _votes.Ensemble = self.instance._votes
        said = {
            "version": _version.__version__, "kind": "ensemble", "label": e.label, "vote": e.vote,
            "names": list(e.names),
            "layout": [list(e.layout.names), list(e.layout.widths)], "classes": _out(e.classes), "report": e.report,
            "members": [{"classes": _out(m.classes), "encoded": m.encoded, "subset": m.subset, "weight": m.weight} for m in e.members],
        }  # fmt: skip
        parts = [(i, m.blob) for i, m in enumerate(e.members)] + ([(_LAST, e.final)] if e.final is not None else [])
        return {"hora": said}, parts


def _out(classes: np.ndarray | None) -> Any:
    return None if classes is None else [classes.dtype.str if classes.dtype.kind != "O" else "O", classes.tolist()]


def _in(said: Any) -> np.ndarray | None:
    return None if said is None else np.array(said[1], dtype=said[0])


def _save_here(instance: Any, path: str, meta: dict[str, Any], parts: list[tuple[int, bytes]], over: bool) -> None:
    pa = _pyarrow("save")
    import pyarrow.parquet as pq

    path = _plain(path)
    if os.path.exists(path) and not over:
        raise ArgumentError(f"save: {path} is there already; remove it, or say write().overwrite().save(path)")
    os.makedirs(os.path.join(path, "metadata"), exist_ok=True)
    os.makedirs(os.path.join(path, "data"), exist_ok=True)
    for old in [
        *glob.glob(os.path.join(glob.escape(path), "metadata", "part-*")),
        *glob.glob(os.path.join(glob.escape(path), "data", "*.parquet")),
    ]:
        os.remove(old)
    part, number, piece = zip(*pieces(parts), strict=True)
    meta = meta | {"hora": meta["hora"] | {"rows": len(part)}}
    table = pa.table(
        {
            "part": pa.array(part, pa.int64()),
            "piece": pa.array(number, pa.int64()),
            "bytes": pa.array(piece, pa.binary()),
        }
    )
    pq.write_table(table, os.path.join(path, "data", "part-00000.parquet"), compression="snappy")
    said = {
        "class": f"{type(instance).__module__}.{type(instance).__name__}", "timestamp": int(time.time() * 1000),
        "sparkVersion": "3.5.0",
        "uid": getattr(instance, "uid", f"{type(instance).__name__}_{os.urandom(6).hex()}"),
        "paramMap": {getattr(k, "name", k): v for k, v in instance._paramMap.items()},
        "defaultParamMap": {getattr(k, "name", k): v for k, v in instance._defaultParamMap.items()}, **meta,
    }  # fmt: skip
    with open(os.path.join(path, "metadata", "part-00000"), "w") as f:
        f.write(json.dumps(said, default=_plainly) + "\n")
    for folder in ("metadata", "data"):
        with open(os.path.join(path, folder, "_SUCCESS"), "w"):
            pass


def _plainly(value: Any) -> Any:
    return (
        value.item()
        if isinstance(value, np.generic)
        else value.tolist()
        if isinstance(value, np.ndarray)
        else str(value)
    )


def _save_there(
    spark: Any, instance: Any, path: str, meta: dict[str, Any], parts: list[tuple[int, bytes]], over: bool
) -> None:
    meta = json.loads(json.dumps(meta, default=_plainly))
    text = json.loads(DefaultParamsWriter._get_metadata_to_save(instance, spark, meta))
    write_saved(spark, path, text, "hora", parts, over)


def write_saved(
    spark: Any, path: str, meta: dict[str, Any], own: str, parts: list[tuple[int, bytes]], over: bool
) -> None:
    """Metadata and blobs, through Spark. own: the key of the metadata under which is said how many rows the blobs make.

    The rows go to Spark some at a time: it takes no task of more than 128 MiB, and a client of Connect no message of
    more.
    """
    how = "overwrite" if over else "error"
    rows = list(pieces(parts))
    meta = meta | {own: meta[own] | {"rows": len(rows)}}
    try:
        spark.createDataFrame([(json.dumps(meta),)], "value string").coalesce(1).write.mode(how).text(
            os.path.join(path, "metadata")
        )
    except Exception as e:
        if "PATH_ALREADY_EXISTS" in str(e):
            raise ArgumentError(
                f"save: {path} is there already; remove it, or say write().overwrite().save(path)"
            ) from None
        raise
    for at in range(0, len(rows), _AT_ONCE):
        frame = spark.createDataFrame(rows[at : at + _AT_ONCE], "part long, piece long, bytes binary")
        frame.coalesce(1).write.mode("append" if at else how).parquet(os.path.join(path, "data"))


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow

        return pyarrow
    except ImportError:
        raise HoraError(
            f"{what}: folders of models are Parquet, which needs the package pyarrow here; run `pip install pyarrow`"
        ) from None


def _plain(path: str) -> str:
    path = str(path)
    if path.startswith("file:"):
        return (
            path.removeprefix("file:").replace("///", "/", 1)
            if path.startswith("file:///")
            else path.removeprefix("file:")
        )
    if "://" in path or path.startswith("dbfs:"):
        raise ArgumentError(
            f"{path} lies on a file system that Spark reads; start a Spark session first, or give a path of this machine"
        )
    return path


def metadata(path: str, spark: Any = None) -> dict[str, Any]:
    """What a saved folder says of itself, whoever wrote it."""
    spark = spark or (_cluster.active_session() if HAVE_SPARK else None)
    if spark is not None:
        from pyspark.errors import AnalysisException

        try:
            return json.loads(spark.read.text(os.path.join(path, "metadata")).first()[0])
        except AnalysisException as error:
            raise ArgumentError(f"load: {path} has no metadata/part-00000; give a folder that save wrote") from error
    found = sorted(glob.glob(os.path.join(glob.escape(_plain(path)), "metadata", "part-*")))
    if not found:
        raise ArgumentError(f"load: {_plain(path)} has no metadata/part-00000; give a folder that save wrote")
    with open(found[0]) as f:
        return json.loads(f.readline())


def read_saved(path: str, spark: Any = None, own: str = "hora") -> tuple[dict[str, Any], dict[int, bytes]]:
    """A folder's metadata and blobs."""
    spark = spark or (_cluster.active_session() if HAVE_SPARK else None)
    if spark is not None:
        from pyspark.errors import AnalysisException

        meta = _known(metadata(path, spark), path, own)
        try:
            rows = spark.read.parquet(os.path.join(path, "data")).select("part", "piece", "bytes")
        except AnalysisException:  # no file is there: what is missing is said by whoever wants it
            return meta, {}
        return meta, whole(_fetched(rows, meta[own], path))
    _pyarrow("load")
    import pyarrow.parquet as pq

    path = _plain(path)
    meta = _known(metadata(path), path, own)
    files = sorted(glob.glob(os.path.join(glob.escape(path), "data", "*.parquet")))
    tables = [pq.read_table(f) for f in files]
    _complete(meta[own], path, sum(len(t) for t in tables))
    return meta, whole(
        row
        for t in tables
        for row in zip(t["part"].to_pylist(), t["piece"].to_pylist(), t["bytes"].to_pylist(), strict=True)
    )


def _fetched(rows: Any, said: dict[str, Any], path: str) -> Iterator[tuple[int, int, bytes]]:
    """The rows some at a time: Spark reads up to 128 MiB of files in one task, and takes several times that in an
    executor to send them."""
    from pyspark.sql import functions as F

    keys = sorted((r[0], r[1], r[2]) for r in rows.select("part", "piece", F.length("bytes")).collect())
    _complete(said, path, len(keys))
    part, piece = F.col("part"), F.col("piece")
    while keys:
        n, size = 1, keys[0][2]
        while n < len(keys) and size + keys[n][2] <= _FETCHED:
            size += keys[n][2]
            n += 1
        (p, i, _), (q, j, _), keys = keys[0], keys[n - 1], keys[n:]
        some = ((part > p) | ((part == p) & (piece >= i))) & ((part < q) | ((part == q) & (piece <= j)))
        yield from ((r[0], r[1], r[2]) for r in rows.where(some).collect())


def _complete(said: dict[str, Any], path: str, found: int) -> None:
    if found and found < said.get("rows", 0):
        raise HoraError(
            f"load: {path} lacks {said['rows'] - found} of {said['rows']} rows; a save that did not end leaves such"
        )


def _known(meta: dict[str, Any], path: str, own: str) -> dict[str, Any]:
    if own not in meta:
        raise ArgumentError(f"load: {path} holds a {meta.get('class', 'thing')} that hora did not write")
    return meta


def ensemble(meta: dict[str, Any], blobs: dict[int, bytes]) -> _votes.Ensemble:
    """A fitted ensemble from what `read` found."""
    said = meta["hora"]
    if said["kind"] != "ensemble":
        raise ArgumentError(
            f"the folder holds a {meta['class']}, not a fitted ensemble; load it with PartitionEnsemble.load"
        )
    lost = [i for i in range(len(said["members"])) if i not in blobs]
    if lost:
        raise HoraError(f"load: the folder lacks the models {lost[:10]}; a save that did not end leaves such")
    members = [
        _votes.Member(blobs[i], _in(m["classes"]), m["encoded"], m["subset"], m["weight"])
        for i, m in enumerate(said["members"])
    ]
    layout = Layout(*map(tuple, said["layout"]))
    return _votes.Ensemble(
        members,
        layout,
        said["label"],
        said["vote"],
        _in(said["classes"]),
        blobs.get(_LAST),
        said["report"],
        tuple(said["names"]),
    )


def _fill(instance: Any, meta: dict[str, Any]) -> Any:
    if HAVE_SPARK:
        instance._resetUid(meta["uid"])
        DefaultParamsReader.getAndSetParams(instance, meta)
    else:
        instance._set(**meta["paramMap"])
        instance._setDefault(**meta["defaultParamMap"])
    return instance


class ModelReader(MLReader):
    """Of PartitionEnsembleModel."""

    def load(self, path: str) -> Any:
        """Reads the folder."""
        from ._ensemble import PartitionEnsembleModel

        meta, blobs = read_saved(path, getattr(self, "_sparkSession", None))
        return _fill(PartitionEnsembleModel(ensemble(meta, blobs)), meta)


class EstimatorReader(MLReader):
    """Of PartitionEnsemble."""

    def load(self, path: str) -> Any:
        """Reads the folder."""
        import pickle

        from ._ensemble import PartitionEnsemble

        meta, blobs = read_saved(path, getattr(self, "_sparkSession", None))
        if meta["hora"]["kind"] != "estimator":
            raise ArgumentError(f"{path} holds a fitted ensemble; load it with PartitionEnsembleModel.load")
        found = PartitionEnsemble(pickle.loads(blobs[0]), final=pickle.loads(blobs[_LAST]) if _LAST in blobs else None)
        found._paramMap.clear()
        return _fill(found, meta)
