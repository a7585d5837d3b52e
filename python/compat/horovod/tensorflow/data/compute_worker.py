"""The processes that compute data, as one job.

    hora run -np 4 python -m horovod.tensorflow.data.compute_worker FILE [--dispatchers 1]
        [--dispatcher-side compute|training] [--timeout 60]

FILE is written when they are there; the training reads it (TfDataServiceConfig.read(FILE,
wait_for_file_creation=True)). The job ends when the training calls compute_client().shutdown(), or when its processes
have ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

__all__ = ["main"]


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Run this process' part of the service until its end."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(f"Number of processes ({size}) must be a multiple of number of dispatchers ({dispatchers}).")
    if dispatcher_side not in ("compute", "training"):
        raise ValueError(f"--dispatcher-side is compute or training, not {dispatcher_side}")
    compute = config = None
    try:
        if rank == 0:
            key = secrets.token_bytes(32)
            compute = ComputeService(dispatchers, size // dispatchers, key)
            config = TfDataServiceConfig(
                dispatchers, size // dispatchers, dispatcher_side, compute.addresses(), key, timeout
            )
            config.write(configfile)
        config = TfDataServiceConfig.from_dict(hvd.broadcast_object(config and config.to_dict(), 0))
        compute_worker_fn(config, timeout)
    finally:
        if compute is not None:
            compute.shutdown()
            with contextlib.suppress(OSError):
                os.unlink(configfile)


def arguments(description: str) -> argparse.ArgumentParser:
    """What a program that computes data is told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("configfile", help="the file that tells the training where the service is")
    parser.add_argument(
        "--dispatchers", type=int, default=1, help="how many dispatchers there are: 1, or one for each rank that trains"
    )
    parser.add_argument(
        "--dispatcher-side", default="compute", help="where they run: compute (the default) or training"
    )
    parser.add_argument("--timeout", type=int, default=60, help="how many seconds all wait for each other")
    return parser


if __name__ == "__main__":
    given = arguments("Compute data for a training: see horovod.tensorflow.data.compute_worker.").parse_args()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
