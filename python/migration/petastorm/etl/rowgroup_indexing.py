"""Indexes of a dataset's row groups: built once, kept beside it, used by rowgroup_selector=."""

from __future__ import annotations

from collections import namedtuple

from ..fs_utils import FilesystemResolver
from . import _pickled, _schema, dataset_metadata

ROWGROUPS_INDEX_KEY = b"dataset-toolkit.rowgroups_index.v1"

PieceInfo = namedtuple("PieceInfo", ["piece_index", "path", "row_group", "partition_keys"])


def build_rowgroup_index(dataset_url, spark_context, indexers, hdfs_driver="libhdfs3"):
    """Build indexes and keep them beside the dataset. It is done in this process; `spark_context` may be None."""
    from .. import make_reader

    if not indexers:
        raise ValueError("there are no indexers to build")
    columns = sorted({c for i in indexers for c in i.column_names})
    with make_reader(
        dataset_url, schema_fields=columns, shuffle_row_groups=False, cur_shard=0, shard_count=1
    ) as reader:
        for number, rows in reader._groups_of_rows():
            for i in indexers:
                i.build_index(rows, number)
    resolver = FilesystemResolver(dataset_url, hdfs_driver=hdfs_driver)
    fs, path = resolver.filesystem(), resolver.get_dataset_path()
    import pyarrow.dataset as ds

    arrow = ds.dataset(path, filesystem=fs, partitioning="hive").schema
    dataset_metadata.write_metadata(
        fs, path, arrow, {_schema.INDEX_KEY: _schema.index_to_json({i.index_name: i for i in indexers})}
    )


def get_row_group_indexes(dataset):
    """Indexes by name, of a dataset: the pair (file system, path)."""
    values = dataset_metadata.read_metadata(*dataset)
    if _schema.INDEX_KEY in values:
        return _schema.index_from_json(values[_schema.INDEX_KEY])
    if ROWGROUPS_INDEX_KEY in values:
        return dict(_pickled.load(values[ROWGROUPS_INDEX_KEY]))
    raise ValueError(f"the dataset {dataset[1]} has no indexes; build them with build_rowgroup_index")
