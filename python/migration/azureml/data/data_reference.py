"""A file or folder of a datastore: it goes along with the run, and the script gets its path there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._refuse import refused

if TYPE_CHECKING:
    from ..core.datastore import Datastore


class DataReference:
    """Where a script finds files of a datastore."""

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        mode: str = "mount",
        path_on_compute: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.datastore, self.mode = datastore, mode
        self.path_on_datastore = (path_on_datastore or "").strip("/").removeprefix("./")
        self.data_reference_name = (
            data_reference_name or "".join(c if c.isalnum() else "_" for c in self.path_on_datastore) or datastore.name
        )

    def as_mount(self) -> DataReference:
        """The same: the files are in the run's folder."""
        return self

    def as_download(self, path_on_compute: str | None = None, overwrite: bool = False) -> DataReference:
        """The same: the files are in the run's folder."""
        return self

    def as_upload(self, *_: Any, **__: Any) -> None:
        """Refused."""
        refused(
            "DataReference.as_upload",
            "what a script writes into outputs/ comes back, and run.download_files fetches it",
        )

    def path(self, path: str | None = None, data_reference_name: str | None = None) -> DataReference:
        """A reference below this one."""
        below = "/".join(filter(None, (self.path_on_datastore, path)))
        return DataReference(self.datastore, data_reference_name, below)

    def to_config(self) -> DataReference:
        """The same, as run_config.data_references takes it."""
        return self

    @property
    def source(self) -> Path:
        """Where the files are on this machine."""
        return self.datastore._at(self.path_on_datastore)

    @property
    def below(self) -> str:
        """Where they are in the run's folder."""
        return "/".join(filter(None, (".azureml-data", self.datastore.name, self.path_on_datastore)))

    def __str__(self) -> str:
        return f"$AZUREML_DATAREFERENCE_{self.data_reference_name}"

    def __repr__(self) -> str:
        return f"DataReference({self.datastore.name}/{self.path_on_datastore})"
