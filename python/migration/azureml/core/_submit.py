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
from .compute import Target, gpus_of, target_of

if TYPE_CHECKING:
    from .experiment import Experiment
    from .workspace import Workspace

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

# Scripts take the GPU of their place on the node, cuda:LOCAL_RANK: all processes of a node see what all of them were
# dealt, the first of each in the order of their places, then the second. Each waits for the others' word of theirs; one
# that does not come ends the job.
_DEVICES = """
if [ "$HORA_LOCAL_SIZE" -gt 1 ]; then
  dealt="$PWD/.azureml-devices-$HORA_SERVER_ATTEMPT" seen= place=1
  mkdir -p "$dealt" && echo "$CUDA_VISIBLE_DEVICES" >"$dealt/.$HORA_LOCAL_RANK" || exit 1
  mv "$dealt/.$HORA_LOCAL_RANK" "$dealt/$HORA_LOCAL_RANK" || exit 1
  while [ "$place" -le %d ]; do
    rank=0
    while [ "$rank" -lt "$HORA_LOCAL_SIZE" ]; do
      until [ -e "$dealt/$rank" ]; do sleep 0.02; done
      seen="$seen,$(cut -d, -f"$place" "$dealt/$rank")" rank=$((rank + 1))
    done
    place=$((place + 1))
  done
  export CUDA_VISIBLE_DEVICES="${seen#,}"
fi
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


def _shell(experiment: Experiment, plan: Plan, gpus: int) -> str:
    lines = [f'export AZUREML_RUN_ID={shlex.quote(experiment.name)}_"$HORA_SERVER_JOB"', _ALWAYS.strip()]
    if plan.mpi:
        lines.append(_MPI.strip())
    if gpus and plan.per_node * plan.nodes > 1:
        lines.append(_DEVICES.strip() % gpus)
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


SEES = "CUDA_VISIBLE_DEVICES"  # a run that says itself which GPUs it sees is dealt none


def _gpus(workspace: Workspace, target: Target, plan: Plan) -> int:
    """How many GPUs each process gets: a run takes whole nodes, so its processes on a node share out that node's. On
    the pool default, which other runs have a part of, it is one, where there are so many."""
    there = gpus_of(workspace, target.pool)
    each = there // plan.per_node if target.pool_of_its_own else int(there >= plan.nodes * plan.per_node)
    if each and there % plan.per_node and target.pool_of_its_own:
        notice(
            f"{target.name}: the {there} GPUs of a node do not divide by {plan.per_node} processes: "
            f"each gets {each}, and {there - each * plan.per_node} {'is' if there % plan.per_node == 1 else 'are'} not used"
        )
    if plan.gpu:
        return max(each, 1)
    if there and not each:
        notice(
            f"{target.name}: a node has fewer GPUs ({there}) than the run has processes there, so none of them sees one: "
            f"a GPU is one process's"
        )
    return each


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
    each = 0 if plan.gpu is False or plan.gpu is None and SEES in variables else _gpus(workspace, target, plan)
    spec = {"gpus_per_rank": each} if each else {}
    try:
        return workspace.client.submit(
            ["sh", "-c", _shell(experiment, plan, each), "azureml"],
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
