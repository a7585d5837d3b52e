"""The processes that compute data, in task slots of a Spark cluster.

    spark-submit … compute_worker.py FILE [--dispatchers 1] [--dispatcher-side compute|training] [--timeout 60]
        [--num-proc N]

FILE is written when their service is there; the training reads it (TfDataServiceConfig.read(FILE,
wait_for_file_creation=True)). The program ends when the training calls compute_client().shutdown(), or when its
processes have ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any

from pyspark.sql import SparkSession

import horovod.spark
from horovod.runner.common.service.compute_service import ComputeService
from horovod.spark.common.backend import default_num_proc
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from horovod.tensorflow.data.compute_worker import arguments

__all__ = ["main"]


def main(
    dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60, num_proc: int | None = None
) -> None:
    """Run the service in `num_proc` task slots, or as many as Spark calls its default parallelism, until its end."""
    if dispatcher_side not in ("compute", "training"):
        raise ValueError(f"--dispatcher-side is compute or training, not {dispatcher_side}")
    if num_proc is None:
        SparkSession.builder.getOrCreate()  # a program that Spark starts has none yet
    size = default_num_proc() if num_proc is None else num_proc
    if dispatchers < 1 or size < 1 or size % dispatchers:
        raise ValueError(f"Number of processes ({size}) must be a multiple of number of dispatchers ({dispatchers}).")
    SparkSession.builder.getOrCreate()
    key = secrets.token_bytes(32)
    compute = ComputeService(dispatchers, size // dispatchers, key)
    try:
        config = TfDataServiceConfig(
            dispatchers, size // dispatchers, dispatcher_side, compute.addresses(), key, timeout
        )
        config.write(configfile)
        horovod.spark.run(_work, args=(config.to_dict(),), num_proc=size, verbose=2)
    finally:
        compute.shutdown()
        with contextlib.suppress(OSError):
            os.unlink(configfile)


def _work(config: dict[str, Any]) -> None:
    """What each task does; it may travel by value, so that it imports what it needs."""
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

    compute_worker_fn(TfDataServiceConfig.from_dict(config))


if __name__ == "__main__":
    parser = arguments(
        "Compute data for a training in task slots of Spark: see horovod.spark.tensorflow.compute_worker."
    )
    parser.add_argument(
        "--num-proc", type=int, help="how many processes compute; Spark's default parallelism if left out"
    )
    given = parser.parse_args()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout, given.num_proc)
