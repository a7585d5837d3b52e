"""Where an estimator's ranks run: task slots of the active Spark session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Backend", "LocalBackend", "SparkBackend", "default_num_proc"]


class Backend:
    """Runs a function on each of several processes; the interface that estimators take."""

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, env: Any = None
    ) -> list[Any]:
        """The results of fn(*args, **kwargs), by rank."""
        raise NotImplementedError()

    def num_processes(self) -> int:
        """How many processes there are."""
        raise NotImplementedError()


class SparkBackend(Backend):
    """`num_proc` task slots; without a number as many as the session's default parallelism says.

    Further arguments are those of horovod.spark.run.
    """

    def __init__(self, num_proc: int | None = None, env: dict[str, str] | None = None, **kwargs: Any) -> None:
        self._num_proc, self._env, self._kwargs = num_proc, env, kwargs

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, env: Any = None
    ) -> list[Any]:
        """horovod.spark.run with these settings."""
        import horovod.spark

        env = {**(self._env or {}), **(env or {})}
        return horovod.spark.run(fn, args, kwargs, num_proc=self.num_processes(), env=env, **self._kwargs)

    def num_processes(self) -> int:
        """How many ranks there will be."""
        return self._num_proc or default_num_proc()

    def environment(self) -> dict[str, str]:
        """Variables for the ranks."""
        return dict(self._env or {})


class LocalBackend(Backend):
    """So many processes of this machine. Estimators take the number from it: their ranks run where Spark has the
    rows."""

    def __init__(self, num_proc: int = 1, env: dict[str, str] | None = None) -> None:
        self._num_proc, self._env = num_proc, env

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, env: Any = None
    ) -> list[Any]:
        """hora.run of this many processes: horovod.run takes no variables."""
        import hora

        return list(hora.run(fn, tuple(args), kwargs, self._num_proc, env={**(self._env or {}), **(env or {})}))

    def num_processes(self) -> int:
        """How many there are."""
        return self._num_proc


def default_num_proc() -> int:
    """As many as Spark's default parallelism says."""
    from hora.spark.frontend import active_session, default_tasks

    spark = active_session()
    if spark is None:
        raise RuntimeError("there is no active SparkSession; make one with SparkSession.builder.getOrCreate()")
    return default_tasks(spark)
