"""A run becomes a job."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from hora.server import Job, ServerError, Snapshot

from .._refuse import notice
from ..data.data_reference import DataReference
from ..exceptions import ExperimentExecutionException, UserErrorException
from ._plan import Plan
from .compute import target_of

if TYPE_CHECKING:
    from .experiment import Experiment

# Words that are variables of the run's processes, as scripts' arguments name them.
_VARIABLE = re.compile(
    r"\$\{?(AZUREML_DATAREFERENCE_\w+|(?:AZ_BATCHAI|AZ_BATCH|AZUREML|OMPI_COMM_WORLD)_[A-Z0-9_]+|MASTER_ADDR|MASTER_PORT|NODE_RANK|WORLD_SIZE|LOCAL_RANK|RANK)\}?"
)

# What the SDK's launchers set, from what hora's has set.
_ALWAYS = """
export NODE_RANK="$HORA_CROSS_RANK" AZ_BATCHAI_TASK_INDEX="$HORA_RANK" AZ_BATCHAI_NUM_GPUS="${AZ_BATCHAI_NUM_GPUS:-0}"
export AZ_BATCHAI_PYTORCH_INIT_METHOD="tcp://$MASTER_ADDR:$MASTER_PORT" AZ_BATCH_MASTER_NODE="$MASTER_ADDR:$MASTER_PORT"
"""
_MPI = """
export OMPI_COMM_WORLD_RANK="$HORA_RANK" OMPI_COMM_WORLD_SIZE="$HORA_SIZE" OMPI_COMM_WORLD_LOCAL_RANK="$HORA_LOCAL_RANK"
export OMPI_COMM_WORLD_LOCAL_SIZE="$HORA_LOCAL_SIZE" OMPI_COMM_WORLD_NODE_RANK="$HORA_LOCAL_RANK" OMPI_UNIVERSE_SIZE="$HORA_SIZE"
"""


def _word(word: Any) -> str:
    """A word for the shell: variables of the run stand open, all else is quoted."""
    if isinstance(word, DataReference):
        return '"$PWD/"' + shlex.quote(word.below)
    text = str(word)
    if not _VARIABLE.search(text):
        return shlex.quote(text)
    out, at = "", 0
    for found in _VARIABLE.finditer(text):
        out += (shlex.quote(text[at : found.start()]) if text[at : found.start()] else "") + f'"${{{found.group(1)}}}"'
        at = found.end()
    return out + (shlex.quote(text[at:]) if text[at:] else "")


def _shell(experiment: Experiment, plan: Plan) -> str:
    lines = [f'export AZUREML_RUN_ID={shlex.quote(experiment.name)}_"$HORA_SERVER_JOB"', _ALWAYS.strip()]
    if plan.mpi:
        lines.append(_MPI.strip())
    for one in plan.inputs:
        lines.append(f"export AZUREML_DATAREFERENCE_{one.data_reference_name}={_word(one)}")
    return "\n".join([*lines, "exec " + " ".join(map(_word, plan.command))])


def _folder(plan: Plan) -> Snapshot:
    """The run's folder: the source, the data that it names, and a logs/ whose files come back."""
    taken = Snapshot(plan.folder)
    for one in [w for w in [*plan.command, *plan.inputs] if isinstance(w, DataReference)]:
        if not one.source.exists():
            raise UserErrorException(f"{one!r} is not in the datastore: upload it first, to {one.path_on_datastore}")
        taken.include(one.below, one.source)
    if not any(p == "logs" or p.startswith("logs/") for p in taken.files):
        taken.add("outputs/.azureml/logs/.keep")
        taken.link("logs", "outputs/.azureml/logs")
    return taken


def submit(experiment: Experiment, plan: Plan, tags: dict[str, str]) -> Job:
    """Submits it."""
    workspace = experiment.workspace
    target = target_of(workspace, plan.target)
    shape: dict[str, Any] = {"np": plan.nodes * plan.per_node}
    if target.pool_of_its_own:
        shape = {"nodes": plan.nodes, "per_node": plan.per_node, "whole": True}
    elif plan.nodes > 1:
        notice(
            f"{target.name} is the server's pool {target.pool}: {plan.nodes} nodes with {plan.per_node} "
            f"process{'es' * (plan.per_node != 1)} each run as {plan.nodes * plan.per_node} processes, wherever there are slots"
        )
    environment: dict[str, Any] = {"nearest": plan.nearest}
    variables = {"AZUREML_ARM_WORKSPACE_NAME": workspace.name, "AZUREML_ARM_PROJECT_NAME": experiment.name}
    if plan.environment is not None:
        asked, more = plan.environment._needs()
        environment = {**asked, "nearest": [*plan.nearest, *asked.get("nearest", [])]}
        variables |= more
    variables |= plan.variables
    spec = {"gpus_per_rank": 1} if plan.gpu else {}
    try:
        return workspace.client.submit(
            ["sh", "-c", _shell(experiment, plan), "azureml"],
            folder=_folder(plan),
            name=experiment.name,
            env={k: str(v) for k, v in variables.items()},
            environment=environment,
            tags=tags,
            spec=spec,
            project=workspace.name,
            pool=target.pool,
            preemptible=target.low_priority or None,
            time_limit=plan.seconds,
            **shape,
        )
    except ServerError as e:
        raise ExperimentExecutionException(f"submit a run of {experiment.name}: {e}") from e
