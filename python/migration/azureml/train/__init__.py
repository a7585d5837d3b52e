"""Estimators."""

from .._absent import absent as _absent

__getattr__ = _absent(__name__)
