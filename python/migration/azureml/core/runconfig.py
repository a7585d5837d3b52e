"""How a run is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._absent import absent
from .._refuse import refused
from ..exceptions import RunConfigurationException
from .conda_dependencies import CondaDependencies
from .container_registry import ContainerRegistry
from .environment import DockerSection, Environment, PythonSection, SparkSection

DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.1-cudnn8-ubuntu20.04"

__all__ = [
    "DEFAULT_CPU_IMAGE", "DEFAULT_GPU_IMAGE", "CondaDependencies", "ContainerRegistry", "DockerConfiguration",
    "DockerSection",
    "EnvironmentDefinition", "MpiConfiguration", "ParallelTaskConfiguration", "PyTorchConfiguration", "PythonSection",
    "RunConfiguration",
    "SparkSection", "TensorflowConfiguration",
]  # fmt: skip

PS = "parameter servers are not in this release: use Mpi() and horovod.tensorflow, or hora.tensorflow"


@dataclass
class Shape:
    """How many processes, and how they find each other."""

    nodes: int
    per_node: int
    mpi: bool


def _whole(name: str, n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise RunConfigurationException(f"{name} {n!r}: give a whole number from 1")
    return n


class MpiConfiguration:
    """Processes that find each other as those of an MPI do."""

    def __init__(self, process_count_per_node: int = 1, node_count: int = 1, **given: Any) -> None:
        from .._refuse import unknown

        given = unknown(MpiConfiguration.__init__, "MpiConfiguration", given)
        self.process_count_per_node = given.get("process_count_per_node", process_count_per_node)
        self.node_count = _whole("node_count", node_count)
        _whole("process_count_per_node", self.process_count_per_node)


class PyTorchConfiguration:
    """Processes that find each other by torch.distributed's variables."""

    def __init__(
        self, communication_backend: str = "Nccl", process_count: int | None = None, node_count: int = 1
    ) -> None:
        if str(communication_backend).lower() not in ("nccl", "gloo"):
            raise RunConfigurationException(f"communication_backend {communication_backend!r}: take Nccl or Gloo")
        if process_count is not None:
            _whole("process_count", process_count)
        self.communication_backend, self.process_count = communication_backend, process_count
        self.node_count = _whole("node_count", node_count)


class TensorflowConfiguration:
    """Workers and parameter servers: refused when it is submitted."""

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 1) -> None:
        self.worker_count, self.parameter_server_count = worker_count, parameter_server_count


class ParallelTaskConfiguration:
    """Refused when it is submitted."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class DockerConfiguration:
    """Images are not used: it changes nothing."""

    def __init__(
        self, use_docker: bool = False, shared_volumes: bool = True, arguments: Any = None, shm_size: str | None = None
    ) -> None:
        self.use_docker, self.shared_volumes, self.arguments, self.shm_size = (
            use_docker,
            shared_volumes,
            arguments or [],
            shm_size,
        )


class AmlComputeConfiguration:
    """A cluster that a run would bring along: runs go to compute targets that are there, and it changes nothing."""

    def __init__(self) -> None:
        self.vm_size: str | None = None
        self.vm_priority: str | None = None
        self.name: str | None = None
        self.retain_cluster = False


class EnvironmentDefinition(Environment):
    """The older name of an environment."""

    def __init__(self) -> None:
        super().__init__("project_environment")


def shape_of(job: Any, nodes: int = 1) -> Shape:
    """The shape that a configuration describes."""
    _whole("node_count", nodes)
    if job is None:
        return Shape(nodes, 1, False)
    if isinstance(job, MpiConfiguration):
        nodes = max(nodes, _whole("node_count", job.node_count))
        return Shape(nodes, _whole("process_count_per_node", job.process_count_per_node), True)
    if isinstance(job, PyTorchConfiguration):
        nodes = max(nodes, _whole("node_count", job.node_count))
        total = nodes if job.process_count is None else _whole("process_count", job.process_count)
        if total % nodes:
            raise RunConfigurationException(
                f"process_count {total} is no multiple of node_count {nodes}: give the number of processes on all nodes together"
            )
        return Shape(nodes, total // nodes, False)
    if isinstance(job, TensorflowConfiguration):
        refused(
            f"TensorflowConfiguration(worker_count={job.worker_count}, parameter_server_count={job.parameter_server_count})",
            PS,
        )
    refused(f"distributed_job_config={type(job).__name__}", "take MpiConfiguration or PyTorchConfiguration")


class RunConfiguration:
    """How and where a script runs."""

    def __init__(
        self,
        script: str | None = None,
        arguments: Any = None,
        framework: str | None = None,
        communicator: str | None = None,
        conda_dependencies: CondaDependencies | None = None,
        _history_enabled: object = None,
        _path: object = None,
        _name: object = None,
        command: Any = None,
    ) -> None:
        self.script, self.arguments, self.command = script, arguments, command
        self.framework, self.communicator = framework or "Python", communicator or "None"
        self.target: Any = "local"
        self.node_count = 1
        self.environment: Environment = Environment("project_environment")
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies
        self.mpi = MpiConfiguration()
        self.pytorch = PyTorchConfiguration()
        self.tensorflow = TensorflowConfiguration()
        self.docker = DockerConfiguration()
        self.spark = SparkSection()
        self.amlcompute = AmlComputeConfiguration()
        self.max_run_duration_seconds: float | None = None
        self.data_references: dict[str, Any] = {}
        self.auto_prepare_environment = True
        self._variables: dict[str, str] = {}

    @property
    def environment_variables(self) -> dict[str, str]:
        """Variables of the run's processes."""
        return self._variables

    @environment_variables.setter
    def environment_variables(self, to: dict[str, str]) -> None:
        self._variables = dict(to)


__getattr__ = absent(__name__)
