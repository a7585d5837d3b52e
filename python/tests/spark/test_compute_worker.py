"""horovod.spark.tensorflow.compute_worker: tf.data's service in task slots, for a training beside it."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys

import beside
import pytest
from sample import longer

TRAIN = """
import sys
import tensorflow as tf
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
assert (config.dispatchers, config.workers_per_dispatcher) == (1, 2)
data = tf.data.Dataset.range(20).map(lambda i: i * i).send_to_data_service(config, 0, 1)
assert sorted(int(i) for i in data.as_numpy_iterator()) == [i * i for i in range(20)]
config.compute_client().shutdown()
print("well")
"""


@pytest.fixture
def tensorflow(monkeypatch):
    folder = str(beside.folder("tensorflow"))
    monkeypatch.setattr(sys, "path", [*sys.path, folder])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    return folder


@longer
def test_a_training_beside_it(whole, tensorflow, tmp_path):
    from horovod.spark.tensorflow import compute_worker

    file = tmp_path / "service.json"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        compute = pool.submit(compute_worker.main, 1, "compute", str(file), 60, 2)
        env = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), *beside.TREE, tensorflow])}
        training = subprocess.Popen([sys.executable, "-c", TRAIN, file], env=env, stdout=subprocess.PIPE, text=True)
        try:
            compute.result(120)  # it ends with the training, or says why it could not begin
            assert training.communicate(timeout=30)[0] == "well\n"
        finally:
            training.kill()
            training.wait()
    assert not file.exists()


def test_what_is_refused(spark, tensorflow, tmp_path):
    from horovod.spark.tensorflow import compute_worker

    for dispatchers, side, num_proc, says in (
        (3, "compute", None, r"Number of processes \(4\) must be a multiple"),
        (1, "nowhere", 2, "compute or training"),
        (0, "compute", 2, "must be a multiple"),
    ):
        with pytest.raises(ValueError, match=says):
            compute_worker.main(dispatchers, side, str(tmp_path / "service.json"), num_proc=num_proc)
