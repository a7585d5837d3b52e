"""horovod.spark: a function on the executors of a Spark cluster. What it does is told in docs/spark.md; it stands on
hora.spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import conf

__all__ = ["conf", "run", "run_elastic"]

_NAMES = (("--network-interface", "nics"), ("--elastic-timeout", "elastic_timeout"), ("--reset-limit", "reset_limit"))


def run(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, num_proc: int | None = None,
    start_timeout: float | None = None, use_mpi: bool | None = None, use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: dict[str, str] | None = None, stdout: Any = None, stderr: Any = None, verbose: int = 1, nics: Any = None,
    prefix_output_with_timestamp: bool = False, executable: str | None = None,
) -> list[Any]:  # fmt: skip
    """Run fn(*args, **kwargs) in `num_proc` task slots of the active Spark session and return the results by rank.

    >>> horovod.spark.run(train, args=(0.1,), num_proc=2)
    """
    if use_mpi and use_gloo:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    if use_mpi or extra_mpi_args:
        raise ValueError(
            "horovod.spark.run: use_mpi and extra_mpi_args ask for Horovod's MPI mode, which hora does not have; leave them out"
        )
    from hora.spark.frontend import Wording, launch

    words = Wording("num_proc", "call run_elastic", None, "horovod.spark.run", rows=None, flags=_NAMES)
    return launch(
        fn, args, kwargs, num_proc, env=_environment(env, executable), limit=start_timeout, out=stdout, err=stderr,
        flags=_flags(verbose, nics, prefix_output_with_timestamp), words=words,
    )  # fmt: skip


def run_elastic(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, num_proc: int | None = None,
    min_num_proc: int | None = None, max_num_proc: int | None = None, start_timeout: float | None = None,
    elastic_timeout: float | None = None, reset_limit: int | None = None, env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None, verbose: int = 1, nics: Any = None, prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:  # fmt: skip
    """Run fn, which trains with hvd.elastic.run, in tasks that may come and go; the results of those that are there at
    the end.

    `num_proc` workers are wanted, no fewer than `min_num_proc` will do, and up to `max_num_proc` are taken.

    >>> horovod.spark.run_elastic(train, num_proc=4, min_num_proc=2)
    """
    from hora.spark.frontend import Wording, launch

    least = min_np if min_num_proc is None else min_num_proc
    most = max_np if max_num_proc is None else max_num_proc
    flags = _flags(verbose, nics, prefix_output_with_timestamp)
    for flag, value in (("--elastic-timeout", elastic_timeout), ("--reset-limit", reset_limit)):
        if value is not None:
            flags += [flag, str(value)]
    wanted = num_proc if num_proc is not None else least
    words = Wording(
        "num_proc",
        restarts=None,
        who="horovod.spark.run_elastic",
        least="min_num_proc",
        most="max_num_proc",
        rows=None,
        flags=_NAMES,
    )
    return launch(
        fn, args, kwargs, wanted, min_np=least, max_np=most, elastic=True,
        env=_environment(env, None), limit=start_timeout, out=stdout, err=stderr, flags=flags, words=words,
    )  # fmt: skip


def _environment(env: dict[str, str] | None, executable: str | None) -> dict[str, str]:
    given = dict(env or {})
    if executable:
        given["HORA_SPARK_PYTHON"] = executable
    return given


def _flags(verbose: int, nics: Any, timestamps: bool) -> list[str]:
    flags = ["--verbose"] if verbose and verbose >= 2 else []
    if nics:
        flags += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(nics)]
    if timestamps:
        flags.append("--prefix-output-with-timestamp")
    return flags
