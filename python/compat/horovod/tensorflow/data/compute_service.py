"""The two sides of tf.data's service: the processes that compute, and what a training does to get their data."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from hora import frontend
from horovod.runner.common.service.compute_service import ComputeClient

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

LONGEST = 600.0  # that a training waits for the file of the job that computes, in seconds


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """How a training finds the processes that compute its data. The key opens their service: files of it are this
    user's alone."""

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Who asks the service."""
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> dict[str, Any]:
        """As a dict that JSON can hold."""
        return dict(self.__dict__) | {"key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """What to_dict made."""
        given = {f.name: config[f.name] for f in dataclasses.fields(TfDataServiceConfig) if f.name in config}
        given["key"] = bytes.fromhex(given["key"])
        given["addresses"] = {name: [(a, int(p)) for a, p in held] for name, held in given["addresses"].items()}
        return TfDataServiceConfig(**given)

    def write(self, filename: str) -> None:
        """To a file of mode 0600, all of it at once."""
        folder = os.path.dirname(os.path.abspath(filename))
        fd, path = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(filename)}.")  # which makes it 0600
        try:
            with os.fdopen(fd, "w") as f:
                json.dump(self.to_dict(), f)
            os.replace(path, filename)
        except BaseException:
            os.unlink(path)
            raise

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """From a file, which may be waited for."""
        end = time.monotonic() + LONGEST
        while wait_for_file_creation and not os.path.exists(filename):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{filename} has not come in {LONGEST:.0f} s: is the job of horovod.tensorflow.data.compute_worker running?"
                )
            time.sleep(0.2)
        with open(filename) as f:
            return TfDataServiceConfig.from_dict(json.load(f))


_attending: dict[bytes, ComputeClient] = {}  # key of a service → the connection that says that this process trains


def _stop(server: Any) -> None:
    """TensorFlow has no public way to end its servers."""
    if server is not None:
        server._server.stop()


def _dispatcher(compute: ComputeClient, i: int) -> Any:
    server = tf.data.experimental.service.DispatchServer()
    port = server.target.rpartition(":")[2]
    compute.register_dispatcher(i, f"grpc://{compute.here()}:{port}")
    return server


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of the dispatcher that the training's rank uses; with the dispatchers on the training's side it runs
    while the block does."""
    compute = _attending.setdefault(compute_config.key, compute_config.compute_client(verbose=2))
    compute.attend()
    many, server = compute_config.dispatchers, None
    try:
        if compute_config.dispatcher_side == "training" and (rank == 0 or 1 < many > rank):
            server = _dispatcher(compute, rank)
        i = rank if many > 1 else 0
        if i >= many:
            raise ValueError(
                f"rank {rank} has no dispatcher: there are {many}; start compute_worker with one, or with one for each rank that trains"
            )
        address = compute.wait_for_dispatcher_registration(i, compute_config.timeout)
        compute.wait_for_dispatcher_worker_registration(i, compute_config.timeout)
        yield address
    finally:
        _stop(server)


_shared: dict[
    tuple[bytes, int], int
] = {}  # key of a service, life of this process in its job → datasets that the ranks share


def _shared_name(key: bytes) -> str:
    """The name of the pass that the ranks share: alike on them, as they share datasets in one order, and no two
    datasets' name.

    Under the name of another one, a dataset would come out empty.
    """
    at = key, frontend.life()
    n = _shared[at] = _shared.get(at, 0) + 1
    return "job" if n == 1 else f"job {n}"


def send_to_data_service(
    dataset: tf.data.Dataset, compute_config: TfDataServiceConfig, rank: int, size: int | None = None,
    processing_mode: str = "distributed_epoch", reuse_dataset: bool = False, round_robin: bool = False,
) -> tf.data.Dataset:  # fmt: skip
    """The dataset, computed by the service's workers.

    Each worker has a part of it with `distributed_epoch`, all of it with `parallel_epochs`. With `reuse_dataset` the
    ranks share one pass, with `round_robin` in turns; they give as many datasets as each other then, in one order.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError("training side dispatcher not supported, use tf_data_service context manager instead")
    shared = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        how = tf.data.experimental.service.distribute(
            processing_mode=processing_mode, service=address,
            job_name=_shared_name(compute_config.key) if reuse_dataset else None,
            consumer_index=rank if shared else None, num_consumers=size if shared else None,
        )  # fmt: skip
        return dataset.apply(how)


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig, timeout: int | None = None) -> None:
    """What each process that computes does: a worker, some with the dispatcher of a group of them, until the service
    ends."""
    hvd.init()
    index = hvd.rank()
    i = index // compute_config.workers_per_dispatcher
    compute = compute_config.compute_client(verbose=2)
    server = worker = None
    try:
        if compute_config.dispatcher_side == "compute" and index % compute_config.workers_per_dispatcher == 0:
            server = _dispatcher(compute, i)
        address = compute.wait_for_dispatcher_registration(i, timeout or compute_config.timeout)
        worker = tf.data.experimental.service.WorkerServer(
            tf.data.experimental.service.WorkerConfig(
                dispatcher_address=address.partition("://")[2], worker_address=f"{compute.here()}:%port%",
                heartbeat_interval_ms=1000,
                dispatcher_timeout_ms=timeout * 1000 if timeout else None,
            )
        )  # fmt: skip
        compute.register_worker_for_dispatcher(i, index)
        compute.wait_for_shutdown()
    finally:
        _stop(worker)
        _stop(server)
