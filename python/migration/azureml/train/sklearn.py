"""The estimator with scikit-learn."""

from __future__ import annotations

from .._absent import absent
from .estimator import Estimator

__all__ = ["SKLearn"]


class SKLearn(Estimator):
    """An estimator with scikit-learn: the pool's own, or the release that is nearest to framework_version."""

    _package = "scikit-learn"


__getattr__ = absent(__name__)
