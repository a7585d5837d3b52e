"""Stores: folders with an estimator's data and runs, on this machine's disks, on HDFS, S3 and what else fsspec knows,
and on DBFS."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["AbstractFilesystemStore", "DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]


class Store:
    """What estimators ask of a store; `Store.create(prefix_path)` chooses one by the path."""

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> AbstractFilesystemStore:
        """HDFSStore for hdfs://, DBFSLocalStore for dbfs:/ and /dbfs, LocalStore for paths, else FilesystemStore.

        >>> store = Store.create("s3://bucket/training")
        """
        if HDFSStore.matches(prefix_path):
            return HDFSStore(prefix_path, *args, **kwargs)
        if DBFSLocalStore.matches_dbfs(prefix_path):
            return DBFSLocalStore(prefix_path, *args, **kwargs)
        if "://" in prefix_path and not prefix_path.startswith("file:"):
            return FilesystemStore(prefix_path, *args, **kwargs)
        return LocalStore(prefix_path, *args, **kwargs)


class AbstractFilesystemStore(Store):
    """Folders below a prefix: intermediate_train_data, intermediate_val_data, runs."""

    def __init__(
        self, prefix_path: str, train_path: str | None = None, val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None, save_runs: bool = True, storage_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        self.prefix_path = self.get_full_path(prefix_path).rstrip("/") or "/"
        self._train_path = self._or_below(train_path, "intermediate_train_data")
        self._val_path = self._or_below(val_path, "intermediate_val_data")
        self._test_path = self._or_below(test_path, "intermediate_test_data")
        self._runs_path = self._or_below(runs_path, "runs")
        self._save_runs, self.storage_options = save_runs, dict(storage_options or {})
        self._fs: Any = None

    def _or_below(self, given: str | None, name: str) -> str:
        return f"{self.prefix_path.rstrip('/')}/{name}" if given is None else self.get_full_path(given)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_fs": None}

    @property
    def fs(self) -> Any:
        """The file system, as fsspec has it."""
        if self._fs is None:
            import fsspec

            url = self.prefix_path
            url = "s3://" + url.partition("://")[2] if url.startswith(("s3a://", "s3n://")) else url
            self._fs, _ = fsspec.core.url_to_fs(url, **self.storage_options)
        return self._fs

    def get_filesystem(self) -> Any:
        """The same."""
        return self.fs

    def get_full_path(self, path: str) -> str:
        """A path as Spark takes it: with its scheme."""
        return path

    def get_full_path_fn(self) -> Callable[[str], str]:
        """get_full_path, to be sent away."""
        return self.get_full_path

    def get_localized_path(self, path: str) -> str:
        """A path as the file system takes it: without the scheme where it is local."""
        return path.removeprefix("file://")

    def get_train_data_path(self, idx: int | None = None) -> str:
        """Where data for training lies; that of data set `idx`, counted by prepare_data."""
        return f"{self._train_path}.{idx}" if idx is not None else self._train_path

    def get_val_data_path(self, idx: int | None = None) -> str:
        """Where data for validation lies."""
        return f"{self._val_path}.{idx}" if idx is not None else self._val_path

    def get_test_data_path(self, idx: int | None = None) -> str:
        """Where data for tests lies."""
        return f"{self._test_path}.{idx}" if idx is not None else self._test_path

    def get_data_metadata_path(self) -> str:
        """Where a description of the data may lie."""
        return f"{self._train_path}/_metadata"

    def saving_runs(self) -> bool:
        """Whether runs are kept."""
        return self._save_runs

    def run_options(self) -> dict[str, Any]:
        """What fsspec is given besides the URL."""
        return dict(self.storage_options)

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """The folder of a run."""
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The folder of a run's checkpoint; None where runs are not kept."""
        return self.get_run_path(run_id) if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        """The checkpoint's name in it."""
        return "checkpoint"

    def get_checkpoints(self, run_id: str, suffix: str = "") -> list[str]:
        """The checkpoints of a run: one, or none."""
        path = f"{self.get_run_path(run_id)}/{self.get_checkpoint_filename()}"
        return [path] if path.endswith(suffix) and self.exists(path) else []

    def get_logs_path(self, run_id: str) -> str | None:
        """The folder for a run's logs."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}" if self._save_runs else None

    def get_logs_subdir(self) -> str:
        """Its name."""
        return "logs"

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self.fs.exists(self.get_localized_path(path)))

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self.fs.cat_file(self.get_localized_path(path)))

    def write_text(self, path: str, text: str) -> None:
        """Writes a file."""
        path = self.get_localized_path(path)
        self.fs.makedirs(os.path.dirname(path), exist_ok=True)
        self.fs.pipe_file(path, text.encode())

    def is_parquet_dataset(self, path: str) -> bool:
        """Whether a folder holds Parquet files that can be read."""
        import pyarrow.parquet as pq

        try:
            pq.ParquetDataset(self.get_localized_path(path), filesystem=self.fs)
            return self.exists(path)
        except (OSError, ValueError):
            return False

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        """A function that gives, for a with statement, a folder of this machine for a run's files; sync_fn brings them
        to the store."""

        @contextlib.contextmanager
        def folder() -> Iterator[str]:
            made = tempfile.mkdtemp(prefix="hora-run-")
            try:
                yield made
            finally:
                shutil.rmtree(made, ignore_errors=True)

        return folder

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies what lies below a folder of this machine into the run's folder."""
        there = self.get_localized_path(self.get_run_path(run_id))

        def sync(folder: str) -> None:
            for top, _, names in os.walk(folder):
                for name in names:
                    own = os.path.join(top, name)
                    target = f"{there}/{os.path.relpath(own, folder)}"
                    self.fs.makedirs(os.path.dirname(target), exist_ok=True)
                    self.fs.put_file(own, target)

        return sync

    def to_remote(self, run_id: str, dataset_idx: int | None = None) -> Any:
        """What ranks need of it, as attributes of an object that can be sent."""
        from types import SimpleNamespace

        return SimpleNamespace(
            train_data_path=self.get_train_data_path(dataset_idx), val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx), saving_runs=self.saving_runs(),
            runs_path=self.get_runs_path(),
            run_path=self.get_run_path(run_id), checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id),
            checkpoint_filename=self.get_checkpoint_filename(), logs_subdir=self.get_logs_subdir(),
            get_full_path=self.get_full_path,
            get_local_output_dir=self.get_local_output_dir_fn(run_id), sync=self.sync_fn(run_id),
        )  # fmt: skip

    @classmethod
    def filesystem_prefix(cls) -> str:
        """How paths of this store begin."""
        return ""

    @classmethod
    def matches(cls, path: str) -> bool:
        """Whether a path is one of this store."""
        return path.startswith(cls.filesystem_prefix())


