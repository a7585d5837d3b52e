"""make_spark_converter: a frame is written once, and read by loaders on any number of ranks."""

from __future__ import annotations

import atexit
import collections
import datetime
import logging
import os
import shutil
import threading
import time
import uuid
from urllib.parse import quote, unquote, urlparse

import hora.dataset
from hora.dataset._source import is_frame, to_table

from ..fs_utils import source
from ..reader import make_batch_reader

DEFAULT_ROW_GROUP_SIZE_BYTES = 32 * 1024 * 1024
FILES_APPEAR_WITHIN = 30  # seconds
MOST_GROUP = 1 << 20  # what is written has row groups of 1 MiB at most: they mix well
logger = logging.getLogger(__name__)

_Cached = collections.namedtuple("_Cached", ("identity", "cache_dir_url"))
_lock = threading.Lock()
_cache_df_meta_list: list[_Cached] = []  # frames that were written


def _delete(url):
    if urlparse(url).scheme == "file":
        shutil.rmtree(source(url), ignore_errors=True)
        return
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(url)
    system.delete_dir(path)


_delete_dir_handler = _delete


def register_delete_dir_handler(handler):
    """Say how a folder of the cache is deleted; None: as at the beginning."""
    global _delete_dir_handler
    _delete_dir_handler = handler or _delete


def _get_horovod_rank_and_size():
    """Rank and size as a launcher's variables say them, or (None, None)."""
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        rank, size = os.environ.get(f"{name}_RANK"), os.environ.get(f"{name}_SIZE")
        if rank is not None or size is not None:
            return (None, None) if rank is None or size is None else (int(rank), int(size))
    return None, None


def _check_rank_and_size_consistent_with_horovod(petastorm_reader_kwargs):
    """Whether the shard that is asked for is this rank's; a warning says so where it is another."""
    asked = petastorm_reader_kwargs.get("cur_shard"), petastorm_reader_kwargs.get("shard_count")
    known = _get_horovod_rank_and_size()
    if None in known or asked == (None, None) or asked == known:
        return True
    logger.warning(
        "cur_shard=%s and shard_count=%s are not this process's: it is rank %s of %s. Leave both away, and each rank reads its own part",
        *asked,
        *known,
    )
    return False


def _wait_file_available(url_list):
    """Wait until all files of this machine's folders are there: a mount may show them later than they were written."""
    paths = {source(url): url for url in url_list if urlparse(url).scheme in ("", "file")}
    end = time.monotonic() + FILES_APPEAR_WITHIN
    while missing := [url for path, url in paths.items() if not os.path.exists(path)]:
        if time.monotonic() > end:
            raise RuntimeError(
                f"Timeout while waiting for all parquet-store files to appear at urls {', '.join(missing)}; the folder must be one that all hosts of the job see"
            )
        time.sleep(0.1)


class SparkDatasetConverter:
    """A frame that has been written; made by make_spark_converter. It can be pickled and used by other processes."""

    PARENT_CACHE_DIR_URL_CONF = "petastorm.spark.converter.parentCacheDirUrl"

    def __init__(self, cache_dir_url, file_urls, dataset_size):
        self.cache_dir_url, self.file_urls, self.dataset_size = cache_dir_url, file_urls, dataset_size

    def __len__(self):
        return self.dataset_size

    def make_tf_dataset(
        self,
        batch_size=None,
        prefetch=None,
        num_epochs=None,
        workers_count=None,
        shuffling_queue_capacity=None,
        **petastorm_reader_kwargs,
    ):
        """A context manager with a tf.data.Dataset of batches."""
        given = self._given(petastorm_reader_kwargs, num_epochs, workers_count)
        return TFDatasetContextManager(self.file_urls, batch_size, prefetch, given, shuffling_queue_capacity)

    def make_torch_dataloader(
        self,
        batch_size=32,
        num_epochs=None,
        workers_count=None,
        shuffling_queue_capacity=0,
        data_loader_fn=None,
        **petastorm_reader_kwargs,
    ):
        """A context manager with a loader of torch tensors. Without num_epochs it goes on without an end."""
        given = self._given(petastorm_reader_kwargs, num_epochs, workers_count)
        return TorchDatasetContextManager(self.file_urls, batch_size, given, shuffling_queue_capacity, data_loader_fn)

    def _given(self, petastorm_reader_kwargs, num_epochs, workers_count):
        for name in ("dataset_url", "dataset_url_or_urls"):
            if name in petastorm_reader_kwargs:
                raise ValueError(f"{name} is no argument for the reader here: it is the converter's")
        _check_rank_and_size_consistent_with_horovod(petastorm_reader_kwargs)
        return petastorm_reader_kwargs | {
            "num_epochs": num_epochs,
            "workers_count": 4 if workers_count is None else workers_count,
        }

    def delete(self):
        """Delete the files."""
        with _lock:
            _cache_df_meta_list[:] = [c for c in _cache_df_meta_list if c.cache_dir_url != self.cache_dir_url]
        _delete_dir_handler(self.cache_dir_url)


