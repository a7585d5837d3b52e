"""horovod.spark.tensorflow.compute_worker: tf.data's service in task slots, for a training beside it.

TensorFlow is in programs of their own: what imports it and then triton, as torch's optimizers do, is ended by the
LLVM that both bring.
"""

from __future__ import annotations

import os
import subprocess
import sys

import beside
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

REFUSED = """
import sys
from horovod.spark.tensorflow import compute_worker

for dispatchers, side, says in (
    (3, "compute", "Number of processes (4) must be a multiple"),
    (1, "nowhere", "compute or training"),
    (0, "compute", "must be a multiple"),
):
    try:
        compute_worker.main(dispatchers, side, sys.argv[1], num_proc=4)
    except ValueError as e:
        assert says in str(e), e
    else:
        sys.exit(f"{dispatchers} dispatchers on the side {side!r} were not refused")
print("well")
"""


def _program(*args: str, **more: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([*beside.TREE, os.environ.get("PYTHONPATH", ""), str(beside.folder("tensorflow"))])
    env = os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"} | more
    return subprocess.Popen(
        [sys.executable, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@longer
def test_a_training_beside_it(tmp_path):
    file = tmp_path / "service.json"
    started = "--conf spark.ui.enabled=false --master local-cluster[2,1,1024] pyspark-shell"
    compute = _program(
        *("-m", "horovod.spark.tensorflow.compute_worker", str(file), "--dispatcher-side", "compute", "--num-proc", "2"),
        PYSPARK_SUBMIT_ARGS=started, SPARK_WORKER_DIR=str(tmp_path / "worker"), SPARK_LOCAL_DIRS=str(tmp_path / "local"),
    )  # fmt: skip
    training = _program("-c", TRAIN, str(file))
    try:
        said = compute.communicate(timeout=120)[0]  # it ends with the training, or says why it could not begin
        assert compute.returncode == 0, said
        assert training.communicate(timeout=30)[0].endswith("well\n")
    finally:
        for p in (compute, training):
            p.kill()
            p.communicate()
    assert not file.exists()


def test_what_is_refused(tmp_path):
    refused = _program("-c", REFUSED, str(tmp_path / "service.json"))
    try:
        said = refused.communicate(timeout=90)[0]
    finally:
        refused.kill()
        refused.communicate()
    assert refused.returncode == 0 and said.endswith("well\n"), said
