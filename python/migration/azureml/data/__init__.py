"""What scripts name data by."""

from .data_reference import DataReference

__all__ = ["DataReference"]
