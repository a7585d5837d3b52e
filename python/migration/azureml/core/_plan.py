"""What a run is, however it was described."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._refuse import refused
from ..exceptions import UserErrorException

if TYPE_CHECKING:
    from .environment import Environment

A_MONTH = 2592000  # the SDK's own bound, which is none here


@dataclass
class Plan:
    """A run to be submitted."""

    folder: Path
    command: list[Any]  # words, or references to data
    target: Any = None
    nodes: int = 1
    per_node: int = 1
    mpi: bool = False
    gpu: bool | None = None  # a GPU for each process, or none; None: what its nodes have
    environment: Environment | None = None
    nearest: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    inputs: list[Any] = field(default_factory=list)


def plan_of(config: Any) -> Plan:
    """The plan of an estimator or a configuration."""
    plan = getattr(config, "_plan", None)
    if plan is None:
        kind = type(config).__name__
        instead = "give a ScriptRunConfig, an Estimator, TensorFlow, PyTorch or SKLearn"
        refused(f"Experiment.submit({kind})", instead)
    made: Plan = plan()
    return made


def script_of(folder: str | None, script: str | None) -> tuple[Path, str]:
    """A run's folder and its script, which must be there."""
    at = Path(folder or ".")
    if not at.is_dir():
        raise UserErrorException(f"source_directory {folder}: there is no such folder")
    if not script:
        raise UserErrorException(f"there is no script to run: name a file in {at}")
    if not (at / script).is_file():
        raise UserErrorException(f"the script {script} is not in {at}: it is a path below source_directory")
    return at, Path(script).as_posix()


def words_of(arguments: Any) -> list[Any]:
    """Arguments as a list."""
    if arguments is None:
        return []
    if isinstance(arguments, str):
        return list(shlex.split(arguments))
    return list(arguments)


def pieces_of(command: Any) -> list[Any]:
    """A command as words: a list whose first element is no program's name is one of pieces of a command line."""
    words = words_of(command)
    if isinstance(command, str) or not words or len(shlex.split(str(words[0]))) == 1:
        return words
    return [word for one in words for word in (shlex.split(one) if isinstance(one, str) else [one])]


def params_of(params: dict[str, Any] | None) -> list[Any]:
    """An estimator's script_params as words: an empty value is a flag alone."""
    words: list[Any] = []
    for name, value in (params or {}).items():
        words.append(name)
        if isinstance(value, (list, tuple)):
            words += value
        elif value is not None and not (isinstance(value, str) and value == ""):
            words.append(value)
    return words


def interpreted(script: str) -> list[str]:
    """How a script is started."""
    if script.endswith(".sh"):
        return ["bash", script]
    if script.endswith(".R"):
        return ["Rscript", script]
    return ["python", script]


def seconds_of(limit: Any) -> float | None:
    """A run's time limit; the SDK's default is none."""
    if limit in (None, A_MONTH):
        return None
    return float(limit)
