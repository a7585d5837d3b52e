"""What scripts name data by."""

from .._absent import absent as _absent
from .data_reference import DataReference

__getattr__ = _absent(__name__)

__all__ = ["DataReference"]
