"""Estimators: a script, what it needs, and how many processes it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._absent import absent
from .._refuse import notice, refused, unknown, unused
from ..core._plan import Plan, interpreted, params_of, script_of, seconds_of
from ..core.conda_dependencies import CondaDependencies
from ..core.environment import Environment, _requirements
from ..core.runconfig import PS, MpiConfiguration, PyTorchConfiguration, RunConfiguration, TensorflowConfiguration
from ..exceptions import TrainingException

_CHANGE_NOTHING = (
    "use_docker", "custom_docker_base_image", "custom_docker_image", "image_registry_details",
    "source_directory_data_store", "shm_size",
    "vm_size", "vm_priority", "inputs_mode", "_enable_optimized_mode", "_disable_validation", "_show_lint_warnings",
    "_show_package_warnings",
)  # fmt: skip


class Gloo:
    """torch.distributed over gloo."""


class Nccl:
    """torch.distributed over NCCL."""


class Mpi(MpiConfiguration):
    """Processes that find each other as those of an MPI do."""

    def __init__(self, process_count_per_node: int = 1, **given: Any) -> None:
        super().__init__(unknown(Mpi.__init__, "Mpi", given).get("process_count_per_node", process_count_per_node))


class ParameterServer(TensorflowConfiguration):
    """Workers and parameter servers: refused when it is submitted."""


class Estimator:
    """What Experiment.submit takes."""

    _package: str | None = None  # the framework that comes along
    _one_per_node = ("gloo", "nccl")

    def __init__(
        self,
        source_directory: str | None = None,
        *,
        compute_target: Any = None,
        vm_size: str | None = None,
        vm_priority: str | None = None,
        entry_script: str | None = None,
        script_params: dict[str, Any] | None = None,
        node_count: int = 1,
        process_count_per_node: int = 1,
        worker_count: int | None = None,
        parameter_server_count: int | None = None,
        distributed_backend: str | None = None,
        distributed_training: Any = None,
        use_gpu: bool = False,
        use_docker: bool = True,
        custom_docker_base_image: str | None = None,
        custom_docker_image: str | None = None,
        image_registry_details: Any = None,
        user_managed: bool = False,
        conda_packages: list[str] | None = None,
        pip_packages: list[str] | None = None,
        conda_dependencies_file_path: str | None = None,
        conda_dependencies_file: str | None = None,
        pip_requirements_file_path: str | None = None,
        pip_requirements_file: str | None = None,
        environment_variables: dict[str, str] | None = None,
        environment_definition: Environment | None = None,
        inputs: list[Any] | None = None,
        source_directory_data_store: Any = None,
        shm_size: str | None = None,
        resume_from: Any = None,
        max_run_duration_seconds: float | None = None,
        framework_version: str | None = None,
        **given: Any,
    ) -> None:
        name = type(self).__name__
        hidden = {k: given.pop(k) for k in list(given) if k in _CHANGE_NOTHING}
        process_count_per_node = unknown(Estimator.__init__, name, given).get(
            "process_count_per_node", process_count_per_node
        )
        images = {
            "custom_docker_base_image": custom_docker_base_image,
            "custom_docker_image": custom_docker_image,
            "image_registry_details": image_registry_details,
        }
        unused(
            name,
            {
                **images,
                "vm_size": vm_size,
                "vm_priority": vm_priority,
                "shm_size": shm_size,
                "source_directory_data_store": source_directory_data_store,
                **hidden,
            },
        )
        if resume_from is not None:
            refused(
                f"{name}(resume_from=...)",
                "fetch the earlier run's outputs with run.download_files into source_directory",
            )
        if framework_version and self._package is None:
            raise TypeError(f"{name} has no argument framework_version: TensorFlow, PyTorch and SKLearn have")
        self.source_directory, self.entry_script, self.script_params = (
            source_directory or ".",
            entry_script,
            dict(script_params or {}),
        )
        self.framework_version, self.use_gpu = framework_version, use_gpu
        self.max_run_duration_seconds, self.inputs = max_run_duration_seconds, list(inputs or [])
        script_of(self.source_directory, entry_script)
        backend = (distributed_backend or "").lower()
        if distributed_training is None and backend:
            known = {"mpi": Mpi, "gloo": Gloo, "nccl": Nccl, "ps": ParameterServer}
            if backend not in known:
                raise TrainingException(f"distributed_backend {distributed_backend!r}: take one of {', '.join(known)}")
            distributed_training = known[backend]()
        self.distributed_training = distributed_training
        self._nodes, self._per_node, self._mpi = self._shape(
            node_count, process_count_per_node, worker_count, parameter_server_count
        )
        self.run_config = RunConfiguration()
        self.run_config.target = compute_target if compute_target is not None else "default"
        self.run_config.environment_variables = {k: str(v) for k, v in (environment_variables or {}).items()}
        self.run_config.node_count = self._nodes
        if environment_definition is not None:
            if not isinstance(environment_definition, Environment):
                raise TypeError(
                    f"environment_definition is a {type(environment_definition).__name__}: give an azureml.core.Environment"
                )
            self.run_config.environment = environment_definition
        else:
            self.run_config.environment = self._environment(
                user_managed,
                conda_packages,
                pip_packages,
                conda_dependencies_file or conda_dependencies_file_path,
                pip_requirements_file or pip_requirements_file_path,
            )

    def _shape(self, nodes: int, per_node: int, workers: int | None, servers: int | None) -> tuple[int, int, bool]:
        name, how = type(self).__name__, self.distributed_training
        if isinstance(how, TensorflowConfiguration):
            refused(
                f"{name}(distributed_training={type(how).__name__}(worker_count={workers or how.worker_count}, parameter_server_count={servers or how.parameter_server_count}))",
                PS,
            )
        alone = {"worker_count": workers, "parameter_server_count": servers}
        counted = [what for what, n in alone.items() if n not in (None, 1)]
        if counted:
            notice(
                f"{name}: {' and '.join(counted)} change nothing without parameter servers: "
                "node_count and process_count_per_node say how many processes there are"
            )
        for what, n in (("node_count", nodes), ("process_count_per_node", per_node)):
            if not isinstance(n, int) or n < 1:
                raise TrainingException(f"{name}: {what} {n!r}: give a whole number from 1")
        if isinstance(how, MpiConfiguration):
            given = how.process_count_per_node
            if per_node > 1 and given > 1 and per_node != given:
                raise TrainingException(
                    f"{name}: process_count_per_node is {per_node}, and {given} in distributed_training: give it once"
                )
            return max(nodes, how.node_count), max(per_node, given), True
        if isinstance(how, PyTorchConfiguration):
            total = how.process_count or max(nodes, how.node_count)
            nodes = max(nodes, how.node_count)
            if total % nodes:
                raise TrainingException(f"{name}: process_count {total} is no multiple of node_count {nodes}")
            return nodes, total // nodes, False
        if isinstance(how, type) and issubclass(how, (Gloo, Nccl, Mpi)):
            raise TrainingException(
                f"{name}: distributed_training={how.__name__} lacks its brackets: write {how.__name__}()"
            )
        if how is not None and not isinstance(how, (Gloo, Nccl)):
            refused(f"{name}(distributed_training={type(how).__name__})", "take Mpi(), Gloo() or Nccl()")
        return nodes, per_node, how is None

    def _environment(
        self,
        user_managed: bool,
        conda: list[str] | None,
        pip: list[str] | None,
        conda_file: str | None,
        pip_file: str | None,
    ) -> Environment:
        made = Environment(f"{type(self).__name__.lower()}-environment")
        made.python.user_managed_dependencies = user_managed
        needs = CondaDependencies(str(self._beside(conda_file))) if conda_file else CondaDependencies()
        for package in conda or []:
            needs.add_conda_package(package)
        for package in [*(_requirements(self._beside(pip_file)) if pip_file else []), *(pip or [])]:
            needs.add_pip_package(package)
        made.python.conda_dependencies = needs
        return made

    def _beside(self, path: str) -> Path:
        """A file that is named below source_directory, or here."""
        below = Path(self.source_directory) / path
        return below if below.is_file() else Path(path)

    @property
    def conda_dependencies(self) -> CondaDependencies | None:
        """The packages that come along."""
        return self.run_config.environment.python.conda_dependencies

    def _plan(self) -> Plan:
        folder, script = script_of(self.source_directory, self.entry_script)
        nearest = []
        if self._package and not self.run_config.environment.python.user_managed_dependencies:
            nearest = [self._package + (f"=={self.framework_version}" if self.framework_version else "")]
        return Plan(
            folder,
            [*interpreted(script), *params_of(self.script_params)],
            self.run_config.target,
            self._nodes,
            self._per_node,
            self._mpi,
            gpu=self.use_gpu,
            environment=self.run_config.environment,
            nearest=nearest,
            variables=self.run_config.environment_variables,
            seconds=seconds_of(self.max_run_duration_seconds),
            inputs=self.inputs,
        )


__getattr__ = absent(__name__)
