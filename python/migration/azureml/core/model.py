"""Models would be registered here: the server has no registry yet."""

from __future__ import annotations

from typing import Any, NoReturn

from .._absent import absent
from .._refuse import refused

_INSTEAD = "the server has no registry yet: keep the model in the run's outputs/ and fetch it with run.download_file"


class Model:
    """A registered model; all of its calls are refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refused("Model", _INSTEAD)

    @staticmethod
    def register(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Model.register", _INSTEAD)

    @staticmethod
    def list(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Model.list", _INSTEAD)

    @staticmethod
    def get_model_path(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Model.get_model_path", _INSTEAD)

    @staticmethod
    def download(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Model.download", _INSTEAD)

    @staticmethod
    def deploy(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Model.deploy", "models are not served by this release")


__getattr__ = absent(__name__)
