"""Petastorm's names on a real Spark: the converter, its cache, and datasets that Spark writes by a schema."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from urllib.parse import urlparse

import beside
import numpy as np
import pytest

import hora.dataset

PARENT = "petastorm.spark.converter.parentCacheDirUrl"
TYPES = ["boolean", "byte", "short", "int", "long", "float", "double", "string"]


@pytest.fixture(autouse=True, scope="module")
def names(spark, tmp_path_factory):
    """The distribution, which the tests' environments have not installed: its folder here, an archive of it in
    tasks."""
    folder = beside.ROOT / "python/migration"
    sys.path.append(str(folder))
    spark.sparkContext.addPyFile(
        shutil.make_archive(str(tmp_path_factory.mktemp("names") / "names"), "zip", folder, "petastorm")
    )


@pytest.fixture
def cache(spark, tmp_path):
    spark.conf.set(PARENT, f"file://{tmp_path}")
    yield tmp_path
    spark.conf.unset(PARENT)


def frame(spark):
    from pyspark.sql import functions as F

    columns = [F.col("id").cast(t).alias(t) for t in TYPES] + [
        F.col("id").cast("string").cast("binary").alias("binary")
    ]
    dates = [
        F.date_add(F.lit("2020-01-01"), F.col("id").cast("int")).alias("date"),
        F.timestamp_seconds(F.col("id") * 3600).alias("timestamp"),
    ]
    lists = [
        F.array(F.col("id").cast("double"), F.lit(0.5)).alias("array"),
        F.array(F.col("id").cast("string")).alias("words"),
    ]
    return spark.range(100, numPartitions=4).select("id", *columns, *dates, *lists)


def test_a_frame_is_written_once_and_read_by_ranks(spark, cache):
    from petastorm.spark import make_spark_converter

    converter = make_spark_converter(frame(spark))
    assert len(converter) == 100 and all(u.startswith("file:///") for u in converter.file_urls)
    assert spark.sparkContext.applicationId in converter.cache_dir_url
    from petastorm import make_batch_reader

    batches = list(make_batch_reader(converter.file_urls, shuffle_row_groups=False, num_epochs=1))
    ids = np.concatenate([b.id for b in batches])
    assert sorted(ids.tolist()) == list(range(100))
    first = batches[0]
    kinds = {
        n: getattr(first, n).dtype.str[1:]
        for n in ("boolean", "byte", "short", "int", "long", "float", "double", "timestamp")
    }
    assert kinds == {
        "boolean": "b1",
        "byte": "i1",
        "short": "i2",
        "int": "i4",
        "long": "i8",
        "float": "f4",
        "double": "f4",
        "timestamp": "M8[ns]",
    }
    assert (
        first.array.dtype == np.float32
        and first.array.tolist() == [[i, 0.5] for i in first.id]
        and first.words.tolist() == [[str(i)] for i in first.id]
    )
    assert first.binary.tolist() == [str(i).encode() for i in first.id] and first.string.tolist() == [
        str(i) for i in first.id
    ]
    assert (first.date == np.datetime64("2020-01-01") + first.id).all() and (
        first.timestamp.astype("i8") == first.id * 3600 * 10**9
    ).all()
    seen = []
    for rank in range(3):
        chosen = {"schema_fields": ["id", "double", "array"], "cur_shard": rank, "shard_count": 3}
        with converter.make_torch_dataloader(batch_size=10, num_epochs=2, **chosen) as loader:
            batches = list(loader)
        assert batches[0]["array"].shape == (10, 2) and len(batches) == 8
        seen += [i for b in batches for i in b["id"].tolist()]
    assert sorted(seen) == sorted([*range(100)] * 2)


def test_the_cache(spark, cache, tmp_path):
    from petastorm.spark import make_spark_converter, register_delete_dir_handler

    df = spark.range(10)
    first = make_spark_converter(df)
    assert make_spark_converter(spark.range(10)).cache_dir_url == first.cache_dir_url
    others = [
        make_spark_converter(spark.range(11)), make_spark_converter(df, compression_codec="snappy"),
        make_spark_converter(df, dtype=None),
        make_spark_converter(df, parquet_row_group_size_bytes=8 << 20),
    ]  # fmt: skip
    assert len({c.cache_dir_url for c in [first, *others]}) == 5 and "snappy" in others[1].file_urls[0]
    first.delete()
    assert not os.path.exists(urlparse(first.cache_dir_url).path)
    again = make_spark_converter(df)
    assert again.cache_dir_url != first.cache_dir_url
    gone = []
    register_delete_dir_handler(gone.append)
    again.delete()
    register_delete_dir_handler(None)
    assert gone == [again.cache_dir_url]
    spark.conf.unset(PARENT)
    with pytest.raises(ValueError, match="Please set the spark config petastorm.spark.converter.parentCacheDirUrl"):
        make_spark_converter(df)
    spark.conf.set(PARENT, str(tmp_path))
    with pytest.raises(ValueError, match="A scheme-less directory url"):
        make_spark_converter(df)
    with pytest.raises(ValueError, match="dtype float16 is not supported. Use 'float32' or float64"):
        make_spark_converter(df, dtype="float16")


def test_vectors_precision_and_saved_frames(spark, cache, tmp_path):
    from petastorm.spark import make_spark_converter
    from pyspark.ml.linalg import Vectors
    from pyspark.mllib.linalg import Vectors as Older

    df = spark.createDataFrame(
        [(i, Vectors.dense(1.0 * i, 0.1), Older.sparse(3, [1], [1.0 * i])) for i in range(8)], ["id", "new", "old"]
    )
    for dtype, kind in [("float32", "f4"), ("float64", "f8"), (None, "f8")]:
        with make_spark_converter(df, dtype=dtype).make_torch_dataloader(batch_size=8, num_epochs=1) as loader:
            (batch,) = loader
        assert batch["new"].numpy().dtype == kind
        assert np.array_equal(batch["new"].numpy(), np.array([[i, 0.1] for i in batch["id"]], kind))
        assert batch["old"].tolist() == [[0, i, 0] for i in batch["id"]]
    spark.range(100).write.parquet(f"file://{tmp_path}/saved")
    for address in (str(tmp_path / "saved"), f"file://{tmp_path}/saved"):
        assert len(make_spark_converter(address)) == 100
    looked = hora.dataset.read(tmp_path / "saved")
    assert sorted(looked["id"].tolist()) == list(range(100))


def test_in_a_task_it_is_refused(spark, cache):
    def work(_):
        from petastorm.spark.spark_dataset_converter import _get_spark_session

        try:
            _get_spark_session()
        except RuntimeError as e:
            return str(e)

    (said,) = spark.sparkContext.parallelize([0], 1).map(work).collect()
    assert "make_spark_converter is called in a task of Spark: call it on the driver" in said


def test_a_dataset_that_spark_writes_by_a_schema(spark, tmp_path):
    from petastorm import make_reader
    from petastorm.codecs import NdarrayCodec, ScalarCodec
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.etl.rowgroup_indexers import SingleFieldIndexer
    from petastorm.etl.rowgroup_indexing import build_rowgroup_index
    from petastorm.selectors import SingleIndexSelector
    from petastorm.spark_utils import dataset_as_rdd
    from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
    from pyspark.sql.types import LongType, StringType

    schema = Unischema("S", [
        UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
        UnischemaField("word", np.str_, (), ScalarCodec(StringType()), True),
        UnischemaField("matrix", np.float32, (2, None), NdarrayCodec(), False),
    ])  # fmt: skip
    url = f"file://{tmp_path}/made"
    rows = [
        {"id": i, "word": None if i % 5 == 0 else f"w{i % 3}", "matrix": np.full((2, i % 4 + 1), i, "f4")}
        for i in range(60)
    ]
    with materialize_dataset(spark, url, schema, row_group_size_mb=1):
        spark.createDataFrame([dict_to_spark_row(schema, r) for r in rows], schema.as_spark_schema()).coalesce(
            3
        ).write.parquet(url)
    with make_reader(url, num_epochs=1) as reader:
        read = sorted(reader, key=lambda r: r.id)
    assert [r.id for r in read] == list(range(60)) and [r.word for r in read] == [r["word"] for r in rows]
    assert all(
        np.array_equal(r.matrix, w["matrix"]) and r.matrix.dtype == np.float32 for r, w in zip(read, rows, strict=True)
    )
    build_rowgroup_index(url, spark.sparkContext, [SingleFieldIndexer("ids", "id")])
    with make_reader(url, rowgroup_selector=SingleIndexSelector("ids", [7])) as reader:
        assert 7 in {r.id for r in reader}
    assert sorted(r.id for r in dataset_as_rdd(url, spark, [schema.id]).collect()) == list(range(60))


def test_the_example(spark, cache, capsys, monkeypatch):
    path = beside.ROOT / "examples/60-spark-converter/train.py"
    spec = importlib.util.spec_from_file_location("converter_example", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "converter_example", module)
    spec.loader.exec_module(module)
    module.main()
    out = capsys.readouterr().out
    assert "rank 0: 3000 rows" in out and "rank 1: 3000 rows" in out
    assert "each row once an epoch: True; weights [2.0, -1.0, 0.5], equal: True" in out
