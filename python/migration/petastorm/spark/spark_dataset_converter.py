"""make_spark_converter: a frame is written once, and read by loaders on any number of ranks."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import threading
import uuid
from urllib.parse import quote, unquote, urlparse

import hora.dataset
from hora.dataset._source import is_frame, to_table

from ..fs_utils import source
from ..reader import Reader, _cache, _pool, normalize_dataset_url_or_urls

DEFAULT_ROW_GROUP_SIZE_BYTES = 32 * 1024 * 1024
MOST_GROUP = 1 << 20  # what is written has row groups of 1 MiB at most: they mix well
logger = logging.getLogger(__name__)

_lock = threading.Lock()
_cached: list[tuple] = []  # what identifies a frame, and the address it was written to
_handlers: list = []


def register_delete_dir_handler(handler):
    """Say how a folder of the cache is deleted; None: as at the beginning."""
    _handlers[:] = [] if handler is None else [handler]


def _delete(url):
    if _handlers:
        _handlers[0](url)
    elif urlparse(url).scheme == "file":
        shutil.rmtree(source(url), ignore_errors=True)
    else:
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(url)
        system.delete_dir(path)


class SparkDatasetConverter:
    """A frame that has been written; made by make_spark_converter. It can be pickled and used by other processes."""

    PARENT_CACHE_DIR_URL_CONF = "petastorm.spark.converter.parentCacheDirUrl"

    def __init__(self, cache_dir_url, file_urls, dataset_size):
        self.cache_dir_url, self.file_urls, self.dataset_size = cache_dir_url, file_urls, dataset_size

    def __len__(self):
        return self.dataset_size

    def make_tf_dataset(
        self, batch_size=None, prefetch=None, num_epochs=None, workers_count=None, shuffling_queue_capacity=None, **petastorm_reader_kwargs
    ):
        """A context manager with a tf.data.Dataset of batches."""
        return _Tf(
            self._reader(batch_size or 32, num_epochs, petastorm_reader_kwargs), prefetch, shuffling_queue_capacity, batch_size or 32
        )

    def make_torch_dataloader(
        self, batch_size=32, num_epochs=None, workers_count=None, shuffling_queue_capacity=0, data_loader_fn=None, **petastorm_reader_kwargs
    ):
        """A context manager with a loader of torch tensors. Without num_epochs it goes on without an end."""
        from ..pytorch import DataLoader

        reader = self._reader(batch_size, num_epochs, petastorm_reader_kwargs)
        return (data_loader_fn or DataLoader)(reader, batch_size=batch_size, shuffling_queue_capacity=shuffling_queue_capacity)

    def _reader(self, batch_size, num_epochs, given):
        for name in ("dataset_url", "dataset_url_or_urls", "num_epochs", "workers_count"):
            if name in given:
                raise ValueError(f"{name} is no argument for the reader here: it is the converter's")
        given = dict(given)
        kwargs = {name: given.pop(name, None) for name in ("schema_fields", "seed", "predicate", "rowgroup_selector", "cur_shard", "shard_count",
                                                           "shard_seed", "transform_spec", "filters")}  # fmt: skip
        kwargs |= {"shuffle_rows": given.pop("shuffle_rows", False), "shuffle_row_groups": given.pop("shuffle_row_groups", True),
                   "shuffle_row_drop_partitions": given.pop("shuffle_row_drop_partitions", 1)}  # fmt: skip
        _pool(given.pop("reader_pool_type", "thread"))
        cache = [
            given.pop(n, None)
            for n in ("cache_type", "cache_location", "cache_size_limit", "cache_row_size_estimate", "cache_extra_settings")
        ]
        index = tuple(given.pop(n, None) for n in ("hdfs_driver", "storage_options", "filesystem"))
        unknown = set(given) - {"results_queue_size", "zmq_copy_buffers", "convert_early_to_numpy"}
        if unknown:
            raise TypeError(f"make_batch_reader() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        return Reader(
            normalize_dataset_url_or_urls(self.file_urls), None, num_epochs=num_epochs, cache=_cache(*cache), is_batched_reader=True, index=index,
            rows=batch_size, **kwargs,
        )  # fmt: skip

    def delete(self):
        """Delete the files."""
        with _lock:
            _cached[:] = [c for c in _cached if c[1] != self.cache_dir_url]
        _delete(self.cache_dir_url)


class _Tf:
    def __init__(self, reader, prefetch, shuffling, batch_size):
        self.reader, self._prefetch, self._shuffling, self._batch_size = reader, prefetch, shuffling, batch_size

    def __enter__(self):
        import tensorflow as tf

        from ..tf_utils import make_petastorm_dataset

        made = make_petastorm_dataset(self.reader)
        if self._shuffling:
            made = made.unbatch().shuffle(self._shuffling).batch(self._batch_size)
        return made.prefetch(tf.data.AUTOTUNE if self._prefetch is None else self._prefetch)

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.reader.stop()
        self.reader.join()


def _is_spark(df):
    return any(c.__module__.startswith("pyspark") and c.__name__ == "DataFrame" for c in type(df).__mro__)


def _session(df=None):
    if df is not None and hasattr(df, "sparkSession"):
        return df.sparkSession
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    return SparkSession.getActiveSession()


def _parent(df):
    """The folder that frames are written below: Spark's conf says it, or the environment of a program without Spark."""
    session = _session(df if _is_spark(df) else None)
    url = session.conf.get(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, None) if session is not None else None
    url = url or os.environ.get("PETASTORM_CACHE_DIR_URL")
    if not url:
        raise ValueError(
            "Please set the spark config petastorm.spark.converter.parentCacheDirUrl (or, without Spark, the variable PETASTORM_CACHE_DIR_URL) "
            "to the address of a folder that all ranks see, as file:///mnt/shared/cache"
        )
    if not urlparse(url).scheme:
        raise ValueError(
            f"ERROR! A scheme-less directory url ({url}) is no longer supported. Please prepend 'file://' for local filesystem."
        )
    return url.rstrip("/")


