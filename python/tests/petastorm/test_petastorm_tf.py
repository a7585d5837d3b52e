"""Petastorm's names with TensorFlow: datasets, also for graphs of TensorFlow 1, and tensors of a graph."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from beside import ROOT, folder

CODE = """
import sys

import numpy as np
import pandas as pd
import tensorflow as tf
from petastorm import make_batch_reader, make_reader
from petastorm.ngram import NGram
from petastorm.spark import make_spark_converter
from petastorm.tf_utils import date_to_nsec_from_epoch, make_namedtuple_tf_ngram, make_petastorm_dataset, tf_tensors

from datetime import date, datetime
from petastorm.unischema import Unischema, UnischemaField
assert date_to_nsec_from_epoch(date(1970, 1, 2)) == 86400 * 10**9 == date_to_nsec_from_epoch(datetime(1970, 1, 2))
pair = Unischema("Pair", [UnischemaField(n, np.int64, (), None, False) for n in ("at", "x")])
grams = NGram({0: [pair.at, pair.x], 2: [pair.x]}, 1, pair.at)
grams.resolve_regex_field_names(pair)
for rows in (make_namedtuple_tf_ngram(pair, grams, 5, 6, 7), make_namedtuple_tf_ngram(pair, grams, **{"0": {"at": 5, "x": 6}, "2": {"x": 7}})):
    assert rows[0]._asdict() == {"at": 5, "x": 6} and rows[1]._asdict() == {} and rows[2]._asdict() == {"x": 7}, rows

v1 = tf.compat.v1
frame = pd.DataFrame({"id": np.arange(100), "x": [np.full(3, i, "f4") for i in range(100)], "name": [f"n{i}" for i in range(100)]})
converter = make_spark_converter(frame)
with converter.make_tf_dataset(batch_size=30, num_epochs=1) as dataset:
    assert isinstance(dataset, tf.data.Dataset)
    batches = list(dataset)
assert [len(b.id) for b in batches] == [30, 30, 30, 10] and batches[0].x.shape == (30, 3)
assert sorted(int(i) for b in batches for i in b.id) == list(range(100)) and batches[0].name[0].numpy() == b"n%d" % batches[0].id[0]
with converter.make_tf_dataset(batch_size=10, shuffling_queue_capacity=50, cur_shard=0, shard_count=2) as dataset:
    assert all(b.x.shape == (10, 3) for b in dataset.take(20))

with v1.Graph().as_default(), converter.make_tf_dataset(batch_size=20) as dataset, v1.Session() as session:
    following = dataset.make_one_shot_iterator().get_next()
    assert all(len(session.run(following).id) == 20 for _ in range(8))

url = sys.argv[1]
with v1.Graph().as_default(), v1.Session() as session, make_reader(url, schema_fields=["id", "image", "price"], num_epochs=None) as reader:
    row = tf_tensors(reader, shuffling_queue_capacity=20, min_after_dequeue=10)
    assert row.image.shape == (4, 6, 3) and row.price.dtype == tf.string and row.id.shape == ()
    v1.get_default_graph().get_tensor_by_name("random_shuffling_queue_size:0")
    coordinator = v1.train.Coordinator()
    threads = v1.train.start_queue_runners(session, coordinator)
    ids = [int(session.run(row).id) for _ in range(60)]
    coordinator.request_stop()
    session.run(v1.no_op())
assert len(set(ids)) == 60
steps = NGram({0: ["id"], 2: ["id", "image"]}, 1, "id")
with v1.Graph().as_default(), v1.Session() as session, make_reader(url, schema_fields=steps, shuffle_row_groups=False) as reader:
    item = tf_tensors(reader)
    assert list(item) == [0, 1, 2] and item[1] == () and item[2].image.shape == (4, 6, 3)
    got = session.run(item)
    assert got[2].id == got[0].id + 2
with v1.Graph().as_default(), v1.Session() as session, make_batch_reader(converter.file_urls, num_epochs=1, shuffle_row_groups=False) as reader:
    row = tf_tensors(reader)
    assert row.id.shape.as_list() == [None] and row.x.shape.as_list() == [None, None]
    assert session.run(row).x.tolist() == [[i] * 3 for i in range(100)]
    try:
        session.run(row)
    except tf.errors.OutOfRangeError:
        print("the end is the end")
    try:
        tf_tensors(reader, 10, 5)
    except ValueError as e:
        assert "shuffling_queue_capacity can not be used with a reader of batches" in str(e)
import warnings
with make_reader(url, schema_fields=["id"], shuffle_row_groups=False) as reader, warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    twice = [int(r.id) for r in make_petastorm_dataset(reader).repeat(2)]
half = len(twice) // 2
assert half and twice[:half] == twice[half:] and sum("its order is the first one's" in str(w.message) for w in said) == 1, said
try:
    tf_tensors(make_reader(url))
except RuntimeError as e:
    assert "iterate over make_petastorm_dataset(reader)" in str(e)
    print("right")
"""


def env(arrow, tmp_path):
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT / "python/migration"), str(folder("tensorflow")), arrow]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PETASTORM_CACHE_DIR_URL": f"file://{tmp_path}/cache",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def test_datasets_and_tensors(arrow, made, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, made],
        env=env(arrow, tmp_path),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.stdout.endswith("the end is the end\nright\n"), done.stdout + done.stderr[-3000:]


def test_the_example_without_these_names(arrow, launcher, tmp_path):
    import pyarrow as pa

    import hora.dataset

    x = np.random.default_rng(1).normal(size=(2000, 2)).astype("f4")
    table = pa.table({"id": np.arange(2000), "a": x[:, 0], "b": x[:, 1], "label": x @ np.array([2, -1], "f4")})
    hora.dataset.write(table, tmp_path / "data", group=1 << 12)
    command = [
        launcher,
        "run",
        "-np",
        "2",
        "--no-tag",
        sys.executable,
        ROOT / "examples/63-tensorflow-data/train.py",
        tmp_path / "data",
    ]
    settings = env(arrow, tmp_path) | {"HORA_START_TIMEOUT": "120"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=150, check=False)
    assert "6000 rows, each three times: True; at row 2000 of epoch 2" in done.stdout, done.stdout + done.stderr
    assert "loss 0.0000, weights [2.0, -1.0], equal: True" in done.stdout, done.stdout
