"""A dataset's schema: where it is kept, and how a dataset that has one is written."""

from __future__ import annotations

import errno
import json
import os
import posixpath
from contextlib import contextmanager
from urllib.parse import unquote, urlparse

from ..fs_utils import FilesystemResolver, get_dataset_path, get_filesystem_and_path_or_paths, source
from ..unischema import Unischema
from . import _pickled, _schema

ROW_GROUPS_PER_FILE_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
UNISCHEMA_KEY = b"dataset-toolkit.unischema.v1"
COMMON, SUMMARY = "_common_metadata", "_metadata"


class PetastormMetadataError(Exception):
    """A dataset has no schema of Petastorm's, or one that cannot be read."""


class NoSchemaError(PetastormMetadataError):
    """A dataset has none, as it was not written within materialize_dataset."""


class PetastormMetadataGenerationError(Exception):
    """A dataset's schema could not be written."""


@contextmanager
def materialize_dataset(
    spark, dataset_url, schema, row_group_size_mb=None, use_summary_metadata=False, filesystem_factory=None
):
    """Write files within it, and they become a dataset with a schema.

    With a Spark session row groups become small and pages get checksums; `spark=None` is for files that are written by
    other means (`hora.dataset.write`, pandas). The schema is JSON, not a pickle. With `use_summary_metadata` all files'
    footers are put together in `_metadata`, too.
    """
    before = _prepare(spark, row_group_size_mb, use_summary_metadata)
    try:
        yield
    finally:
        _restore_conf(spark, before)
    if filesystem_factory:  # an address without a scheme is a path in that file system
        fs, path = filesystem_factory(), unquote(get_dataset_path(urlparse(dataset_url)))
    else:
        fs, path = FilesystemResolver(dataset_url).filesystem(), FilesystemResolver(dataset_url).get_dataset_path()
    counts, arrow, footers = {}, None, []
    import pyarrow.parquet as pq

    for name in files_of(fs, path):
        with fs.open_input_file(name) as f:
            about = pq.ParquetFile(f)
            below = posixpath.relpath(name, path)
            counts[below] = about.metadata.num_row_groups
            arrow = arrow or about.schema_arrow
            if use_summary_metadata:
                about.metadata.set_file_path(below)
                footers.append(about.metadata)
    if arrow is None:
        raise PetastormMetadataGenerationError(
            f"Could not find any parquet files in {dataset_url}: write the dataset within materialize_dataset"
        )
    missing = [
        n for n, f in schema.fields.items() if n not in arrow.names and not any(f"{n}=" in name for name in counts)
    ]
    if missing:
        raise PetastormMetadataGenerationError(
            f"the files in {dataset_url} have no column {missing[0]!r}, which the schema has"
        )
    write_metadata(
        fs,
        path,
        arrow,
        {_schema.SCHEMA_KEY: _schema.schema_to_json(schema), ROW_GROUPS_PER_FILE_KEY: json.dumps(counts).encode()},
    )
    spark_has = spark is not None and fs.get_file_info(posixpath.join(path, SUMMARY)).type.name != "NotFound"
    if footers and not spark_has:
        _write_summary(fs, path, footers)


def _write_summary(fs, path, footers):
    whole, *others = footers
    try:
        for footer in others:
            whole.append_row_groups(footer)
    except RuntimeError as e:
        raise PetastormMetadataGenerationError(
            f"{path}: its files have different schemas, which no common {SUMMARY} can hold ({' '.join(str(e).split())}); leave use_summary_metadata away"
        ) from e
    with fs.open_output_stream(posixpath.join(path, SUMMARY)) as out:
        whole.write_metadata_file(out)


_ROW_GROUP = "parquet.block.size"


def _prepare(spark, row_group_size_mb, summary):
    if spark is None:
        return None
    wanted = {
        _ROW_GROUP: str((row_group_size_mb or 1) << 20), "parquet.page.write-checksum.enabled": "true",
        "parquet.enable.summary-metadata": "true" if summary else "false",
        "parquet.summary.metadata.level": "ALL" if summary else "NONE",
    }  # fmt: skip
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    before = {k: conf.get(k) for k in wanted}
    for k, v in wanted.items():
        conf.set(k, v)
    return before


