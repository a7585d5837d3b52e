"""Estimators with a framework."""

from __future__ import annotations

from typing import Any

from .._absent import absent
from .._refuse import refused
from .estimator import Estimator, Gloo, Mpi, Nccl, ParameterServer

__all__ = ["Chainer", "Gloo", "Mpi", "Nccl", "ParameterServer", "PyTorch", "TensorFlow"]


class PyTorch(Estimator):
    """An estimator with torch: the pool's own, or the release that is nearest to framework_version."""

    _package = "torch"

    @staticmethod
    def get_supported_versions() -> list[str]:
        """Releases that scripts name; the nearest that installs is taken."""
        return ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6"]


class TensorFlow(Estimator):
    """An estimator with TensorFlow: the pool's own, or the release that is nearest to framework_version."""

    _package = "tensorflow"

    @staticmethod
    def get_supported_versions() -> list[str]:
        """Releases that scripts name; the nearest that installs is taken."""
        return ["1.10", "1.12", "1.13", "2.0", "2.1", "2.2"]


class Chainer:
    """Refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refused("Chainer", "its project has ended: use PyTorch")


__getattr__ = absent(__name__)
