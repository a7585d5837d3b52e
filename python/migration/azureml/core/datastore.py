"""A workspace's files: a folder of this user, which goes along with the runs that name it."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from .. import _state
from .._refuse import refused
from ..data.data_reference import DataReference
from ..exceptions import UserErrorException

if TYPE_CHECKING:
    from .workspace import Workspace

DEFAULT = "workspaceblobstore"


class Datastore:
    """The default datastore of a workspace."""

    def __init__(self, workspace: Workspace, name: str | None = None) -> None:
        if name not in (None, DEFAULT):
            refused(
                f"the datastore {name}",
                f"a workspace has one, {DEFAULT}, a folder of yours: workspace.get_default_datastore()",
            )
        self.workspace, self.name = workspace, DEFAULT
        self.datastore_type, self.account_name, self.container_name = "AzureBlob", "hora", workspace.name

    @staticmethod
    def get(workspace: Workspace, datastore_name: str) -> Datastore:
        """The datastore of that name."""
        return Datastore(workspace, datastore_name)

    @staticmethod
    def get_default(workspace: Workspace) -> Datastore:
        """The default datastore."""
        return Datastore(workspace)

    @staticmethod
    def register_azure_blob_container(*_: Any, **__: Any) -> None:
        """Refused."""
        refused("Datastore.register_azure_blob_container", "jobs read s3:// and http:// addresses with hora.dataset")

    @property
    def folder(self) -> Path:
        """Where its files are on this machine."""
        return _state.data_folder(self.workspace.name) / self.name

    def _at(self, path: str | None) -> Path:
        below = PurePosixPath(str(path or "").replace("\\", "/"))
        at = (self.folder / str(below).lstrip("/")).resolve()
        root = self.folder.resolve()
        if at != root and root not in at.parents:
            raise UserErrorException(f"{path} leads out of the datastore {self.name}: give a path below it")
        return at

    def upload(
        self, src_dir: str, target_path: str | None = None, overwrite: bool = False, show_progress: bool = True
    ) -> DataReference:
        """Copies a folder's files into the datastore."""
        source = Path(src_dir)
        if not source.is_dir():
            raise UserErrorException(f"upload {src_dir}: there is no such folder")
        files = [p for p in sorted(source.rglob("*")) if p.is_file()]
        return self.upload_files([str(p) for p in files], str(source), target_path, overwrite, show_progress)

    def upload_files(
        self,
        files: list[str],
        relative_root: str | None = None,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataReference:
        """Copies files into the datastore."""
        for name in files:
            source = Path(name)
            if not source.is_file():
                raise UserErrorException(f"upload {name}: there is no such file")
            below = source.resolve().relative_to(Path(relative_root).resolve()) if relative_root else Path(source.name)
            at = self._at(target_path) / below
            if at.exists() and not overwrite:
                continue
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, at)
            if show_progress:
                print(f"Uploaded {source} to {target_path or ''}/{below}".replace("//", "/"))
        return DataReference(self, path_on_datastore=target_path)

    def download(
        self, target_path: str, prefix: str | None = None, overwrite: bool = False, show_progress: bool = True
    ) -> int:
        """Copies the datastore's files below a prefix into a folder; how many there were."""
        count = 0
        for source in sorted(self.folder.rglob("*")):
            below = source.relative_to(self.folder).as_posix()
            if source.is_file() and below.startswith(prefix or ""):
                at = Path(target_path) / below
                if overwrite or not at.exists():
                    at.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, at)
                count += 1
        return count

    def path(self, path: str | None = None, data_reference_name: str | None = None) -> DataReference:
        """A reference to a file or folder, to be handed to a script."""
        return DataReference(self, data_reference_name, path)

    def as_mount(self) -> DataReference:
        """A reference to the whole datastore."""
        return self.path()

    as_download = as_mount
