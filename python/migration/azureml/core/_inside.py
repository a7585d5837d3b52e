"""The run of a process that a server has started."""

from __future__ import annotations

import os
from typing import Any

from hora.server import Client, Job, ServerError, tell

from ..exceptions import UserErrorException
from . import _metrics
from ._files import path_of
from .experiment import Experiment
from .run import FAILED, PROPERTY, Run, outputs_of_this_process
from .workspace import Workspace

_this: SubmittedRun | None = None


class SubmittedRun(Run):
    """It logs without a connection to the server: what keeps the job takes it and hands it on."""

    def __init__(self, number: int) -> None:
        # Not Run's: a job's process has the server's token where its user has it on this machine, and needs none for
        # logging.
        workspace = Workspace(workspace_name=os.environ.get("AZUREML_ARM_WORKSPACE_NAME", "default"))
        self.experiment = Experiment(workspace, os.environ.get("AZUREML_ARM_PROJECT_NAME", "hora"))
        self.number, self.id = number, f"{self.experiment.name}_{number}"
        self._asked: Job | None = None
        self._steps: dict[str, int] = {}

    @staticmethod
    def this(number: int) -> SubmittedRun:
        """The one of this process."""
        global _this
        if _this is None or _this.number != number:
            _this = SubmittedRun(number)
        return _this

    def __repr__(self) -> str:
        return f"Run(Experiment: {self.experiment.name},\nId: {self.id},\nType: azureml.scriptrun,\nStatus: Running)"

    @property
    def _client(self) -> Client:
        try:
            return self.experiment.workspace.client
        except (UserErrorException, ServerError) as e:
            raise UserErrorException(
                f"a run's process can log and upload; what asks the server needs HORA_SERVER and HORA_TOKEN: {e}"
            ) from e

    @property
    def _job(self) -> Job:
        if self._asked is None:
            self._asked = self._client.job(self.number)
        return self._asked

    @_job.setter
    def _job(self, to: Job) -> None:
        self._asked = to

    def get_status(self) -> str:
        """It runs."""
        return "Running"

    def _mark(self, tags: dict[str, str], remove: Any = ()) -> None:
        if remove or not tell(tags=tags):
            super()._mark(tags, remove)

    def add_properties(self, properties: dict[str, str]) -> None:
        """Gives the run properties."""
        self._mark({PROPERTY + k: str(v) for k, v in properties.items()})

    def fail(self, error_details: Any = None, error_code: str | None = None, _set_status: bool = True) -> None:
        """Has the run count as failed, however its script ends."""
        self._mark({FAILED: str(error_details or error_code or "the script said so")})

    def complete(self, _set_status: bool = True) -> None:
        """The run ends with its script: nothing is done."""

    def _log_number(self, name: str, value: float, step: int | None) -> None:
        if step is None:
            step = self._steps.get(name, -1) + 1
        self._steps[name] = int(step)
        tell(int(step), {name: value})

    def _record(self, name: str, kind: str, value: Any) -> None:
        _metrics.append(outputs_of_this_process(), _metrics.record(name, kind, value))

    def _upload(self, path: str, content: Any) -> None:
        at = outputs_of_this_process() / path_of(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        new = at.with_name(f".{at.name}.{os.getpid()}.new")
        new.write_bytes(content)
        new.replace(at)
