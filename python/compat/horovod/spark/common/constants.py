"""Words that describe columns."""

from __future__ import annotations

__all__ = ["ARRAY", "CUSTOM_SPARSE", "NOCHANGE", "TOTAL_BUFFER_MEMORY_CAP_GIB"]

ARRAY = "array"
CUSTOM_SPARSE = "custom_sparse_format"
NOCHANGE = "nochange"
TOTAL_BUFFER_MEMORY_CAP_GIB = 4