class _Manager:
    """A reader that lives as long as a with statement."""

    def _open(self, parquet_file_url_list, batch_size, petastorm_reader_kwargs):
        _wait_file_available(parquet_file_url_list)
        self.reader = make_batch_reader(parquet_file_url_list, **petastorm_reader_kwargs)
        self.reader._resize(batch_size)

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.reader.stop()
        self.reader.join()


class TFDatasetContextManager(_Manager):
    """A tf.data.Dataset of batches for a with statement."""

    def __init__(self, parquet_file_url_list, batch_size, prefetch, petastorm_reader_kwargs, shuffling_queue_capacity):
        self.parquet_file_url_list, self.petastorm_reader_kwargs = parquet_file_url_list, petastorm_reader_kwargs
        self.batch_size, self.prefetch, self.shuffling_queue_capacity = (
            batch_size or 32,
            prefetch,
            shuffling_queue_capacity,
        )

    def __enter__(self):
        import tensorflow as tf

        from ..tf_utils import make_petastorm_dataset

        self._open(self.parquet_file_url_list, self.batch_size, self.petastorm_reader_kwargs)
        made = make_petastorm_dataset(self.reader)
        if self.shuffling_queue_capacity:
            made = (
                made.flat_map(tf.compat.v1.data.Dataset.from_tensor_slices)
                .shuffle(self.shuffling_queue_capacity)
                .batch(self.batch_size)
            )
        return made.prefetch(tf.data.AUTOTUNE if self.prefetch is None else self.prefetch)


class TorchDatasetContextManager(_Manager):
    """A loader of torch tensors for a with statement."""

    def __init__(
        self, parquet_file_url_list, batch_size, petastorm_reader_kwargs, shuffling_queue_capacity, data_loader_fn
    ):
        self.parquet_file_url_list, self.petastorm_reader_kwargs = parquet_file_url_list, petastorm_reader_kwargs
        self.batch_size, self.shuffling_queue_capacity, self.data_loader_fn = (
            batch_size,
            shuffling_queue_capacity,
            data_loader_fn,
        )

    def __enter__(self):
        from ..pytorch import DataLoader

        self._open(self.parquet_file_url_list, self.batch_size, self.petastorm_reader_kwargs)
        self.loader = (self.data_loader_fn or DataLoader)(
            reader=self.reader, batch_size=self.batch_size, shuffling_queue_capacity=self.shuffling_queue_capacity
        )
        return self.loader


def _is_spark(df):
    return any(c.__module__.startswith("pyspark") and c.__name__ == "DataFrame" for c in type(df).__mro__)


def _get_spark_session():
    """The session of this program, None where it has none; in a task of Spark there is none to be had."""
    try:
        from pyspark import TaskContext
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    if TaskContext.get() is not None:
        raise RuntimeError(
            "make_spark_converter is called in a task of Spark: call it on the driver; the converter can be pickled and sent to tasks"
        )
    return SparkSession.getActiveSession()


def _is_spark_local_mode():
    session = _get_spark_session()
    return session is not None and str(session.conf.get("spark.master", "")).strip().lower().startswith("local")


def _check_url(dir_url):
    if not urlparse(dir_url).scheme:
        raise ValueError(
            f"ERROR! A scheme-less directory url ({dir_url}) is no longer supported. Please prepend 'file://' for local filesystem."
        )


