"""Caches of what a function answers."""

from __future__ import annotations

import abc


class CacheBase(abc.ABC):
    """What a cache can do."""

    @abc.abstractmethod
    def get(self, key, fill_cache_func):
        """The value of a key; where there is none the function makes it."""


class NullCache(CacheBase):
    """Keeps nothing."""

    def get(self, key, fill_cache_func):
        return fill_cache_func()

    def cleanup(self):
        """There is nothing to let go of."""