def _restore_conf(spark, before):
    if spark is None:
        return
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for k, v in before.items():
        if v is None:
            conf.unset(k)
        else:
            conf.set(k, v)


def files_of(fs, path):
    """The Parquet files below a path, by name, as readers number them."""
    from pyarrow.fs import FileSelector, FileType

    found = []
    for info in fs.get_file_info(FileSelector(path, recursive=True)):
        below = posixpath.relpath(info.path, path).split("/")
        if (
            info.type == FileType.File
            and not any(p.startswith((".", "_")) for p in below)
            and info.path.endswith((".parquet", ".parq", ".pq"))
        ):
            found.append(info.path)
    return sorted(found, key=lambda name: name.split("/"))


def write_metadata(fs, path, arrow, values):
    """Put keys and values into the file beside the dataset's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    old = read_metadata(fs, path)
    name = posixpath.join(path, COMMON)
    with fs.open_output_stream(name) as out:
        pq.write_metadata(pa.schema(arrow).with_metadata({**old, **values}), out)


def read_metadata(fs, path):
    """The keys and values beside a dataset, or in its first file."""
    import pyarrow.parquet as pq
    from pyarrow.fs import FileType

    for name in (COMMON, SUMMARY):
        name = posixpath.join(path, name)
        if fs.get_file_info(name).type == FileType.File:
            with fs.open_input_file(name) as f:
                return dict(pq.read_metadata(f).metadata or {})
    return {}


def _around(fs, path):
    """The keys and values beside a dataset; of one of its files what lies beside that, or above folders called
    name=value."""
    from pyarrow.fs import FileType

    kind = fs.get_file_info(path).type
    if kind == FileType.NotFound and fs.type_name == "local":
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if kind != FileType.File:
        return read_metadata(fs, path)
    folder = posixpath.dirname(path)
    values = read_metadata(fs, folder)
    while not values and "=" in posixpath.basename(folder):
        folder = posixpath.dirname(folder)
        values = read_metadata(fs, folder)
    return values


def get_schema(dataset):
    """The schema of a dataset: an address, or the pair (file system, path)."""
    fs, path = dataset if isinstance(dataset, tuple) else get_filesystem_and_path_or_paths(dataset)
    if isinstance(path, list):
        path = path[0]
    values = _around(fs, path)
    try:
        if _schema.SCHEMA_KEY in values:
            return _schema.schema_from_json(values[_schema.SCHEMA_KEY])
        if UNISCHEMA_KEY in values:
            made = _pickled.load(values[UNISCHEMA_KEY])
            if not isinstance(made, Unischema):
                raise PetastormMetadataError(f"{path}/{COMMON}: what stands in the schema's place is no schema")
            return made
    except (ValueError, KeyError, TypeError) as e:
        raise PetastormMetadataError(
            f"{path}/{COMMON}: its schema cannot be read: {e}; write the dataset's metadata again with materialize_dataset"
        ) from e
    raise NoSchemaError(
        f"Could not find _common_metadata file with a Petastorm schema in {path}. Use materialize_dataset(..) to write the dataset, "
        "or make_batch_reader to read it as it is"
    )


def get_schema_from_dataset_url(dataset_url_or_urls, hdfs_driver="libhdfs3", storage_options=None, filesystem=None):
    """The schema of the dataset at an address."""
    return get_schema(get_filesystem_and_path_or_paths(dataset_url_or_urls, hdfs_driver, storage_options, filesystem))


def infer_or_load_unischema(dataset):
    """A dataset's schema; of one without, what its files say."""
    try:
        return get_schema(dataset)
    except PetastormMetadataError:
        import pyarrow.dataset as ds

        fs, path = dataset if isinstance(dataset, tuple) else get_filesystem_and_path_or_paths(dataset)
        return Unischema.from_arrow_schema(ds.dataset(path, filesystem=fs, partitioning="hive").schema)


def load_row_groups(dataset):
    """The row groups of a dataset, as readers number them: file, number in it, rows."""
    import hora.dataset

    return hora.dataset.open(source(dataset), batch=1, rank=0, size=1)._row_groups()
