"""A cache in a folder of this machine: of this user's alone, bounded, safe to delete."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile

from .cache import CacheBase


class LocalDiskCache(CacheBase):
    """Values by key as files in a folder; the oldest go when there are more bytes than allowed.

    What is in it was written by this user: a folder of anybody else's is refused, as its content is unpickled.
    """

    def __init__(self, path, size_limit_bytes, expected_row_size_bytes, shards=6, cleanup=True, **settings):
        if not size_limit_bytes or (
            settings.get("eviction_policy") != "none" and size_limit_bytes / shards < 5 * (expected_row_size_bytes or 0)
        ):
            raise ValueError(
                "Condition 'size_limit_bytes / shards < 5 * expected_row_size_bytes' needs to hold, otherwise, newly added values might be "
                f"evicted at once: {size_limit_bytes} bytes in {shards} shards have no room for five rows of {expected_row_size_bytes}"
            )
        self._path, self._limit, self._cleanup = path, size_limit_bytes, cleanup
        os.makedirs(path, mode=0o700, exist_ok=True)
        about = os.stat(path)
        if about.st_uid != os.getuid() or about.st_mode & 0o022:
            raise PermissionError(
                f"the cache's folder {path} may be written to by others; use one of your own (chmod 700)"
            )

    def get(self, key, fill_cache_func):
        name = os.path.join(self._path, hashlib.sha256(repr(key).encode()).hexdigest())
        try:
            with open(name, "rb") as f:
                value = pickle.load(f)  # written by this user: see above
            os.utime(name)
            return value
        except (OSError, EOFError, pickle.UnpicklingError):
            pass
        value = fill_cache_func()
        fd, made = tempfile.mkstemp(dir=self._path, prefix=".")
        with os.fdopen(fd, "wb") as f:
            pickle.dump(value, f)
        os.replace(made, name)
        self._trim()
        return value

    def size(self):
        """Bytes that are kept."""
        return sum(size for _, size, _ in self._files())

    def _files(self):
        found = []
        for entry in os.scandir(self._path):
            about = entry.stat()
            found.append((about.st_mtime_ns, about.st_size, entry.path))
        return found

    def _trim(self):
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._limit:
                return
            os.unlink(path)
            total -= size

    def cleanup(self):
        """Remove the folder, where the cache was made to; one that cannot be removed is told of, and stays."""
        if not self._cleanup:
            return
        try:
            shutil.rmtree(self._path)
        except FileNotFoundError:
            pass
        except OSError as e:
            print(f"Error during rmtree: {e}", flush=True)
