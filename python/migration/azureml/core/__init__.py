"""Workspaces, experiments, runs and what describes them."""

from .._absent import absent as _absent
from .compute import ComputeTarget
from .conda_dependencies import CondaDependencies as _CondaDependencies  # noqa: F401
from .container_registry import ContainerRegistry
from .dataset import Dataset
from .datastore import Datastore
from .environment import Environment
from .experiment import Experiment
from .model import Model
from .run import Run
from .runconfig import RunConfiguration
from .script_run_config import ScriptRunConfig
from .workspace import Workspace

VERSION = "1.57.0"  # whose names these are

__getattr__ = _absent(__name__)

__all__ = [
    "ComputeTarget",
    "ContainerRegistry",
    "Dataset",
    "Datastore",
    "Environment",
    "Experiment",
    "Model",
    "Run",
    "RunConfiguration",
    "ScriptRunConfig",
    "Workspace",
]


def get_run(experiment: Experiment, run_id: str, rehydrate: bool = True, clean_up: bool = True) -> Run:
    """One run by its id."""
    return Run(experiment, run_id)
