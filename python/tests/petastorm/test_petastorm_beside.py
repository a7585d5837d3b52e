"""What Petastorm has beside readers: its cache's folder, metadata, and the file systems of addresses."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pytest


def test_a_cache_that_cannot_be_removed_is_told_of(arrow, tmp_path, monkeypatch, capsys):
    from petastorm.local_disk_cache import LocalDiskCache

    cache = LocalDiskCache(str(tmp_path / "cache"), 1 << 20, 4)
    cache.get("key", lambda: "value")

    def busy(path, ignore_errors=False):
        raise OSError("in use")

    with monkeypatch.context() as m:
        m.setattr(shutil, "rmtree", busy)
        cache.cleanup()
    assert capsys.readouterr().out == "Error during rmtree: in use\n" and (tmp_path / "cache").exists()
    cache.cleanup()
    cache.cleanup()
    assert not (tmp_path / "cache").exists() and capsys.readouterr().out == ""


def test_a_summary_has_the_footers_of_all_files(made, tmp_path):
    import pyarrow.parquet as pq
    from petastorm import make_reader
    from petastorm.etl import petastorm_generate_metadata

    moved = tmp_path / "moved"
    shutil.copytree(urlparse(made).path, moved)
    url = f"file://{moved}"
    petastorm_generate_metadata.main(["--dataset_url", url])
    assert not (moved / "_metadata").exists()
    petastorm_generate_metadata.main(["--dataset_url", url, "--use-summary-metadata"])
    about = pq.read_metadata(moved / "_metadata")
    files = sorted(Path(moved).glob("*.parquet"))
    assert about.num_rows == sum(pq.read_metadata(f).num_rows for f in files)
    assert {about.row_group(i).column(0).file_path for i in range(about.num_row_groups)} == {f.name for f in files}
    with make_reader(url) as reader:
        assert sum(1 for _ in reader) == about.num_rows


def test_a_summary_of_files_that_differ_is_refused(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm.etl.dataset_metadata import PetastormMetadataGenerationError, materialize_dataset
    from petastorm.unischema import Unischema, UnischemaField

    schema = Unischema("S", [UnischemaField("id", np.int64, (), None, False)])
    with pytest.raises(PetastormMetadataGenerationError, match="different schemas.*leave use_summary_metadata away"):
        with materialize_dataset(None, f"file://{tmp_path}", schema, use_summary_metadata=True):
            pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
            pq.write_table(pa.table({"id": [2], "more": ["x"]}), tmp_path / "b.parquet")


def test_a_local_file_system_has_its_old_names_too(arrow, tmp_path):
    from petastorm.fs_utils import FilesystemResolver, get_filesystem_and_path_or_paths

    fs, path = get_filesystem_and_path_or_paths(f"file://{tmp_path}")
    fs = pickle.loads(pickle.dumps(fs))
    assert type(pickle.loads(pickle.dumps(FilesystemResolver(f"file://{tmp_path}").filesystem_factory()))()) is type(fs)
    fs.mkdir(f"{path}/a/b")
    with fs.open(f"{path}/a/b/c", "wb") as f:
        f.write(b"text")
    with fs.open(f"{path}/a/b/c") as f:
        assert f.read() == b"text"
    assert (
        fs.exists(f"{path}/a")
        and fs.isdir(f"{path}/a")
        and fs.isfile(f"{path}/a/b/c")
        and fs.ls(f"{path}/a") == [f"{path}/a/b"]
    )
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        fs.rm(f"{path}/a")
    fs.delete(f"{path}/a", recursive=True)
    assert not FilesystemResolver(f"file://{tmp_path}").filesystem().exists(f"{path}/a")


def test_an_expression_that_only_begins_a_name_warns(arrow):
    from petastorm.unischema import Unischema, UnischemaField, match_unischema_fields

    schema = Unischema("S", [UnischemaField(n, np.int32, (), None, False) for n in ("int32", "uint8", "uint16")])
    with pytest.warns(UserWarning, match=r"schema_fields behavior has changed.* uint16, uint8 only begin"):
        assert match_unischema_fields(schema, ["uint"]) == []
    assert [f.name for f in match_unischema_fields(schema, ["int.*", "uint8", "uint16"])] == [
        "int32",
        "uint8",
        "uint16",
    ]


def test_folders_of_numbers_are_int64_in_a_schema_of_files(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm.unischema import Unischema

    pq.write_to_dataset(pa.table({"id": [1, 2], "n": [3, 4], "key": ["a", "b"]}), tmp_path, partition_cols=["n", "key"])
    fields = Unischema.from_arrow_schema(pq.ParquetDataset(tmp_path)).fields
    assert {n: f.numpy_dtype for n, f in fields.items()} == {"id": np.int64, "n": np.int64, "key": np.str_}


def test_arguments_in_the_wrong_order_are_told_of(arrow):
    from petastorm.unischema import Unischema, encode_row

    with pytest.raises(AssertionError, match="a row is a dict, not Unischema: pass the schema first"):
        encode_row({}, Unischema("S", []))


def test_rows_of_files_without_a_schema_have_the_files_types(arrow, tmp_path):
    from datetime import date

    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import make_reader

    columns = {
        "id": [1, 2],
        "text": ["a", None],
        "day": [date(2020, 1, 2)] * 2,
        "list": [[1.5, 2.5], [3.5]],
        "flag": [True, False],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="Currently make_reader supports reading only Petastorm datasets"):
        reader = make_reader(f"file://{tmp_path}", shuffle_row_groups=False)
    with reader:
        first, second = reader
    assert (first.id, first.text, first.day, first.flag) == (1, "a", np.datetime64("2020-01-02"), True)
    assert first.list.tolist() == [1.5, 2.5]
    assert (
        (type(first.id), type(first.flag)) == (np.int64, np.bool_)
        and second.text is None
        and second.list.tolist() == [3.5]
    )


def test_a_schema_that_cannot_be_read_is_no_missing_one(made, tmp_path):
    from petastorm import make_reader
    from petastorm.etl import _schema, dataset_metadata

    moved = tmp_path / "moved"
    shutil.copytree(urlparse(made).path, moved)
    from petastorm.utils import add_to_dataset_metadata
    from pyarrow.fs import LocalFileSystem

    add_to_dataset_metadata((LocalFileSystem(), str(moved)), _schema.SCHEMA_KEY, b"{")
    assert dataset_metadata.read_metadata(LocalFileSystem(), str(moved))[_schema.SCHEMA_KEY] == b"{"
    with pytest.raises(RuntimeError, match="make_reader has failed.*its schema cannot be read"):
        make_reader(f"file://{moved}")


def test_with_a_file_system_an_address_is_a_path_in_it(made, tmp_path):
    from petastorm import make_reader
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm_sample import ROWS, schema
    from pyarrow.fs import LocalFileSystem

    moved = tmp_path / "moved"
    shutil.copytree(urlparse(made).path, moved)
    (moved / "_common_metadata").unlink()
    with materialize_dataset(None, str(moved), schema(), filesystem_factory=LocalFileSystem):
        pass
    with make_reader(f"file:///{moved}") as reader:
        assert sum(1 for _ in reader) == ROWS


def test_what_cannot_be_read_is_one_sentence(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import make_batch_reader, make_reader
    from petastorm.errors import NoDataAvailableError

    for make in (make_reader, make_batch_reader):
        with pytest.raises(
            ValueError,
            match="^hdfs://name/data: hora reads HDFS where it is mounted; give the path of the mount as file:///",
        ):
            make("hdfs://name/data")
    pq.write_table(pa.table({"id": [1], "x": [2]}), tmp_path / "a.parquet")
    with pytest.raises(
        RuntimeError, match=r"No fields matching the criteria '\['nope'\]' were found in the dataset. It has id, x."
    ):
        make_batch_reader(f"file://{tmp_path}", schema_fields=["nope"])
    pq.write_table(pa.table({"id": [1], "x": [2]})[:0], tmp_path / "a.parquet")
    with pytest.raises(NoDataAvailableError, match="have no rows"):
        make_batch_reader(f"file://{tmp_path}")