def _check_parent_cache_dir_url(dir_url):
    _check_url(dir_url)
    parsed = urlparse(dir_url)
    if (
        "DATABRICKS_RUNTIME_VERSION" in os.environ
        and parsed.scheme == "file"
        and not parsed.path.startswith("/dbfs/")
        and not _is_spark_local_mode()
    ):
        logger.warning(
            "%s is %s: on a cluster of Databricks you should specify a dbfs fuse path that all nodes see, like 'file:/dbfs/path/to/cache_dir', "
            "or have a network file system mounted there on all of them",
            SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, dir_url,
        )  # fmt: skip


def _make_sub_dir_url(dir_url, name):
    parsed = urlparse(dir_url)
    return parsed._replace(path=f"{parsed.path}/{name}").geturl()


def _normalize_databricks_dbfs_url(url, err_msg):
    """An address on DBFS as the path of its mount."""
    if url.startswith(("file:/dbfs/", "file:///dbfs/")):
        return url
    if not url.startswith("dbfs:/") or url.startswith("dbfs://") and not url.startswith("dbfs:///"):
        raise ValueError(err_msg)
    return "file:/dbfs/" + url[len("dbfs:") :].lstrip("/")


def _parent(df):
    """The folder that frames are written below: Spark's conf says it, or the environment of a program without Spark."""
    session = df.sparkSession if _is_spark(df) and hasattr(df, "sparkSession") else _get_spark_session()
    url = session.conf.get(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, None) if session is not None else None
    url = url or os.environ.get("PETASTORM_CACHE_DIR_URL")
    if not url:
        raise ValueError(
            "Please set the spark config petastorm.spark.converter.parentCacheDirUrl (or, without Spark, the variable PETASTORM_CACHE_DIR_URL) "
            "to the address of a folder that all ranks see, as file:///mnt/shared/cache"
        )
    _check_parent_cache_dir_url(url)
    return url.rstrip("/")


def _identity(df, *how):
    """What is equal for frames that are the same, or None."""
    if not _is_spark(df):
        return None
    try:
        return ("plan", df.semanticHash(), *how)
    except Exception:  # Spark Connect of some versions has no hash
        return None


def make_spark_converter(
    df, parquet_row_group_size_bytes=DEFAULT_ROW_GROUP_SIZE_BYTES, compression_codec=None, dtype="float32"
):
    """Write a frame below the cache's folder, and answer what makes loaders of it.

    `df` is a frame of Spark, pandas, Polars or Arrow, or the address of Parquet files that are there. Floating point
    columns become `dtype` (None: stay). Vectors of Spark ML become lists.
    """
    if isinstance(df, str):
        if df.startswith("dbfs:") or "DATABRICKS_RUNTIME_VERSION" in os.environ:
            df = _normalize_databricks_dbfs_url(
                df, f"{df} is no address on DBFS; give one like 'file:/dbfs/xxx' or 'dbfs:/xxx'"
            )
        return _opened(df if urlparse(df).scheme else "file://" + quote(os.path.abspath(df)))
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
    identity = _identity(df, parquet_row_group_size_bytes, codec, dtype, parent)
    with _lock:
        for known in _cache_df_meta_list:
            if identity is not None and known.identity == identity:
                return _opened(known.cache_dir_url)
        url = _make_sub_dir_url(parent, _folder(df))
        if _is_spark(df):
            _write_spark(df, url, group, codec, dtype)
        else:
            _write(df, url, group, codec, dtype)
        _cache_df_meta_list.append(_Cached(identity, url))
    atexit.register(_at_exit, url)
    made = _opened(url)
    made.cache_dir_url = url
    return made


def _folder(df):
    """A name that no other frame has, and by which whoever finds the folder later knows whose it was."""
    session = df.sparkSession if _is_spark(df) else None
    try:
        app = f"appid-{session.sparkContext.applicationId}-" if session is not None else ""
    except Exception:  # Spark Connect has no context
        app = ""
    return f"{datetime.datetime.now():%Y%m%d%H%M%S}-{app}{uuid.uuid4()}"


def _at_exit(url):
    if any(c.cache_dir_url == url for c in _cache_df_meta_list):
        try:
            _delete_dir_handler(url)
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
        raise ValueError(
            f"{url}: a frame that is not Spark's is written to a local folder or a mount; set the cache's folder to file:///…"
        )
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
    writer = df.write.option("compression", codec if codec not in ("bzip2", "deflate") else "gzip").option(
        "parquet.block.size", str(group)
    )
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
