"""Datasets are not here: a job reads files, or `hora.dataset`."""

from __future__ import annotations

from typing import Any, NoReturn

from .._refuse import refused

_INSTEAD = "upload the files with workspace.get_default_datastore().upload(...) and hand over .path(...).as_mount(), or read tables with hora.dataset"


class _Refused(type):
    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refused(f"Dataset.{name}", _INSTEAD)


class Dataset(metaclass=_Refused):
    """A registered dataset; all of its calls are refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refused("Dataset", _INSTEAD)