class FilesystemStore(AbstractFilesystemStore):
    """A store on what fsspec knows: s3://, gs://, abfs://, memory://, …"""


class LocalStore(AbstractFilesystemStore):
    """A folder of this machine, or one that all machines have mounted."""

    def get_full_path(self, path: str) -> str:
        """With file:// before it."""
        return path if path.startswith("file://") else "file://" + os.path.abspath(path.removeprefix("file:"))

    @classmethod
    def filesystem_prefix(cls) -> str:
        """How its paths begin."""
        return "file://"


class HDFSStore(AbstractFilesystemStore):
    """A folder of HDFS, by pyarrow's libhdfs through fsspec."""

    def __init__(
        self, prefix_path: str, host: str | None = None, port: int | None = None, user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs", extra_conf: dict[str, str] | None = None, temp_dir: str | None = None, *args: Any,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        options = {"host": host, "port": port, "user": user, "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}
        super().__init__(prefix_path, *args, **kwargs)
        self._hdfs = {k: v for k, v in options.items() if v is not None}
        self._temp_dir = temp_dir

    @property
    def fs(self) -> Any:
        """The file system."""
        if self._fs is None:
            self._fs = self._get_filesystem_fn()()
        return self._fs

    def run_options(self) -> dict[str, Any]:
        """What fsspec is given besides the URL: of HDFS the host, port and user too."""
        return self._hdfs | self.storage_options

    def _get_filesystem_fn(self) -> Callable[[], Any]:
        prefix, given = self.prefix_path, self.run_options()

        def connect() -> Any:
            import fsspec

            return fsspec.core.url_to_fs(prefix, **given)[0]

        return connect

    def get_full_path(self, path: str) -> str:
        """With hdfs:// before it."""
        return path if path.startswith("hdfs://") else "hdfs://" + path

    @classmethod
    def filesystem_prefix(cls) -> str:
        """How its paths begin."""
        return "hdfs://"


class DBFSLocalStore(LocalStore):
    """Databricks' file system, by its mount /dbfs."""

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(self.normalize_path(prefix_path), *args, **kwargs)

    def get_full_path(self, path: str) -> str:
        """With file:// before the mount's path."""
        return super().get_full_path(self.normalize_path(path))

    @staticmethod
    def normalize_path(path: str) -> str:
        """dbfs:/x and file:/dbfs/x as /dbfs/x."""
        path = path.removeprefix("file://").removeprefix("file:")
        if path.startswith("dbfs:"):
            path = "/dbfs/" + path.removeprefix("dbfs:").lstrip("/")
        return path

    @staticmethod
    def matches_dbfs(path: str) -> bool:
        """Whether it is a path of Databricks' file system."""
        return path.startswith(("dbfs:/", "/dbfs/", "file:/dbfs/", "file:///dbfs/"))