def _identity(df, *how):
    """What is equal for frames that are the same, or None."""
    if not _is_spark(df):
        return None
    try:
        return ("plan", df.semanticHash(), *how)
    except Exception:  # Spark Connect of some versions has no hash
        return None


def make_spark_converter(df, parquet_row_group_size_bytes=DEFAULT_ROW_GROUP_SIZE_BYTES, compression_codec=None, dtype="float32"):
    """Write a frame below the cache's folder, and answer what makes loaders of it.

    `df` is a frame of Spark, pandas, Polars or Arrow, or the address of Parquet files that are there. Floating point
    columns become `dtype` (None: stay). Vectors of Spark ML become lists.
    """
    if isinstance(df, str):
        if df.startswith("dbfs:/"):
            df = "file:///dbfs/" + df[len("dbfs:/") :].lstrip("/")
        return _opened(df)
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype {dtype} is not supported. Use 'float32' or float64")
    codec = (compression_codec or "uncompressed").lower()
    if codec not in ("uncompressed", "bzip2", "gzip", "lz4", "snappy", "deflate"):
        raise RuntimeError(
            "compression_codec should be None or one of the following values: 'uncompressed', 'bzip2', 'gzip', 'lz4', 'snappy', 'deflate'"
        )
    if not _is_spark(df) and not is_frame(df):
        raise TypeError(f"{type(df).__name__} is no frame; give one of Spark, pandas, Polars or Arrow, or an address")
    parent, group = _parent(df), min(parquet_row_group_size_bytes, MOST_GROUP)
    identity = _identity(df, group, codec, dtype, parent)
    with _lock:
        for known, url in _cached:
            if identity is not None and known == identity:
                return _opened(url)
        url = f"{parent}/{uuid.uuid4()}"
        if _is_spark(df):
            _write_spark(df, url, group, codec, dtype)
        else:
            _write(df, url, group, codec, dtype)
        _cached.append((identity, url))
    atexit.register(_at_exit, url)
    made = _opened(url)
    made.cache_dir_url = url
    return made


def _at_exit(url):
    if any(u == url for _, u in _cached):
        try:
            _delete(url)
        except Exception as e:
            logger.warning("Delete cache data %s failed due to %r", url, e)


def _write(df, url, group, codec, dtype):
    import pyarrow as pa

    table = to_table(df)
    if dtype is not None:
        logger.warning("Converting floating-point columns to %s", dtype)
        there, wanted = (pa.float64(), pa.float32()) if dtype == "float32" else (pa.float32(), pa.float64())
        table = table.cast(pa.schema([f.with_type(_retyped(pa, f.type, there, wanted)) for f in table.schema]))
    if urlparse(url).scheme != "file":
        raise ValueError(f"{url}: a frame that is not Spark's is written to a local folder or a mount; set the cache's folder to file:///…")
    codec = {"uncompressed": "none", "bzip2": "gzip", "deflate": "gzip"}.get(codec, codec)
    hora.dataset.write(table, source(url), group=group, codec=codec)


def _retyped(pa, kind, there, wanted):
    if kind == there:
        return wanted
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_retyped(pa, kind.value_type, there, wanted), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _retyped(pa, kind.value_type, there, wanted)
        return pa.list_(inner) if pa.types.is_list(kind) else pa.large_list(inner)
    return kind


def _write_spark(df, url, group, codec, dtype):
    from pyspark.sql.types import ArrayType, DoubleType, FloatType

    there, wanted = (DoubleType, FloatType) if dtype == "float32" else (FloatType, DoubleType)
    for field in df.schema:
        if type(field.dataType).__name__ == "VectorUDT":
            from pyspark.ml.functions import vector_to_array

            df = df.withColumn(field.name, vector_to_array(df[field.name], dtype or "float64"))
        elif dtype and isinstance(field.dataType, there):
            df = df.withColumn(field.name, df[field.name].cast(wanted()))
        elif dtype and isinstance(field.dataType, ArrayType) and isinstance(field.dataType.elementType, there):
            df = df.withColumn(field.name, df[field.name].cast(ArrayType(wanted())))
    writer = df.write.option("compression", codec if codec not in ("bzip2", "deflate") else "gzip").option("parquet.block.size", str(group))
    writer.option("parquet.page.write-checksum.enabled", "true").parquet(url)


def _opened(url):
    path = source(url)
    loader = hora.dataset.open(path, batch=1, rank=0, size=1)
    files = []
    for g in loader._row_groups():
        if g["file"] not in files:
            files.append(g["file"])
    urls = [f"file://{quote(os.path.abspath(f))}" if "://" not in f else f for f in files]
    return SparkDatasetConverter(url, [unquote(u) if "%" not in url else u for u in urls], loader.rows)
