"""A run is a job of the server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hora.server import Client, Job, ServerError

from .._absent import instead
from .._refuse import internal, refused
from ..exceptions import RunEnvironmentException, UserErrorException
from . import _metrics
from ._files import Files, path_of
from ._logging import Logging
from ._offline import OfflineRun as _OfflineRun

if TYPE_CHECKING:
    from .experiment import Experiment
    from .workspace import Workspace

# Tags of a job that are no tags of its run.
EXPERIMENT, PARENT, FAILED, PROPERTY = "azureml.experiment", "azureml.parent", "azureml.failed", "azureml.property."
INTERACTIVE = "azureml.interactive"  # a run without a script: its job waits, paused, until the run is completed
_STATUS = {
    "queued": "Queued", "paused": "Queued", "preparing": "Preparing", "running": "Running",
    "finished": "Completed", "failed": "Failed", "cancelled": "Canceled",
}  # fmt: skip


def _number(run_id: str) -> int:
    try:
        return int(run_id.rpartition("_")[2])
    except ValueError:
        raise UserErrorException(f"{run_id!r} is no run's id: it is EXPERIMENT_NUMBER, as run.id has it") from None


class Run(Logging, Files):
    """One run: in a script that a server runs it is the script's own (Run.get_context), elsewhere one to be
    followed."""

    def __init__(
        self,
        experiment: Experiment,
        run_id: str | None = None,
        outputs: object = None,
        *,
        job: Job | None = None,
        **given: Any,
    ) -> None:
        internal(Run.__init__, "Run", given)
        if job is None:
            if run_id is None:
                raise TypeError("Run needs a run_id: experiment.submit and experiment.get_runs answer runs")
            job = _job_of(experiment.workspace.client, run_id)
        self.experiment: Experiment = experiment
        self._job = job
        self.number, self.id = job.id, f"{experiment.name}_{job.id}"

    def __repr__(self) -> str:
        return f"Run(Experiment: {self.experiment.name},\nId: {self.id},\nType: azureml.scriptrun,\nStatus: {self.get_status()})"

    @property
    def _client(self) -> Client:
        return self.experiment.workspace.client

    @staticmethod
    def get_context(allow_offline: bool = True, used_for_context_manager: bool = False, **given: Any) -> Run:
        """This process's run. Outside a job of a server it is one that prints what is logged."""
        internal(Run.get_context, "Run.get_context", given)
        number = os.environ.get("HORA_SERVER_JOB")
        if number:
            from ._inside import SubmittedRun

            return SubmittedRun.this(int(number))
        if not allow_offline:
            raise RunEnvironmentException(
                "this process is no run of a server: submit the script, or leave allow_offline out"
            )
        return _OfflineRun()  # type: ignore[return-value]

    @staticmethod
    def get(workspace: Workspace, run_id: str) -> Run:
        """One run by its id."""
        return of_job(workspace, _job_of(workspace.client, run_id))

    @staticmethod
    def list(
        experiment: Experiment,
        type: str | None = None,
        tags: Any = None,
        properties: Any = None,
        status: str | None = None,
        include_children: bool = False,
        _rehydrate_runs: bool = True,
    ) -> Iterator[Run]:
        """An experiment's runs, the newest first."""
        return experiment.get_runs(type, tags, properties, status, include_children)

    def _now(self) -> Job:
        if not self._job.ended:
            self._job = self._client.job(self.number)
        return self._job

    @property
    def type(self) -> str:
        """What kind of run it is."""
        return "azureml.scriptrun"

    @property
    def name(self) -> str:
        """The run's name."""
        return self.id

    display_name = name

    @property
    def status(self) -> str:
        """Where it stands."""
        return self.get_status()

    def get_status(self) -> str:
        """Where it stands: Queued, Provisioning, Preparing, Running, CancelRequested, Completed, Failed or Canceled."""
        job = self._job = self._client.job(self.number)
        ending = job.ended or bool(job.raw.get("stopping"))
        if FAILED in job.tags and ending:
            return "Failed"
        if INTERACTIVE in job.tags and (job.tags[INTERACTIVE] == "completed" or not ending):
            return "Completed" if job.tags[INTERACTIVE] == "completed" else "Running"
        if ending and not job.ended:
            return "CancelRequested"
        if job.state == "queued" and (job.raw.get("reason") or {}).get("code") == "nodes" and self._provisioned():
            return "Provisioning"
        return _STATUS.get(job.state, "Running")

    def _provisioned(self) -> bool:
        """Whether nodes of its pool are being made."""
        pool = self._job.document.get("pool", "default")
        return any(p["name"] == pool and p.get("starting") for p in self._client.pools())

    def get_details(self) -> dict[str, Any]:
        """Where it stands, why it waits, and how it ended."""
        status = self.get_status()
        job = self._job
        document = job.document
        found: dict[str, Any] = {
            "runId": self.id, "target": document.get("pool", "default"), "status": status,
            "startTimeUtc": job.raw.get("started"), "endTimeUtc": job.raw.get("ended"), "services": {},
            "properties": self.get_properties(), "inputDatasets": [], "outputDatasets": [],
            "runDefinition": {"script": None, "command": document["spec"].get("command"), "target": document.get("pool", "default")},
            "logFiles": {n: f"{self.get_portal_url()}#{n}" for n in self._log_names()},
            "submittedBy": job.raw.get("user", ""),
        }  # fmt: skip
        if job.reason:
            found["warnings"] = [{"source": "hora", "message": job.reason}]
            found["reason"] = dict(job.raw["reason"])
        if status == "Failed":
            found["error"] = {
                "error": {"code": "UserError", "message": job.tags.get(FAILED) or job.text, "exitCode": job.exit_code}
            }
        return found

    def get_details_with_logs(self) -> dict[str, Any]:
        """The same with what it has written."""
        found = self.get_details()
        found["logFiles"] = {n: self._log(n) for n in self._log_names()}
        return found

    def get_portal_url(self) -> str:
        """The run's page."""
        return f"{self.experiment.workspace._pages()}/jobs/{self.number}"

    def wait_for_completion(
        self, show_output: bool = False, wait_post_processing: bool = False, raise_on_error: bool = True
    ) -> dict[str, Any]:
        """Waits until the run has ended; a failed one is an error, unless raise_on_error is False."""
        from ._wait import wait

        return wait(self, show_output, raise_on_error)

    def cancel(self) -> None:
        """Ends the run."""
        if not self._now().ended:
            try:
                self._job = self._client.cancel(self.number)
            except ServerError as e:
                if e.status != 409:  # it has just ended
                    raise

    def complete(self, _set_status: bool = True) -> None:
        """Ends a run of start_logging or child_run; one that has a script ends with it."""
        if self._now().tags.get(INTERACTIVE) == "running":
            self._mark({INTERACTIVE: "completed"})
            self._client.resume(self.number)  # its job has nothing left to do

    def fail(self, error_details: Any = None, error_code: str | None = None, _set_status: bool = True) -> None:
        """Ends the run as failed."""
        self._mark({FAILED: str(error_details or error_code or "the script said so")})
        self.cancel()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.complete()
        else:
            self.fail(repr(error))

    def start(self) -> None:
        """A run starts by itself: nothing is done."""

    def flush(self, timeout_seconds: float = 300) -> None:
        """What was logged is on its way already: nothing is done."""

    # Tags and properties.
    def _mark(self, tags: dict[str, str], remove: Any = ()) -> None:
        self._job = self._client.tag(self.number, tags, remove)

    def get_tags(self, _all: bool = False) -> dict[str, Any]:
        """The run's tags."""
        found = self._client.job(self.number).tags
        return {k: v if v or _all else None for k, v in found.items() if _all or not k.startswith("azureml.")}

    @property
    def tags(self) -> dict[str, str]:
        """The run's tags."""
        return self.get_tags()

    def tag(self, key: str, value: str | None = None) -> None:
        """Gives the run a tag."""
        self.set_tags({key: value})

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Gives the run tags."""
        self._mark({k: "" if v is None else str(v) for k, v in tags.items()})

    def remove_tags(self, tags: Any) -> dict[str, str]:
        """Takes tags from the run."""
        self._mark({}, [tags] if isinstance(tags, str) else tags)
        return self.get_tags()

    def get_properties(self) -> dict[str, str]:
        """The run's properties."""
        return {k.removeprefix(PROPERTY): v for k, v in self.get_tags(_all=True).items() if k.startswith(PROPERTY)}

    @property
    def properties(self) -> dict[str, str]:
        """The run's properties."""
        return self.get_properties()

    def add_properties(self, properties: dict[str, str]) -> None:
        """Gives the run properties, which stay as they are."""
        have = self.get_properties()
        twice = [k for k in properties if k in have and have[k] != str(properties[k])]
        if twice:
            raise UserErrorException(
                f"property {twice[0]} of run {self.id} is {have[twice[0]]!r}, and properties stay as they are: use a tag"
            )
        self._mark({PROPERTY + k: str(v) for k, v in properties.items()})

    def _fits(self, tags: Any, properties: Any, status: str | None) -> bool:
        of_job = self._job.tags
        for asked, before in ((tags, ""), (properties, PROPERTY)):
            for key, value in ({asked: None} if isinstance(asked, str) else asked or {}).items():
                if before + key not in of_job or value is not None and of_job[before + key] != str(value):
                    return False
        return status is None or self.get_status() == status

    # Runs below this one.
    @property
    def parent(self) -> Run | None:
        """The run that has submitted this one."""
        above = self._job.tags.get(PARENT)
        return Run.get(self.experiment.workspace, above) if above else None

    def submit_child(self, config: Any, tags: dict[str, str] | None = None, **given: Any) -> Run:
        """Submits a run below this one."""
        internal(Run.submit_child, "Run.submit_child", given)
        from ._plan import plan_of

        return self.experiment._submit(plan_of(config), tags, self.id)

    def child_run(self, name: str | None = None, run_id: object = None, outputs: object = None) -> Run:
        """A run below this one that this program logs to, until complete() or the end of its with block."""
        return self.experiment._interactive(name, self.id)

    def create_children(self, count: int | None = None, tag_key: str | None = None, tag_values: Any = None) -> Any:
        """Several of them, each with a tag where that is asked for."""
        values = [None] * (count or 0) if tag_values is None else [*tag_values]
        if count not in (None, len(values)):
            raise UserErrorException(
                f"create_children: count is {count}, and tag_values has {len(values)}: give one value a child"
            )
        made = [self.child_run() for _ in values]
        for child, value in zip(made, values, strict=True):
            if tag_key is not None and value is not None:
                child.tag(tag_key, value)
        return made

    def get_children(
        self,
        recursive: bool = False,
        tags: Any = None,
        properties: Any = None,
        type: str | None = None,
        status: str | None = None,
        _rehydrate_runs: bool = True,
    ) -> Iterator[Run]:
        """The runs that this one has submitted, the newest first."""
        for job in self._client.jobs(project=self.experiment.workspace.name):
            if job.tags.get(PARENT) == self.id:
                run = of_job(self.experiment.workspace, job)
                if run._fits(tags, properties, status):
                    yield run
                if recursive:
                    yield from run.get_children(True, tags, properties, type, status)

    def register_model(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused(
            "Run.register_model",
            "the server has no registry yet: keep the model in outputs/ and fetch it with run.download_file",
        )

    def get_secret(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused("Run.get_secret", instead("azureml.core.keyvault"))

    get_secrets = get_secret

    def restore_snapshot(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refused(
            "Run.restore_snapshot",
            "this package does not fetch the folder that went along: `hora code ID --to FOLDER` does, with the job's number",
        )

    def get_metrics(
        self,
        name: str | None = None,
        recursive: bool = False,
        run_type: Any = None,
        populate: bool = False,
        root_run_id: Any = None,
    ) -> dict[str, Any]:
        """What was logged, by name: a value, or a list of values where it was logged several times."""
        found = _metrics.read(self._client, self.number, name)
        if recursive:
            for child in self.get_children(True):
                found |= {k: v for k, v in child.get_metrics(name).items() if k not in found}
        return found

    # Where files and lines of a run go, seen from outside.
    def _upload(self, path: str, content: Any) -> None:
        self._client.upload(self.number, path_of(path), content)

    def _log_number(self, name: str, value: float, step: int | None) -> None:
        self._client.report(self.number, {name: value}, step)

    def _record(self, name: str, kind: str, value: Any) -> None:
        _metrics.append_outside(self._client, self.number, _metrics.record(name, kind, value))


def _job_of(client: Client, run_id: str) -> Job:
    try:
        return client.job(_number(run_id))
    except ServerError as e:
        raise UserErrorException(f"run {run_id}: {e}") from e


def of_job(workspace: Workspace, job: Job) -> Run:
    """The run of a job."""
    from .experiment import Experiment

    return Run(Experiment(workspace, job.tags.get(EXPERIMENT, "hora")), job=job)


def outputs_of_this_process() -> Path:
    """Where a job's process writes what comes back."""
    return Path(os.environ.get("HORA_OUTPUTS") or "outputs")
