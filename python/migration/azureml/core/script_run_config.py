"""A script and what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._refuse import refused, unused
from ._plan import A_MONTH, Plan, interpreted, pieces_of, script_of, seconds_of, words_of
from .runconfig import MpiConfiguration, RunConfiguration, shape_of


class ScriptRunConfig:
    """What Experiment.submit takes."""

    def __init__(
        self,
        source_directory: str | None = None,
        script: str | None = None,
        arguments: Any = None,
        run_config: RunConfiguration | None = None,
        _telemetry_values: object = None,
        compute_target: Any = None,
        environment: Any = None,
        distributed_job_config: Any = None,
        resume_from: Any = None,
        max_run_duration_seconds: float | None = A_MONTH,
        command: Any = None,
        docker_runtime_config: Any = None,
    ) -> None:
        if resume_from is not None:
            refused(
                "ScriptRunConfig(resume_from=...)",
                "fetch the earlier run's outputs with run.download_files into source_directory",
            )
        unused("ScriptRunConfig", {"docker_runtime_config": docker_runtime_config})
        if script and command:
            raise TypeError("ScriptRunConfig takes script or command, not both")
        self.source_directory, self.script, self.arguments, self.command = (
            source_directory or ".",
            script,
            arguments,
            command,
        )
        self.run_config = run_config or RunConfiguration()
        if compute_target is not None:
            self.run_config.target = compute_target
        if environment is not None:
            self.run_config.environment = environment
        self.distributed_job_config = distributed_job_config
        self.max_run_duration_seconds = max_run_duration_seconds

    def _plan(self) -> Plan:
        config = self.run_config
        job = self.distributed_job_config
        if job is None and config.communicator in ("OpenMpi", "Mpi", "IntelMpi", "ParameterServer"):
            job = MpiConfiguration(config.mpi.process_count_per_node, config.node_count)
            if config.communicator == "ParameterServer":
                job = config.tensorflow
        unused("RunConfiguration.amlcompute", vars(config.amlcompute))
        shape = shape_of(job, config.node_count)
        command = pieces_of(self.command if self.command is not None else config.command)
        arguments = words_of(self.arguments if self.arguments is not None else config.arguments)
        if command:
            folder, words = Path(self.source_directory), [*command, *arguments]
        else:
            folder, script = script_of(self.source_directory, self.script or config.script)
            words = [*interpreted(script), *arguments]
        limit = self.max_run_duration_seconds
        return Plan(
            folder,
            words,
            config.target,
            shape.nodes,
            shape.per_node,
            shape.mpi,
            environment=config.environment,
            variables=dict(config.environment_variables),
            seconds=seconds_of(limit if limit != A_MONTH else config.max_run_duration_seconds),
            inputs=list(config.data_references.values()),
        )
