"""Folders where runs are kept: a path that all machines share, or a URL that fsspec knows. And what a run leaves
there."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, HoraError
from . import _settled

if TYPE_CHECKING:
    from ._training import Plan

_HEAD = struct.Struct("<Iq")  # a checksum of what follows, and how long its JSON is


def absolute(url: str) -> str:
    """A store's place for every machine: executors have working folders of their own. A URL stays as it is."""
    return url if "://" in url or url.startswith(("dbfs:/", "file:")) else os.path.abspath(url)


class Store:
    """Files by name below a folder."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = str(url).rstrip("/") or "/"
        self._fs: Any = None
        path = self.url
        if path.startswith("dbfs:/"):  # where Databricks mounts it
            path = "/dbfs/" + path.removeprefix("dbfs:").lstrip("/")
        elif path.startswith("file:"):
            path = "/" + path.removeprefix("file:").lstrip("/")
        if "://" in path:
            self._fs, path = _remote(path, options or {})
        self.root = path
        self.last = ""  # the name of the checkpoint that was read or written at last

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The names that they have in turn: a write to a URL may be torn, and leaves the one before; a file is replaced
        at once."""
        return ("checkpoint",) if self.local else ("checkpoint", "checkpoint.other")

    @property
    def local(self) -> bool:
        """Whether it is a path of this machine's, shared or not."""
        return self._fs is None

    def path(self, name: str) -> str:
        """Where a file of this name lies."""
        return f"{self.root.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        """A file's bytes, None where it is not there."""
        try:
            if self._fs is None:
                with open(self.path(name), "rb") as f:
                    return f.read()
            return bytes(self._fs.cat_file(self.path(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """A whole file, or none: what was there before is there until the new one is whole. That of a URL may be torn
        by a failure."""
        path = self.path(name)
        if self._fs is not None:
            self._fs.makedirs(os.path.dirname(path), exist_ok=True)
            self._fs.pipe_file(path, data)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.{os.getpid()}~"
        with open(beside, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)


def _remote(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise HoraError(
            f"the store {url} is read with the package fsspec, which is not here; run `pip install fsspec`"
        ) from None
    try:
        fs, path = fsspec.core.url_to_fs(
            "s3://" + url.partition("://")[2] if url.startswith(("s3a://", "s3n://")) else url, **options
        )
    except ImportError as e:
        raise HoraError(f"the store {url} needs a package that is not here: {e}") from None
    except (TypeError, ValueError) as e:  # the former where options are not those of the file system
        raise ArgumentError(f"the store {url}: {e}; give a path, or a URL such as s3://… or hdfs://…") from None
    return fs, str(path)


def seal(store: Store, run: str, token: str) -> None:
    """The driver's mark in a run's folder, by which rank 0 knows that it sees the same folder."""
    try:
        store.write(f"runs/{run}/seal", token.encode())
    except OSError as e:
        raise ArgumentError(
            f"Estimator.fit: the store {store.url} cannot be written: {e.strerror or e}; give another folder"
        ) from e


def restore(store: Store, plan: Plan) -> tuple[int, bytes | None, list[dict[str, float]]]:
    """Where a run goes on: from the latest checkpoint that is whole."""
    _same_folder(store, plan)
    read = [(name, store.read(f"runs/{plan.run}/{name}")) for name in store.checkpoints]
    whole = [(*found, name) for name, data in read if data is not None and (found := _unpacked(data)) is not None]
    if not whole:
        if all(data is not None for _, data in read):
            raise HoraError(
                f"Estimator.fit: the checkpoint of run_id={plan.run!r} in the store {store.url} is damaged; remove the run's folder, or give "
                "another run_id"
            )
        return 0, None, []  # where one of two is there and torn, the first write was not over
    head, state, store.last = max(whole, key=lambda found: found[0]["epoch"])
    _settled.check(plan.run, head["settled"], plan.settled)
    return int(head["epoch"]), state, head["history"]


def _same_folder(store: Store, plan: Plan) -> None:
    """Raises where the run's folder is not the driver's, or is another fit's by now."""
    import platform

    said = store.read(f"runs/{plan.run}/seal")
    if said is None:
        raise ArgumentError(
            f"Estimator.fit: the store {store.url} on {platform.node()}, where rank 0 runs, is not the driver's folder of that name; give a "
            "folder that all machines share, or a URL such as s3://… or hdfs://…"
        )
    if said != plan.seal.encode():
        raise ArgumentError(
            f"Estimator.fit: the run {plan.run!r} in the store {store.url} on {platform.node()}, where rank 0 runs, is another fit's; give each "
            "fit a run_id of its own, and a folder that all machines share"
        )


def _unpacked(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """A checkpoint's head and state; None where it was not written to its end."""
    if len(data) < _HEAD.size:
        return None
    check, length = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != check:
        return None
    return json.loads(data[_HEAD.size : _HEAD.size + length]), data[_HEAD.size + length :]


def checkpoint(store: Store, plan: Plan, epoch: int, history: list[dict[str, float]], state: bytes) -> None:
    """What a run goes on from: so many epochs are done. The one before stays until this one is whole."""
    _same_folder(store, plan)
    head = json.dumps({"epoch": epoch, "history": history, "settled": plan.settled}).encode()
    name = (
        store.checkpoints[(store.checkpoints.index(store.last) + 1) % len(store.checkpoints)]
        if store.last
        else store.checkpoints[0]
    )
    store.write(f"runs/{plan.run}/{name}", _HEAD.pack(zlib.crc32(state, zlib.crc32(head)), len(head)) + head + state)
    store.last = name
