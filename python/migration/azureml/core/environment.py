"""What a run finds when it starts."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._refuse import internal, notice, refused, unused
from ..exceptions import UserErrorException
from .conda_dependencies import CondaDependencies
from .container_registry import ContainerRegistry

if TYPE_CHECKING:
    from .workspace import Workspace

_FRAMEWORKS = {
    "pytorch": "torch",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "sklearn": "scikit-learn",
    "scikit-learn": "scikit-learn",
}


class DockerSection:
    """Images are not used: it changes nothing."""

    def __init__(self, **given: Any) -> None:
        internal(DockerSection.__init__, "DockerSection", given)
        self.enabled = False
        self.base_image: str | None = None
        self.base_dockerfile: str | None = None
        self.base_image_registry = ContainerRegistry()
        self.gpu_support = False
        self.shared_volumes = True
        self.shm_size: str | None = None
        self.arguments: list[str] = []
        self.platform: Any = None


class PythonSection:
    """The interpreter and its packages."""

    def __init__(self, **given: Any) -> None:
        internal(PythonSection.__init__, "PythonSection", given)
        self.user_managed_dependencies = False
        self.interpreter_path = "python"
        self.conda_dependencies_file: str | None = None
        self.base_conda_environment: str | None = None
        self.conda_dependencies: CondaDependencies | None = CondaDependencies()


class SparkSection:
    """Spark is not started by runs: it changes nothing."""

    def __init__(self, **given: Any) -> None:
        internal(SparkSection.__init__, "SparkSection", given)
        self.packages: list[Any] = []
        self.repositories: list[Any] = []
        self.precache_packages = True


class Environment:
    """Packages and variables of a run; the interpreter is the pool's."""

    def __init__(self, name: str, **given: Any) -> None:
        internal(Environment.__init__, "Environment", given)
        self.name, self.version = name, "1"
        self.python = PythonSection()
        self.docker = DockerSection()
        self.spark = SparkSection()
        self.environment_variables: dict[str, str] = {}
        self.inferencing_stack_version: str | None = None
        self._nearest: list[str] = []

    def __repr__(self) -> str:
        return f"Environment(Name: {self.name},\nVersion: {self.version})"

    @staticmethod
    def from_conda_specification(name: str, file_path: str) -> Environment:
        """The environment that a file of conda's describes."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        return made

    @staticmethod
    def from_pip_requirements(name: str, file_path: str, pip_version: str | None = None) -> Environment:
        """The environment that a requirements file describes."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies.create(pip_packages=_requirements(Path(file_path)))
        return made

    @staticmethod
    def from_docker_image(*_: Any, **__: Any) -> Environment:
        """Refused."""
        refused(
            "Environment.from_docker_image",
            "jobs run as processes: list packages with from_pip_requirements or from_conda_specification",
        )

    @staticmethod
    def from_dockerfile(*_: Any, **__: Any) -> Environment:
        """Refused."""
        refused(
            "Environment.from_dockerfile",
            "jobs run as processes: list packages with from_pip_requirements or from_conda_specification",
        )

    @staticmethod
    def from_existing_conda_environment(*_: Any, **__: Any) -> Environment:
        """Refused."""
        refused(
            "Environment.from_existing_conda_environment",
            "write it into a file with conda env export, and read that with from_conda_specification",
        )

    @staticmethod
    def get(workspace: Workspace, name: str, version: str | None = None, label: str | None = None) -> Environment:
        """What register has kept under that name, or what is known of an environment of Azure's own."""
        kept = workspace._kept("environments").get(name)
        if kept is not None:
            return _from_dict(name, kept)
        made = _curated(name)
        if made is None:
            raise UserErrorException(
                f"there is no environment {name} in workspace {workspace.name}: make one with Environment({name!r}) and register it"
            )
        return made

    @staticmethod
    def list(workspace: Workspace) -> dict[str, Environment]:
        """By name: what register has kept; a name of Azure's own is known when it is asked for."""
        return _Named({name: _from_dict(name, one) for name, one in workspace._kept("environments").items()})

    def register(self, workspace: Workspace) -> Environment:
        """Keeps it under its name, for this user's scripts."""
        with workspace._changing("environments") as kept:
            self.version = str(int(kept.get(self.name, {}).get("version", "0")) + 1)
            kept[self.name] = self._as_dict()
        return self

    def build(self, workspace: Workspace, image_build_compute: object = None) -> Any:
        """Nothing is built ahead of a run: the first one has it made."""
        return _Built()

    build_local = build

    def clone(self, new_name: str) -> Environment:
        """A copy under another name."""
        made = copy.deepcopy(self)
        made.name = new_name
        return made

    def _as_dict(self) -> dict[str, Any]:
        needs = self.python.conda_dependencies
        return {
            "version": self.version,
            "user_managed": self.python.user_managed_dependencies,
            "conda": needs._structure() if needs else None,
            "variables": self.environment_variables,
            "nearest": self._nearest,
        }

    def _needs(self) -> tuple[dict[str, Any], dict[str, str]]:
        """What the server is asked for, and the variables."""
        for what in ("base_image", "base_dockerfile"):
            if getattr(self.docker, what):
                unused("Environment.docker", {what: getattr(self.docker, what)})
        asked: dict[str, Any] = {"nearest": list(self._nearest)}
        needs = self.python.conda_dependencies
        if self.python.conda_dependencies_file:
            needs = CondaDependencies(self.python.conda_dependencies_file)
        if needs is not None and not self.python.user_managed_dependencies:
            asked |= {
                "pip": list(needs._pip),
                "conda": needs.conda_packages,
                "channels": needs.conda_channels,
                "python": needs.python_version,
            }
            if not (asked["pip"] or asked["conda"]):
                asked.pop("python")  # a release alone asks for nothing that could be had
        return asked, dict(self.environment_variables)


