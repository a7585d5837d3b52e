"""Addresses of datasets, and Arrow's file systems for them."""

from __future__ import annotations

import functools
from urllib.parse import unquote, urlparse


def get_dataset_path(parsed_url):
    """The path in the file system that a parsed address is of."""
    if parsed_url.scheme.lower() in ("s3", "s3a", "s3n", "gs", "gcs"):
        return parsed_url.netloc + parsed_url.path
    return parsed_url.path


def normalize_dir_url(dataset_url):
    """An address without slashes at its end."""
    if not isinstance(dataset_url, str):
        raise ValueError(f"dataset_url must be a string, not {type(dataset_url).__name__}")
    return dataset_url.rstrip("/") or dataset_url


def source(url):
    """An address as hora.dataset takes it: a local file's is its path."""
    parsed = urlparse(url)
    if parsed.scheme == "file":
        return unquote(parsed.path).rstrip("/") or "/"
    if parsed.scheme in ("s3n",):
        return "s3://" + parsed.netloc + parsed.path
    if parsed.scheme == "hdfs":
        raise ValueError(f"{url}: hora reads HDFS where it is mounted; give the path of the mount as file:///…")
    if parsed.scheme == "":
        raise ValueError(
            f"ERROR! A scheme-less dataset url ({url}) is no longer supported. Please prepend 'file://' for local filesystem."
        )
    return url


def get_filesystem_and_path_or_paths(url_or_urls, hdfs_driver="libhdfs3", storage_options=None, filesystem=None):
    """Arrow's file system of an address or several, and the paths in it."""
    urls = url_or_urls if isinstance(url_or_urls, list) else [url_or_urls]
    parsed = [urlparse(u) for u in urls]
    if len({(p.scheme, p.netloc if p.scheme == "hdfs" else "") for p in parsed}) > 1:
        raise ValueError("The dataset url list must contain url with the same scheme and netloc.")
    resolver = FilesystemResolver(urls[0], hdfs_driver=hdfs_driver, storage_options=storage_options)
    paths = [unquote(get_dataset_path(p)).rstrip("/") for p in parsed]
    return filesystem or resolver.filesystem(), paths if isinstance(url_or_urls, list) else paths[0]


@functools.cache
def _local_type():
    from pyarrow import fs

    class LocalFileSystem(fs.LocalFileSystem):
        """Arrow's, with the names too that its file systems had before pyarrow 15: programs ask a resolver's with
        them."""

        def exists(self, path):
            return self.get_file_info(path).type != fs.FileType.NotFound

        def isfile(self, path):
            return self.get_file_info(path).type == fs.FileType.File

        def isdir(self, path):
            return self.get_file_info(path).type == fs.FileType.Directory

        def ls(self, path):
            return sorted(f.path for f in self.get_file_info(fs.FileSelector(path)))

        def mkdir(self, path, create_parents=True):
            self.create_dir(path, recursive=create_parents)

        def rm(self, path, recursive=False):
            if not self.isdir(path):
                self.delete_file(path)
            elif recursive:
                self.delete_dir(path)
            else:
                raise IsADirectoryError(f"{path} is a folder: say recursive=True to remove it with what is in it")

        delete = rm

        def open(self, path, mode="rb"):
            return self.open_input_file(path) if mode == "rb" else self.open_output_stream(path)

        def __reduce__(self):
            return _local, ()

    return LocalFileSystem


def _local():
    return _local_type()()


def _filesystem(url, options):
    from pyarrow import fs

    if url.scheme == "file":
        return _local()
    if url.scheme in ("s3", "s3a", "s3n"):
        return fs.S3FileSystem(**options)
    if url.scheme in ("gs", "gcs"):
        return fs.GcsFileSystem(**options)
    if url.scheme == "hdfs":
        source(url.geturl())  # says where to read it
    raise ValueError(
        f"Unsupported scheme in dataset url {url.scheme}. Currently, only file, s3, gs and hdfs that is mounted are supported."
    )


class FilesystemResolver:
    """Finds Arrow's file system for an address."""

    def __init__(
        self,
        dataset_url,
        hadoop_configuration=None,
        connector=None,
        hdfs_driver="libhdfs3",
        user=None,
        storage_options=None,
    ):
        self._url = urlparse(normalize_dir_url(dataset_url))
        if not self._url.scheme:
            source(dataset_url)
        self._options = storage_options or {}

    def parsed_dataset_url(self):
        return self._url

    def get_dataset_path(self):
        return unquote(get_dataset_path(self._url))

    def filesystem(self):
        return self.filesystem_factory()()

    def filesystem_factory(self):
        """What makes the file system, without this object: it can be pickled."""
        return functools.partial(_filesystem, self._url, self._options)

    def __getstate__(self):
        raise RuntimeError(
            "Pickling FilesystemResolver is not supported as it may contain some a file-system instance objects that do not support pickling but do not have anti-pickling protection"
        )
