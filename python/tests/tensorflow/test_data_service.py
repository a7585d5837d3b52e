"""tf.data's service as a job of its own beside the training's, with the dispatcher on either side; strangers at its
port."""

import json
import os
import socket
import subprocess
import sys
import time

import beside
import pytest
from sample import cases

TRAIN = """
import sys
import numpy as np, tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service

hvd.init()
r, n = hvd.rank(), hvd.size()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
assert (config.dispatchers, config.workers_per_dispatcher, config.dispatcher_side) == (1, 2, sys.argv[2])
data = tf.data.Dataset.range(20).map(lambda i: i * i)
if config.dispatcher_side == "compute":
    mine = list(data.send_to_data_service(config, r, n, reuse_dataset=True).as_numpy_iterator())   # the ranks share one pass
    every = sorted(int(i) for part in hvd.allgather_object(mine) for i in part)
    assert every == [i * i for i in range(20)], every
    other = tf.data.Dataset.range(100, 108).send_to_data_service(config, r, n, reuse_dataset=True)         # beside that one
    for _ in range(2):
        part = [int(i) for i in other.as_numpy_iterator()]
        both = sorted(sum(hvd.allgather_object(part), []))
        assert both == list(range(100, 108)), both
    own = sorted(send_to_data_service(data, config, r, n).as_numpy_iterator())
    assert own == [i * i for i in range(20)], own
    both = sorted(data.send_to_data_service(config, r, n, "parallel_epochs").as_numpy_iterator())   # each of the two workers has all
    assert both == sorted([i * i for i in range(20)] * 2), both
else:
    try:
        data.send_to_data_service(config, r, n)
    except RuntimeError as e:
        assert "tf_data_service context manager" in str(e)
    else:
        raise AssertionError
    with tf_data_service(config, r) as address:
        served = data.apply(tf.data.experimental.service.distribute("distributed_epoch", address))
        assert sorted(served.as_numpy_iterator()) == [i * i for i in range(20)]
        hvd.allreduce(tf.ones(1))                                  # rank 0's dispatcher serves both
    if r == 0:
        config.compute_client().shutdown()
print("well")
"""


# A dispatcher for each rank that trains, with a worker of its own: each has all of the data, whatever the other does.
EACH = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
r, n = hvd.rank(), hvd.size()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
assert (config.dispatchers, config.workers_per_dispatcher, config.dispatcher_side) == (2, 1, sys.argv[2])
data = tf.data.Dataset.range(20).map(lambda i: i * i + 1000 * r)
with tf_data_service(config, r) as address:
    addresses = hvd.allgather_object(address)
    assert len(set(addresses)) == 2, addresses
    served = data.apply(tf.data.experimental.service.distribute("distributed_epoch", address))
    for _ in range(2):
        assert sorted(served.as_numpy_iterator()) == [i * i + 1000 * r for i in range(20)]
if config.dispatcher_side == "compute":
    for i in (1, 2):                                  # in one order on the ranks; a rank's pass is its own
        part = data.take(5 * i + r).send_to_data_service(config, r, n, reuse_dataset=True)
        assert len(list(part.as_numpy_iterator())) == 5 * i + r
try:
    with tf_data_service(config, 2):
        raise AssertionError("a third rank has a dispatcher")
except ValueError as e:
    assert "rank 2 has no dispatcher: there are 2" in str(e), e
hvd.broadcast_object(0, 0)
if r == 0:
    config.compute_client().shutdown()
print("well")
"""


@pytest.mark.parametrize(
    ("side", "dispatchers"), cases(("compute", 1), ("training", 1), ("compute", 2), rest=[("training", 2)])
)
def test_two_jobs(run, launcher, folders, tmp_path, side, dispatchers):
    file = tmp_path / "service.json"
    env = os.environ | {"HORA_START_TIMEOUT": "120", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    env["PYTHONPATH"] = os.pathsep.join([os.environ["PYTHONPATH"], *map(str, folders)])
    command = [
        launcher,
        "run",
        "-np",
        "2",
        sys.executable,
        "-m",
        "horovod.tensorflow.data.compute_worker",
        file,
        "--dispatcher-side",
        side,
        "--dispatchers",
        str(dispatchers),
    ]
    compute = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end = time.monotonic() + 100
        while not file.exists():
            assert compute.poll() is None and time.monotonic() < end, compute.communicate()[0]
            time.sleep(0.1)
        assert file.stat().st_mode & 0o777 == 0o600
        at = json.loads(file.read_text())["addresses"]["lo"][0]
        strangers(tuple(at))
        assert run(TRAIN if dispatchers == 1 else EACH, args=(str(file), side)).stdout.count("well") == 2
        # It ends with training: on its word, or when its processes have gone.
        said, _ = compute.communicate(timeout=60)
        assert compute.returncode == 0, said
        assert not file.exists()
    finally:
        compute.kill()
        compute.wait()


def strangers(at):
    """Who does not prove the key is answered nothing, and keeps nobody waiting."""
    for said in (b"", b"x" * 64, b"GET / HTTP/1.0\r\n\r\n" + b"x" * 100):
        with socket.create_connection(at, 10) as s:
            s.settimeout(30)
            assert len(s.recv(100)) == 32
            s.sendall(said)
            if len(said) >= 64:
                try:
                    assert s.recv(100) == b""
                except ConnectionResetError:
                    pass
    held = socket.create_connection(at, 10)  # stays silent while the job works
    held.settimeout(1)


def test_a_key_that_is_another(tmp_path):
    sys.path[:0] = beside.TREE
    from horovod.runner.common.service.compute_service import ComputeClient, ComputeService

    service = ComputeService(1, 1, b"k" * 32)
    try:
        wrong, right = (ComputeClient(service.addresses(), k * 32) for k in (b"w", b"k"))
        with pytest.raises(ConnectionError, match="is the configuration file its own"):
            wrong.register_dispatcher(0, "grpc://nowhere:1")
        with pytest.raises(TimeoutError, match="dispatcher 0"):
            right.wait_for_dispatcher_registration(0, 0.1)
        right.register_dispatcher(0, "grpc://here:1")
        assert right.wait_for_dispatcher_registration(0, 1) == "grpc://here:1"
        with pytest.raises(IndexError, match="already been registered"):
            right.register_dispatcher(0, "grpc://there:1")
        with pytest.raises(TimeoutError, match="0 of 1"):
            right.wait_for_dispatcher_worker_registration(0, 0.1)
        right.register_worker_for_dispatcher(0, 0)
        right.wait_for_dispatcher_worker_registration(0, 1)
        right.shutdown()
        right.wait_for_shutdown()
    finally:
        service.shutdown()