class _Built:
    status = "Succeeded"

    def wait_for_completion(self, show_output: bool = True) -> _Built:
        """Waits for nothing."""
        return self


class _Named(dict[str, Environment]):
    def __missing__(self, name: str) -> Environment:
        made = _curated(name)
        if made is None:
            raise KeyError(name)
        return made


def _requirements(path: Path, depth: int = 0) -> list[str]:
    """A requirements file's lines, with those of the files that it names."""
    try:
        rows = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    except OSError as e:
        raise UserErrorException(f"read {path}: {e}") from e
    lines: list[str] = []
    for row in rows:
        row = re.sub(r"(^|\s+)#.*$", "", row).strip()
        other = re.match(r"(?:-r|--requirement)[\s=]*(\S.*)", row)
        if other and depth < 20:
            lines += _requirements(path.parent / other.group(1), depth + 1)
        elif row:
            lines.append(row)
    return lines


def _from_dict(name: str, kept: dict[str, Any]) -> Environment:
    made = Environment(name)
    made.version = kept.get("version", "1")
    made.python.user_managed_dependencies = kept.get("user_managed", False)
    made.python.conda_dependencies = CondaDependencies(_underlying_structure=kept.get("conda"))
    for row in (kept.get("conda") or {}).get("dependencies") or []:
        if isinstance(row, str) and row.startswith("python="):
            made.python.conda_dependencies.set_python_version(row.partition("=")[2])
    made.environment_variables = dict(kept.get("variables") or {})
    made._nearest = list(kept.get("nearest") or [])
    return made


def _curated(name: str) -> Environment | None:
    """An environment of Azure's own, by what its name says: a framework and its release."""
    if not name.lower().startswith("azureml-"):
        return None
    made = Environment(name)
    made.python.user_managed_dependencies = True
    found = re.search(r"(pytorch|tensorflow|sklearn|scikit-learn)-?(\d+(?:\.\d+)*)?", name.lower())
    if found:
        package = _FRAMEWORKS[found.group(1)]
        made._nearest = [package + (f"=={found.group(2)}" if found.group(2) else "")]
        notice(f"the environment {name} is the pool's interpreter with {made._nearest[0]}, or the nearest release")
    else:
        notice(f"the environment {name} is the pool's interpreter")
    return made
