"""What the arguments of make_reader and make_batch_reader ask for."""

from __future__ import annotations

import warnings

from hora.dataset._arguments import place

from .cache import NullCache
from .local_disk_cache import LocalDiskCache

LOCAL_DISK_CACHE = "local-disk"
NULL_CACHE = "null"


def pool(kind):
    """Refuse a pool that Petastorm has not; those it has are all the loader's threads here."""
    if kind not in ("thread", "process", "dummy"):
        raise ValueError(f"Unknown reader_pool_type: {kind}")


def cache(kind, location, limit, row, extra):
    """The cache that cache_type and what goes with it ask for."""
    if kind is None or kind == NULL_CACHE:
        return NullCache()
    if kind == LOCAL_DISK_CACHE:
        warnings.warn(
            "cache_type='local-disk': hora reads the files themselves, and puts nothing into the cache", stacklevel=3
        )
        return LocalDiskCache(location, limit, row, **extra or {})
    raise ValueError(f"Unknown cache_type: {kind}")


def shard(cur_shard, shard_count):
    """Which part of how many is read: the job's own where nothing is said."""
    if cur_shard is None and shard_count is None:
        return place()
    if not isinstance(cur_shard, int) or not isinstance(shard_count, int) or not 0 <= cur_shard < shard_count:
        raise ValueError(
            f"cur_shard and shard_count must be ints and both specified, the first below the second; they are {cur_shard!r} and {shard_count!r}"
        )
    return cur_shard, shard_count


def alternatives(filters):
    """Lists of conditions, of which one is to hold: filters may be a single one."""
    if not filters:
        return []
    return [list(g) for g in filters] if all(isinstance(g, list) for g in filters) else [list(filters)]


def unfit(asked, schema):
    """What is wrong with the fields that a predicate asks for, as an error; None: nothing. As in Petastorm the first
    row raises it."""
    if not asked:
        return ValueError("At least one field name must be returned by predicate's get_field() method")
    unknown = asked - set(schema.fields)
    if unknown:
        return ValueError(
            f"At least some column names requested by the predicate ({sorted(unknown)}) are not valid names: {list(schema.fields)}"
        )
    return None
