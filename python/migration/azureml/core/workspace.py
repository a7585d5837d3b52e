"""A workspace is a project of a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hora.server import Client, ServerError

from .. import _state
from .._absent import instead
from .._refuse import internal, notice, refused, unused
from ..exceptions import UserErrorException, WorkspaceException

if TYPE_CHECKING:
    from .compute import ComputeTarget
    from .datastore import Datastore
    from .environment import Environment
    from .experiment import Experiment


class Workspace:
    """A project of the server that HORA_SERVER names, or that `hora up` or `hora login` was called for last."""

    def __init__(
        self,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        workspace_name: str | None = None,
        auth: object = None,
        _location: object = None,
        _disable_service_check: bool = False,
        **given: Any,
    ) -> None:
        internal(Workspace.__init__, "Workspace", {k: v for k, v in given.items() if k not in ("sku", "tags")})
        if not workspace_name:
            raise WorkspaceException(
                "a workspace needs a name, which is that of a project of the server: give workspace_name"
            )
        unused("Workspace", {k: v for k, v in given.items() if not k.startswith("_")})
        self.name = workspace_name
        self.subscription_id = subscription_id or "hora"
        self.resource_group = resource_group or "hora"
        self.location = "local"
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"Workspace.create(name={self.name!r}, subscription_id={self.subscription_id!r}, resource_group={self.resource_group!r})"

    @property
    def client(self) -> Client:
        """The server's client."""
        if self._client is None:
            try:
                self._client = Client()
            except ServerError as e:
                raise UserErrorException(str(e)) from e
        return self._client

    @staticmethod
    def from_config(
        path: str | None = None, auth: object = None, _logger: object = None, _file_name: str | None = None
    ) -> Workspace:
        """The workspace that a config.json names: of this path, or here, in .azureml/ or aml_config/, or in a folder
        above."""
        file = _find(path, _file_name or "config.json")
        if file is None:
            if path is not None:
                raise UserErrorException(
                    f"there is no {_file_name or 'config.json'} at {path}: give the path of one, or of its folder"
                )
            notice(
                "there is no config.json here or in a folder above: the workspace is default, the server's project of that name"
            )
            return Workspace(workspace_name="default")
        try:
            found = json.loads(file.read_text(encoding="utf-8-sig"))
            name = found["workspace_name"]
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise UserErrorException(
                f"read {file}: {e!r}: it has subscription_id, resource_group and workspace_name, as workspace.write_config writes it"
            ) from e
        return Workspace(found.get("subscription_id"), found.get("resource_group"), name)

    @staticmethod
    def get(
        name: str,
        auth: object = None,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        location: object = None,
        cloud: object = None,
        id: object = None,
    ) -> Workspace:
        """The workspace of that name."""
        return Workspace(subscription_id, resource_group, name)

    @staticmethod
    def create(
        name: str,
        auth: object = None,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        *_: Any,
        **given: Any,
    ) -> Workspace:
        """The workspace of that name: a project comes to be with its first job."""
        return Workspace(subscription_id, resource_group, name)

    def write_config(self, path: str | None = None, file_name: str | None = None) -> None:
        """Writes .azureml/config.json, which from_config reads."""
        folder = Path(path or ".") / ".azureml"
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "subscription_id": self.subscription_id,
            "resource_group": self.resource_group,
            "workspace_name": self.name,
        }
        (folder / (file_name or "config.json")).write_text(json.dumps(about, indent=4) + "\n")

    def get_details(self) -> dict[str, Any]:
        """What there is to say of it."""
        return {
            "name": self.name,
            "subscriptionId": self.subscription_id,
            "resourceGroup": self.resource_group,
            "location": self.location,
            "server": self.client.url,
        }

    @property
    def experiments(self) -> dict[str, Experiment]:
        """The experiments that have runs, by name."""
        from .experiment import Experiment

        return {e.name: e for e in Experiment.list(self)}

    @property
    def compute_targets(self) -> dict[str, ComputeTarget]:
        """The server's pools, and what ComputeTarget.create has made."""
        from .compute import ComputeTarget

        return {c.name: c for c in ComputeTarget.list(self)}

    @property
    def environments(self) -> dict[str, Environment]:
        """What Environment.register has kept, and what is known of Azure's own."""
        from .environment import Environment

        return Environment.list(self)

    @property
    def datastores(self) -> dict[str, Datastore]:
        """The one datastore."""
        store = self.get_default_datastore()
        return {store.name: store}

    def get_default_datastore(self) -> Datastore:
        """A folder of yours, whose files go along with the runs that name them."""
        from .datastore import Datastore

        return Datastore(self)

    @property
    def models(self) -> NoReturn:
        """Refused."""
        refused(
            "Workspace.models",
            "the server has no registry yet: keep models in outputs/ and fetch them with run.download_file",
        )

    def get_default_keyvault(self) -> NoReturn:
        """Refused."""
        refused("Workspace.get_default_keyvault", instead("azureml.core.keyvault"))

    def get_mlflow_tracking_uri(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused(
            "Workspace.get_mlflow_tracking_uri",
            "the server does not speak MLflow's interface: log with run.log or hora.report",
        )

    def get_default_compute_target(self, type: str = "CPU") -> ComputeTarget | None:
        """The server's pool default."""
        from .compute import ComputeTarget

        return ComputeTarget(self, "default")

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Workspace.delete", "a project is as long there as its jobs are")

    def _pages(self) -> str:
        """Where a browser finds the server: without the fingerprint that programs have behind its address."""
        return self.client.url.partition("#")[0].rstrip("/")

    # What is kept for a workspace between scripts.
    def _kept(self, kind: str) -> dict[str, Any]:
        return _state.kept(kind, self.client.url, self.name)

    def _changing(self, kind: str) -> Any:
        return _state.changing(kind, self.client.url, self.name)


def _find(path: str | None, name: str) -> Path | None:
    start = Path(path) if path else Path(os.getcwd())
    if start.is_file():
        return start
    start = start.resolve()
    for folder in (start, *start.parents) if start.is_dir() else ():
        for below in (".azureml", "aml_config", ""):
            if (folder / below / name).is_file():
                return folder / below / name
    return None
