"""An experiment is a name that its runs have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._refuse import internal
from ..exceptions import UserErrorException
from ._plan import Plan, plan_of
from .run import EXPERIMENT, INTERACTIVE, PARENT, Run

if TYPE_CHECKING:
    from .workspace import Workspace


class Experiment:
    """Runs under one name."""

    def __init__(self, workspace: Workspace, name: str, _skip_name_validation: bool = False, **given: Any) -> None:
        internal(Experiment.__init__, "Experiment", given)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}", name or ""):
            raise UserErrorException(
                f"{name!r} is no name of an experiment: it begins with a letter or digit and has letters, digits, - and _"
            )
        self.workspace, self.name = workspace, name
        self.id = name

    def __repr__(self) -> str:
        return f"Experiment(Name: {self.name},\nWorkspace: {self.workspace.name})"

    def submit(self, config: Any, tags: dict[str, str] | None = None, **kwargs: Any) -> Run:
        """Hands a run to the server and answers it at once."""
        internal(Experiment.submit, "Experiment.submit", kwargs)
        return self._submit(plan_of(config), tags, None)

    def _submit(self, plan: Plan, tags: dict[str, str] | None, parent: str | None) -> Run:
        from ._submit import submit

        marks = {**(tags or {}), EXPERIMENT: self.name}
        if parent:
            marks[PARENT] = parent
        return Run(self, job=submit(self, plan, marks))

    def start_logging(
        self,
        outputs: object = None,
        snapshot_directory: str | None = None,
        display_name: str | None = None,
        **given: Any,
    ) -> Run:
        """A run that this program logs to, until complete(), fail() or the end of its with block."""
        internal(Experiment.start_logging, "Experiment.start_logging", given)
        return self._interactive(display_name, None, snapshot_directory)

    def _interactive(self, name: str | None, parent: str | None, folder: str | None = None) -> Run:
        tags = {EXPERIMENT: self.name, INTERACTIVE: "running"} | ({PARENT: parent} if parent else {})
        client = self.workspace.client
        return Run(
            self,
            job=client.submit(
                ["true"], folder=folder, held=True, name=name or self.name, project=self.workspace.name, tags=tags
            ),
        )

    def get_runs(
        self,
        type: str | None = None,
        tags: dict[str, str] | str | None = None,
        properties: dict[str, str] | str | None = None,
        status: str | None = None,
        include_children: bool = False,
    ) -> Iterator[Run]:
        """The experiment's runs, the newest first."""
        for job in self.workspace.client.jobs(project=self.workspace.name):
            if job.tags.get(EXPERIMENT) == self.name and (include_children or PARENT not in job.tags):
                run = Run(self, job=job)
                if run._fits(tags, properties, status):
                    yield run

    @staticmethod
    def list(
        workspace: Workspace, experiment_name: str | None = None, view_type: object = None, tags: object = None
    ) -> list[Experiment]:
        """The workspace's experiments that have runs."""
        names = dict.fromkeys(
            j.tags[EXPERIMENT] for j in workspace.client.jobs(project=workspace.name) if EXPERIMENT in j.tags
        )
        return [Experiment(workspace, n) for n in names if experiment_name in (None, n)]

    def get_portal_url(self) -> str:
        """The server's pages."""
        return self.workspace._pages()

    def get_docs_url(self) -> str:
        """The server's pages."""
        return self.workspace._pages()
