"""Petastorm's readers and loaders on files of its kind and on any others."""

from __future__ import annotations

import datetime
import inspect
import os
from decimal import Decimal

import numpy as np
import pytest
from petastorm_sample import ROWS, row, schema


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """Three files, 21 row groups, 2,050 rows without a schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("plain")
    ids = np.arange(2050)
    table = pa.table({
        "id": ids, "x": np.sin(ids), "label": pa.array(ids % 4, pa.int32()), "text": [f"t{i}" for i in ids],
        "vector": pa.FixedSizeListArray.from_arrays(np.arange(3 * 2050, dtype="f4"), 3),
        "when": pa.array([datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=int(i)) for i in ids]),
        "maybe": pa.array([None if i % 3 == 0 else int(i) for i in ids]), "texts": [[str(i)] for i in ids],
    })  # fmt: skip
    for i, (a, b) in enumerate([(0, 700), (700, 1400), (1400, 2050)]):
        pq.write_table(table[a:b], path / f"{i}.parquet", row_group_size=100)
    return f"file://{path}"


def test_rows_are_what_was_written(made):
    from petastorm import make_reader

    with make_reader(made, shuffle_row_groups=False) as reader:
        rows = list(reader)
    assert [r.id for r in rows] == list(range(ROWS))
    for r in rows:
        want = row(int(r.id))
        assert (
            np.array_equal(r.image, want["image"])
            and r.price == want["price"]
            and isinstance(r.price, Decimal)
            and r.name == want["name"]
        )
        assert (r.matrix is None) == (want["matrix"] is None) and (
            r.matrix is None or np.array_equal(r.matrix, want["matrix"])
        )
        assert type(r.id) is np.int64
    assert rows[0]._fields == ("id", "image", "matrix", "name", "price") and reader.last_row_consumed


def ids(reader):
    with reader:
        return [int(i) for item in reader for i in np.atleast_1d(item.id)]


def test_order_epochs_and_seeds(made, plain):
    from petastorm import make_batch_reader, make_reader

    for make, url, n in ((make_reader, made, ROWS), (make_batch_reader, plain, 2050)):
        first = ids(make(url, schema_fields=["id"], seed=7))
        assert sorted(first) == list(range(n)) and first != sorted(first)
        assert all(
            ids(make(url, schema_fields=["id"], seed=7, workers_count=w, shuffle_rows=True)) == first for w in (1, 4)
        )
        assert ids(make(url, schema_fields=["id"], seed=8)) != first
        twice = ids(make(url, schema_fields=["id"], num_epochs=2, seed=7))
        assert twice[:n] == first and sorted(twice[n:]) == list(range(n)) and twice[n:] != first
        with make(url, schema_fields=["id"], num_epochs=None) as reader:
            assert len([next(reader) for _ in range(500)]) == 500
            reader.reset()
            next(reader)
        with pytest.raises(RuntimeError, match="has stopped"):
            next(reader)


@pytest.mark.parametrize("shards", [3, 4, 22, 60])
def test_shards_are_equal_and_may_be_many(plain, shards):
    """What the original does unequally, or refuses: 21 row groups for as many readers as one likes."""
    from petastorm import make_batch_reader

    parts = [
        ids(make_batch_reader(plain, schema_fields=["id"], cur_shard=i, shard_count=shards)) for i in range(shards)
    ]
    assert sorted(i for p in parts for i in p) == list(range(2050))
    steps = {
        sum(1 for _ in make_batch_reader(plain, schema_fields=["id"], cur_shard=i, shard_count=shards))
        for i in (0, shards - 1)
    }
    assert (
        max(map(len, parts)) - min(map(len, parts)) <= -(-2050 // (len(parts[0]) or 1)) and max(steps) - min(steps) <= 1
    )


def test_fields_predicates_transforms(made, plain):
    from petastorm import TransformSpec, make_batch_reader, make_reader
    from petastorm.predicates import in_intersection, in_lambda, in_negate, in_pseudorandom_split, in_reduce, in_set
    from petastorm.transform import edit_field

    assert next(make_reader(made, schema_fields=["i.*"]))._fields == ("id", "image")
    assert next(make_reader(made, schema_fields=[schema().name, schema().id], shuffle_row_groups=False))._fields == (
        "id",
        "name",
    )
    with pytest.raises(RuntimeError, match="No fields matching"):
        make_reader(made, schema_fields=["nothing"])
    even = in_lambda(["id"], lambda i: i % 2 == 0)
    assert sorted(ids(make_reader(made, predicate=even))) == list(range(0, ROWS, 2))
    assert sorted(
        ids(make_batch_reader(plain, schema_fields=["id"], predicate=in_lambda(["label"], lambda v: v == 3)))
    ) == list(range(3, 2050, 4))
    assert sorted(ids(make_reader(made, predicate=in_set({3, 9, 999}, "id")))) == [3, 9]
    assert sorted(ids(make_batch_reader(plain, predicate=in_set({"t5"}, "text")))) == [5]
    assert sorted(ids(make_reader(made, predicate=in_negate(in_set({0}, "id"))))) == list(range(1, ROWS))
    assert sorted(ids(make_reader(made, predicate=in_reduce([even, in_lambda(["id"], lambda i: i < 9)], all)))) == [
        0,
        2,
        4,
        6,
        8,
    ]
    both = in_reduce([in_set({0, 1}, "label"), in_lambda(["id"], lambda i: i < 9)], all)
    assert sorted(ids(make_batch_reader(plain, predicate=both))) == [0, 1, 4, 5, 8]
    split = [ids(make_batch_reader(plain, predicate=in_pseudorandom_split([0.3, 0.7], k, "text"))) for k in (0, 1)]
    assert sorted(split[0] + split[1]) == list(range(2050)) and 500 < len(split[0]) < 730
    assert in_intersection([1, 2], "l").do_include({"l": [2, 7]}) and not in_intersection([1], "l").do_include(
        {"l": [2]}
    )
    spec = TransformSpec(lambda r: r | {"id": r["id"] * 2}, removed_fields=["image", "matrix", "name", "price"])
    assert sorted(ids(make_reader(made, transform_spec=spec))) == list(range(0, 2 * ROWS, 2))

    def work(frame):
        frame["id"] = frame["id"] + 1
        frame["wide"] = frame["vector"].map(lambda v: np.stack([v, v]))
        return frame[["id", "wide"]]

    spec = TransformSpec(work, [edit_field("wide", np.float32, (2, 3))], selected_fields=["id", "wide"])
    with make_batch_reader(plain, schema_fields=["id", "vector"], transform_spec=spec) as reader:
        batch = next(reader)
        assert batch._fields == ("id", "wide") and batch.wide.shape[1:] == (2, 3)
        assert np.array_equal(batch.wide[0, 1], np.arange(3) + 3 * (batch.id[0] - 1))
    with pytest.raises(ZeroDivisionError):
        list(make_reader(made, transform_spec=TransformSpec(lambda r: 1 // 0)))
    assert sorted(ids(make_batch_reader(plain, filters=[("id", "<", 5)]))) == [0, 1, 2, 3, 4]
    assert list(make_reader(made, predicate=in_lambda(["id"], lambda i: False), num_epochs=None)) == []


def test_batches_have_types(plain):
    from petastorm import make_batch_reader

    with make_batch_reader(plain, shuffle_row_groups=False) as reader:
        batch = next(reader)
    assert batch._fields == ("id", "x", "label", "text", "vector", "when", "maybe", "texts")
    assert batch.texts.tolist() == [[str(i)] for i in batch.id]
    assert (
        batch.id.dtype == np.int64
        and batch.label.dtype == np.int32
        and batch.text.dtype.kind == "U"
        and batch.vector.shape == (97, 3)
        or len(batch.id)
    )
    assert (
        batch.when.dtype == "M8[ns]"
        and np.isnan(batch.maybe[0])
        and batch.maybe[1] == 1
        and batch.vector.shape[1:] == (3,)
    )


def test_columns_with_fields_of_their_own_are_left_out(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import TransformSpec, make_batch_reader
    from petastorm.predicates import in_lambda

    table = pa.table({
        "id": range(6), "s": [{"a": i, "b": f"{i}"} for i in range(6)], "words": [["a"] * i for i in range(6)],
        "deep": [[[1], [2]]] * 6,
        "m": pa.array([[("a", 1)]] * 6, pa.map_(pa.string(), pa.int64())), "raw": [[b"x", b"y"]] * 6,
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    url = f"file://{tmp_path}"
    with pytest.warns(UserWarning, match="left out") as said:
        reader = make_batch_reader(url, shuffle_row_groups=False)
    said = [str(w.message) for w in said]
    assert any("'s'" in w and "hora.dataset.open reads s.a, s.b" in w for w in said) and any(
        "Column deep: it is a list of lists" in w for w in said
    )
    (batch,) = reader
    assert batch._fields == ("id", "words", "raw") and [list(w) for w in batch.words] == [["a"] * i for i in range(6)]
    assert batch.raw.shape == (6, 2) and batch.raw[3].tolist() == [b"x", b"y"]
    spec = TransformSpec(lambda f: f.assign(id=f["words"].map(len)))
    with (
        pytest.warns(UserWarning, match="left out"),
        make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader,
    ):
        assert next(reader).id.tolist() == [0, 1, 2, 3, 4, 5]
    chosen = in_lambda(["words"], lambda words: [len(w) == 3 for w in words])
    with (
        pytest.warns(UserWarning, match="left out"),
        make_batch_reader(url, schema_fields=["id"], predicate=chosen) as reader,
    ):
        assert next(reader).id.tolist() == [3]


def test_predicates_on_folders_names(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import make_batch_reader
    from petastorm.predicates import PredicateBase, in_lambda

    pq.write_to_dataset(
        pa.table({"id": range(60), "key": [f"k{i % 3}" for i in range(60)]}), tmp_path, partition_cols=["key"]
    )
    asked = []

    class Chosen(PredicateBase):  # of single values, as petastorm asks where folders' names decide
        def get_fields(self):
            return {"key"}

        def do_include(self, values):
            asked.append(values["key"])
            return values["key"] in {"k0", "k2"}

    for predicate in (Chosen(), in_lambda(["key"], lambda key: key != "k1")):
        with make_batch_reader(f"file://{tmp_path}", predicate=predicate) as reader:
            assert sorted(i for b in reader for i in b.id.tolist()) == [i for i in range(60) if i % 3 != 1]
    assert set(asked) == {"k0", "k1", "k2"}


def test_threads_share_a_reader(made):
    from concurrent.futures import ThreadPoolExecutor

    from petastorm import make_reader

    with make_reader(made) as reader, ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: next(reader).id, range(ROWS))) == list(range(ROWS))


def test_a_cache_that_cannot_be_deleted_is_no_failure(made, tmp_path, monkeypatch):
    from petastorm import make_reader

    def fails():
        raise OSError("busy")

    cache = {
        "cache_type": "local-disk",
        "cache_location": str(tmp_path),
        "cache_size_limit": 10**6,
        "cache_row_size_estimate": 10,
    }
    with pytest.warns(UserWarning, match="puts nothing into the cache"), make_reader(made, **cache) as reader:
        monkeypatch.setattr(reader.cache, "cleanup", fails)
        next(reader)


def test_options_of_command_lines():
    import argparse

    from petastorm.tools.copy_dataset import args_parser
    from petastorm.tools.spark_session_cli import configure_spark

    class Builder(dict):
        config = dict.__setitem__

        def master(self, name):
            self["master"] = name

    said = args_parser().parse_args(["a", "b", "--master", "local[2]", "--spark-session-config", "x=1", "y=a=b"])
    assert configure_spark(Builder(), said) == {"x": "1", "y": "a=b", "master": "local[2]"}
    with pytest.raises(ValueError, match="WRONG.*key=value"):
        configure_spark(Builder(), args_parser().parse_args(["a", "b", "--spark-session-config", "WRONG"]))
    with pytest.raises(RuntimeError, match="call add_configure_spark_arguments"):
        configure_spark(Builder(), argparse.Namespace())


def test_selectors_and_indexes(made):
    from petastorm import NoDataAvailableError, make_reader
    from petastorm.etl.rowgroup_indexers import FieldNotNullIndexer, SingleFieldIndexer
    from petastorm.etl.rowgroup_indexing import build_rowgroup_index
    from petastorm.selectors import IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector

    with pytest.raises(ValueError, match="has no indexes"):
        make_reader(made, rowgroup_selector=SingleIndexSelector("by_id", [3]))
    build_rowgroup_index(made, None, [SingleFieldIndexer("by_id", "id"), FieldNotNullIndexer("named", "name")])
    one, other = SingleIndexSelector("by_id", [3]), SingleIndexSelector("by_id", [204])
    assert sorted(ids(make_reader(made, rowgroup_selector=one))) == list(range(10))
    assert sorted(ids(make_reader(made, rowgroup_selector=UnionIndexSelector([one, other])))) == [
        *range(10),
        *range(200, 205),
    ]
    with pytest.raises(NoDataAvailableError):
        make_reader(made, rowgroup_selector=IntersectIndexSelector([one, other]))
    with pytest.raises(ValueError, match="not available"):
        make_reader(made, rowgroup_selector=SingleIndexSelector("x", [1]))


def test_ngrams(made):
    from petastorm import make_reader
    from petastorm.ngram import NGram

    grams = NGram({-1: ["id", "name"], 0: ["id"]}, 1, "id")
    with make_reader(made, schema_fields=grams, shuffle_row_groups=False) as reader:
        seen = [(int(g[-1].id), int(g[0].id)) for g in reader]
    assert seen == [(i, i + 1) for i in range(ROWS - 1) if i % 10 != 9]
    assert g_fields(made) == ("id", "name")
    apart = NGram({0: ["id"], 1: ["id"]}, 1, "id", timestamp_overlap=False)
    with make_reader(made, schema_fields=apart, shuffle_row_groups=False) as reader:
        seen = [int(i) for g in reader for i in (g[0].id, g[1].id)]
    assert len(seen) == len(set(seen)) == 204
    parts = [
        {int(g[0].id) for g in make_reader(made, schema_fields=grams, cur_shard=i, shard_count=3)} for i in range(3)
    ]
    assert sum(map(len, parts)) == len(set().union(*parts)) == ROWS - 21


def g_fields(made):
    from petastorm import make_reader
    from petastorm.ngram import NGram

    return next(make_reader(made, schema_fields=NGram({-1: ["id", "name"], 0: ["id"]}, 1, "id")))[-1]._fields


def test_what_cannot_be(made, plain, tmp_path):
    from petastorm import make_batch_reader, make_reader
    from petastorm.ngram import NGram

    for make in (make_reader, make_batch_reader):
        for bad in (None, 123, []):
            with pytest.raises(ValueError):
                make(bad)
        for how, says in [
            ({"cache_type": "bogus"}, "Unknown cache_type"),
            ({"reader_pool_type": "bogus"}, "Unknown reader_pool_type"), ({"num_epochs": 0}, "num_epochs"),
            ({"cur_shard": 1}, "both specified"), ({"cur_shard": 3, "shard_count": 3}, "below the second"),
            ({"predicate": 3}, "PredicateBase"),
        ]:  # fmt: skip
            with pytest.raises(ValueError, match=says):
                make(made, **how)
    with pytest.warns(UserWarning, match="make_batch_reader"), make_reader(plain, shuffle_row_groups=False) as reader:
        assert next(reader).id == 0  # rows by the files' own types
    with pytest.raises(NotImplementedError, match="ngrams"):
        make_batch_reader(plain, schema_fields=NGram({0: ["id"]}, 1, "id"))
    with pytest.raises(ValueError, match="scheme-less"):
        make_batch_reader("/nowhere")
    with pytest.raises(ImportError, match="petastorm.workers_pool.thread_pool is not in hora-petastorm"):
        from petastorm.workers_pool import thread_pool  # noqa: F401
    assert list(inspect.signature(make_reader).parameters)[:4] == [
        "dataset_url",
        "schema_fields",
        "reader_pool_type",
        "workers_count",
    ]


def test_torch_loaders(made, plain):
    import torch
    from petastorm import TransformSpec, make_batch_reader, make_reader
    from petastorm.pytorch import BatchedDataLoader, DataLoader, InMemBatchedDataLoader

    spec = TransformSpec(removed_fields=["matrix", "name"])
    with DataLoader(make_reader(made, transform_spec=spec), batch_size=10, shuffling_queue_capacity=30) as loader:
        batches = list(loader)
        assert (
            batches[0]["image"].shape == (10, 4, 6, 3)
            and batches[0]["image"].dtype == torch.uint8
            and isinstance(batches[0]["price"][0], Decimal)
        )
        assert sorted(int(i) for b in batches for i in b["id"]) == list(range(ROWS))
        assert sum(len(b["id"]) for b in loader) == ROWS  # a second pass
    for capacity in (0, 100):
        fields = ["id", "vector", "label"]
        with BatchedDataLoader(
            make_batch_reader(plain, schema_fields=fields), batch_size=64, shuffling_queue_capacity=capacity
        ) as loader:
            batches = list(loader)
        assert [len(b["id"]) for b in batches] == [64] * 32 + [2] and sorted(
            int(i) for b in batches for i in b["id"]
        ) == list(range(2050))
        for b in batches:
            assert torch.equal(b["vector"][:, 0], 3.0 * b["id"]) and torch.equal(b["label"].long(), b["id"] % 4)
    with DataLoader(make_batch_reader(plain, schema_fields=["id"]), batch_size=100) as loader:
        assert [len(b["id"]) for b in loader] == [100] * 20 + [50]
    with InMemBatchedDataLoader(
        make_batch_reader(plain, schema_fields=["id"]), batch_size=50, rows_capacity=120, num_epochs=2, shuffle=True
    ) as loader:
        sizes = [len(b["id"]) for b in loader]
        assert sizes == [50, 50, 20] * 2
    with pytest.raises(TypeError, match="Pytorch does not support"):
        list(DataLoader(make_batch_reader(plain, schema_fields=["text"])))
    with pytest.raises(RuntimeError, match="full pass"):
        loader = DataLoader(make_batch_reader(plain, schema_fields=["id"]))
        next(a := iter(loader))
        next(iter(loader))
    del a


def test_weighted_sampling(made):
    from petastorm import make_reader
    from petastorm.weighted_sampling_reader import WeightedSamplingReader

    readers = [make_reader(made, schema_fields=["id"], num_epochs=None, seed=s) for s in (1, 2)]
    with WeightedSamplingReader(readers, [0.9, 0.1]) as reader:
        assert len([next(reader) for _ in range(50)]) == 50
    with pytest.raises(ValueError, match="as many"):
        WeightedSamplingReader(readers, [1])


def test_the_converter(tmp_path, monkeypatch):
    import pandas as pd
    from petastorm.spark import SparkDatasetConverter, make_spark_converter

    frame = pd.DataFrame({"id": np.arange(500), "x": np.sin(np.arange(500)), "v": list(np.ones((500, 3)))})
    with pytest.raises(ValueError, match="parentCacheDirUrl"):
        make_spark_converter(frame)
    monkeypatch.setenv("PETASTORM_CACHE_DIR_URL", f"file://{tmp_path}")
    converter = make_spark_converter(frame)
    assert len(converter) == converter.dataset_size == 500 and len(converter.file_urls) == 1
    assert "_SUCCESS" in os.listdir(converter.cache_dir_url.removeprefix("file://"))
    with converter.make_torch_dataloader(batch_size=32, num_epochs=1) as loader:
        batches = list(loader)
        assert (
            [len(b["id"]) for b in batches] == [32] * 15 + [20]
            and batches[0]["x"].dtype.is_floating_point
            and batches[0]["x"].element_size() == 4
        )
        assert sorted(int(i) for b in batches for i in b["id"]) == list(range(500)) and batches[0]["v"].shape == (32, 3)
    steps = []
    for shard in range(3):
        with converter.make_torch_dataloader(
            batch_size=16, num_epochs=1, cur_shard=shard, shard_count=3, schema_fields=["id"]
        ) as loader:
            steps.append(sum(1 for _ in loader))
    assert len(set(steps)) == 1
    with converter.make_torch_dataloader(batch_size=100, schema_fields=["id"]) as loader:
        assert len([b for _, b in zip(range(12), loader, strict=False)]) == 12  # without an end
    import pickle

    again = pickle.loads(pickle.dumps(converter))
    assert isinstance(again, SparkDatasetConverter) and len(make_spark_converter(converter.cache_dir_url)) == 500
    with pytest.raises(ValueError, match="no argument for the reader"):
        converter.make_torch_dataloader(dataset_url="x")
    converter.delete()
    assert os.listdir(tmp_path) == []


def test_a_schema_of_old_is_read(made, tmp_path):
    """A dataset whose schema is a pickle of petastorm 0.13.1, and the program that makes it JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import make_reader
    from petastorm.etl.dataset_metadata import UNISCHEMA_KEY, get_schema_from_dataset_url, write_metadata
    from petastorm.etl.petastorm_generate_metadata import main
    from petastorm.unischema import encode_row
    from pyarrow import fs
    from test_petastorm_schema import OLD, Evil

    pickled = OLD["schema2"]
    from petastorm.etl._pickled import load

    old = load(pickled)
    one = {"id": np.int64(1), "name": "x", "price": Decimal("1.5"), "image": np.zeros((4, 16, 3), np.uint8), "matrix": np.eye(4, dtype="f4"),
           "packed": np.arange(9, dtype="u2"), "plain": np.int32(8)}  # fmt: skip
    stored = {k: [bytes(v) if isinstance(v, bytearray) else v] for k, v in encode_row(old, one).items()}
    pq.write_table(pa.table(stored), tmp_path / "a.parquet")
    url = f"file://{tmp_path}"
    write_metadata(fs.LocalFileSystem(), str(tmp_path), pa.schema([("id", pa.int64())]), {UNISCHEMA_KEY: pickled})
    with make_reader(url) as reader:
        (r,) = reader
    assert (
        r.price == Decimal("1.5")
        and np.array_equal(r.packed, one["packed"])
        and r.image.shape == (4, 16, 3)
        and r.plain == 8
    )
    main(["--dataset_url", url])
    assert get_schema_from_dataset_url(url).fields == old.fields
    import pickle

    write_metadata(
        fs.LocalFileSystem(),
        str(tmp_path),
        pa.schema([]),
        {UNISCHEMA_KEY: pickle.dumps(Evil(os.system, (f"touch {tmp_path}/evil",))), b"hora.unischema.v1": b"{"},
    )
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="its schema cannot be read"):
        make_reader(url)
    assert not os.path.exists(tmp_path / "evil")


def test_addresses_of_a_dataset_and_of_its_files(made):
    from petastorm import make_reader
    from petastorm.etl.dataset_metadata import get_schema_from_dataset_url

    with make_reader(made + "///", shuffle_row_groups=False) as reader:
        assert sum(1 for _ in reader) == ROWS and not reader.stopped
    assert reader.stopped
    with make_reader([made + "/a.parquet", made + "/a.parquet"], shuffle_row_groups=False) as reader:
        assert sum(1 for _ in reader) == 240
    assert get_schema_from_dataset_url(made + "/b.parquet").fields == schema().fields
    with pytest.raises(FileNotFoundError, match="nowhere"):
        get_schema_from_dataset_url("file:///nowhere/at/all")
    with pytest.raises(ValueError, match="scheme-less"):
        get_schema_from_dataset_url("/nowhere")
