"""make_reader and make_batch_reader: rows and batches of Parquet files, by hora.dataset."""

from __future__ import annotations

import warnings

from . import _asked
from ._asked import LOCAL_DISK_CACHE, NULL_CACHE  # noqa: F401 (names of Petastorm's reader)
from ._reader import Reader
from .etl import dataset_metadata
from .etl.dataset_metadata import NoSchemaError, PetastormMetadataError
from .fs_utils import normalize_dir_url
from .ngram import NGram


def normalize_dataset_url_or_urls(dataset_url_or_urls):
    """Addresses without slashes at their ends."""
    if isinstance(dataset_url_or_urls, list):
        if not dataset_url_or_urls:
            raise ValueError("dataset url list must be non-empty.")
        return [normalize_dir_url(url) for url in dataset_url_or_urls]
    return normalize_dir_url(dataset_url_or_urls)


def make_reader(dataset_url,
                schema_fields=None,
                reader_pool_type='thread', workers_count=10, pyarrow_serialize=False, results_queue_size=50,
                seed=None, shuffle_rows=False,
                shuffle_row_groups=True, shuffle_row_drop_partitions=1,
                predicate=None,
                rowgroup_selector=None,
                num_epochs=1,
                cur_shard=None, shard_count=None, shard_seed=None,
                cache_type=NULL_CACHE, cache_location=None, cache_size_limit=None,
                cache_row_size_estimate=None, cache_extra_settings=None,
                hdfs_driver='libhdfs3',
                transform_spec=None,
                filters=None,
                storage_options=None,
                zmq_copy_buffers=True,
                filesystem=None,
                convert_early_to_numpy=False):  # fmt: skip
    """A reader of single rows, decoded by the schema that materialize_dataset has written.

    See docs/petastorm.md for what each argument does here. `cur_shard` and `shard_count` are the job's where they are
    not given.
    """
    urls = normalize_dataset_url_or_urls(dataset_url)
    cache = _asked.cache(cache_type, cache_location, cache_size_limit, cache_row_size_estimate, cache_extra_settings)
    _asked.pool(reader_pool_type)
    try:
        schema = dataset_metadata.get_schema_from_dataset_url(urls, hdfs_driver, storage_options, filesystem)
    except PetastormMetadataError as e:
        warnings.warn(
            "Currently make_reader supports reading only Petastorm datasets. To read from a non-Petastorm Parquet store use make_batch_reader: "
            "rows one by one cost more, and have only what the files' own types say",
            stacklevel=2,
        )
        if not isinstance(e, NoSchemaError):
            raise RuntimeError(
                "make_reader has failed. If you were trying to open a Parquet store that was not created using Petastorm materialize_dataset "
                f"and it contains only scalar columns, you may use make_batch_reader to read it. Inner exception: {e}"
            ) from e
        schema = None
    return Reader(
        urls, schema, schema_fields, seed, shuffle_rows, shuffle_row_groups, shuffle_row_drop_partitions, predicate,
        rowgroup_selector, num_epochs, cur_shard, shard_count, shard_seed, cache, transform_spec, filters,
        is_batched_reader=False, index=(hdfs_driver, storage_options, filesystem),
    )  # fmt: skip


def make_batch_reader(dataset_url_or_urls,
                      schema_fields=None,
                      reader_pool_type='thread', workers_count=10,
                      results_queue_size=50,
                      seed=None, shuffle_rows=False,
                      shuffle_row_groups=True, shuffle_row_drop_partitions=1,
                      predicate=None,
                      rowgroup_selector=None,
                      num_epochs=1,
                      cur_shard=None, shard_count=None, shard_seed=None,
                      cache_type='null', cache_location=None, cache_size_limit=None,
                      cache_row_size_estimate=None, cache_extra_settings=None,
                      hdfs_driver='libhdfs3',
                      transform_spec=None,
                      filters=None,
                      storage_options=None,
                      zmq_copy_buffers=True,
                      filesystem=None,
                      convert_early_to_numpy=False):  # fmt: skip
    """A reader of batches of any Parquet files: each item has an array a column."""
    urls = normalize_dataset_url_or_urls(dataset_url_or_urls)
    cache = _asked.cache(cache_type, cache_location, cache_size_limit, cache_row_size_estimate, cache_extra_settings)
    _asked.pool(reader_pool_type)
    if isinstance(schema_fields, NGram):
        raise NotImplementedError("ngrams are not supported by make_batch_reader: use make_reader")
    return Reader(
        urls, None, schema_fields, seed, shuffle_rows, shuffle_row_groups, shuffle_row_drop_partitions, predicate,
        rowgroup_selector, num_epochs, cur_shard, shard_count, shard_seed, cache, transform_spec, filters,
        is_batched_reader=True, index=(hdfs_driver, storage_options, filesystem),
    )  # fmt: skip
