"""What a model has where Spark asks it: batches of so many bytes, the task's threads, and the GPU of its resources."""

from __future__ import annotations

import os
import subprocess
import sys

import beside
import pytest
from sample import longer

from hora.spark import predict

torch = pytest.importorskip("torch")
pytest.importorskip("pyspark.sql.functions")


@longer
def test_a_batch_has_no_more_bytes_of_features_than_said(spark, tmp_path):
    """Of one column the numbers, of two the numbers of both; all rows come where they were."""
    table = spark.range(1000, numPartitions=2).selectExpr("cast(id as double) a", "cast(id as double) b")
    for names, most in ((["a"], 50), (["a", "b"], 25)):
        seen = tmp_path / "".join(names)
        seen.mkdir()

        def double(columns, seen=str(seen)):
            import os

            with open(f"{seen}/{os.getpid()}", "a") as f:
                f.write(f"{len(columns['a'])}\n")
            return columns["a"] * 2

        got = predict(double, table, features=names, batch_bytes=400, returns="double").collect()
        assert [r.prediction for r in got] == [2 * r.a for r in got] and len(got) == 1000
        sizes = [int(line) for p in seen.iterdir() for line in p.read_text().split()]
        assert max(sizes) == most and sum(sizes) == 1000, sizes


@longer
@pytest.mark.parametrize("threads", [0, 3])
def test_a_model_has_the_threads_of_its_task(spark, tmp_path, threads):
    """Spark's own number of cores of a task, which is 1, or what is said."""
    seen = str(tmp_path)

    def load():
        import os

        import torch

        class Told(torch.nn.Linear):
            def forward(self, x):
                open(f"{seen}/{os.getpid()}.{torch.get_num_threads()}", "w").close()
                return super().forward(x)

        torch.set_num_threads(5)
        return Told(1, 1)

    table = spark.range(40, numPartitions=4).selectExpr("cast(id as double) a")
    assert (
        predict(load, table, features="a", threads=threads, returns="double").where("prediction is null").count() == 0
    )
    assert {name.split(".")[1] for name in os.listdir(seen)} == {str(threads or 1)}


@longer
def test_ranks_begin_without_what_a_prediction_has_set(spark, hora_program):
    """Spark gives a worker that has predicted to a gang next."""
    import hora.spark

    table = spark.range(40, numPartitions=4).selectExpr("cast(id as double) a")

    def tells(columns):
        import os

        assert os.environ["TF_NUM_INTRAOP_THREADS"] == "1"
        return columns["a"]

    def rank():
        import os

        return [os.environ.get(name) for name in ("TF_NUM_INTRAOP_THREADS", "TF_FORCE_GPU_ALLOW_GROWTH")]

    got = predict(tells, table, features="a", returns="double").where("prediction is null").count()
    assert got == 0
    assert hora.spark.run(rank, np=2, spark=spark) == [[None, None]] * 2


@longer
def test_a_model_is_on_the_gpu_of_its_task(spark, tmp_path):
    """Whose address Spark gives, also where a worker's next task has another one."""
    seen = str(tmp_path)

    def load():
        import os

        import torch
        from pyspark import TaskContext

        there = torch.cuda.is_available

        class Placed(torch.nn.Linear):
            """Says where it is put; this machine has no such device."""

            def to(self, device):
                torch.cuda.is_available = there
                (address,) = TaskContext.get().resources()["gpu"].addresses
                open(f"{seen}/{address} {device} {os.getpid()}", "w").close()
                return self

        torch.cuda.is_available = lambda: True
        return Placed(1, 1)

    table = spark.range(40, numPartitions=4).selectExpr("cast(id as double) a")
    predict(load, table, features="a", returns="double").collect()
    said = [name.split() for name in os.listdir(seen)]
    assert said and all(device == f"cuda:{address}" for address, device, _ in said), said
    assert {address for address, *_ in said} <= set("0123") and len({address for address, *_ in said}) > 1, said


MAKE = """
import pickle, sys
import keras, tensorflow as tf
from hora.spark import _net
from sparkdl.estimators.horovod_estimator._saved import Saved

folder, v1 = sys.argv[1], tf.compat.v1
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
net = _net.Net("keras", _net.keras_bytes(model), ["x"], ["y"], None, [1], backend="tensorflow")
with open(f"{folder}/keras", "wb") as f:
    pickle.dump(net, f)
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, (None, 2))
    w = v1.get_variable("w", (2, 1), initializer=v1.ones_initializer())
    y = tf.matmul(x, w)
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.Builder(f"{folder}/saved_model")
    signature = v1.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})
    builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
    builder.save()
saved = Saved(f"{folder}/saved_model", {"x": x.name}, [("", y.name, 1, "float")], True)
with open(f"{folder}/tensorflow", "wb") as f:
    pickle.dump(saved, f)
"""

ASK = """
import os, pickle, sys, types
import numpy as np
import pyarrow
from hora.spark import _scorer

def threads():
    names = [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
    return sum(n.startswith("tf_Compute") for n in names), len(names)  # between operations; in all

with open(sys.argv[1], "rb") as f:
    model = f.read()
given = _scorer.Given(model, False, "digest", ["x"], "array<double>", False, False, 1 << 20, int(sys.argv[2]))
gpu = sys.argv[3] if len(sys.argv) > 3 else ""
_scorer._place = lambda threads: (threads, gpu)
where = []
if gpu:  # which this machine has not: TensorFlow's names of devices say where it would be
    import keras, tensorflow as tf
    from tensorflow.python.eager import context
    listed = tf.config.list_physical_devices
    two = [types.SimpleNamespace(device_type="GPU")] * 2
    tf.config.list_physical_devices = lambda kind=None: two if kind == "GPU" else listed(kind)
    asked = keras.Model.predict_on_batch
    def ask(self, x):
        where.append(context.context().device_name)
        return asked(self, x)
    keras.Model.predict_on_batch = ask
values, *_ = _scorer.score(pyarrow.table({"x": [[1.0, 2.0]] * 64}), given)
asked = _scorer._loaded["digest"]
session = getattr(asked.model, "_session", None)
if session is not None:
    where = [op.device for op in session.graph.get_operations() if op.type == "MatMul"]
print(np.ravel(values)[:2].tolist(), *threads(), sorted(set(where)))
"""


def program(text, *args):
    path = os.pathsep.join([*beside.TREE, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    env = os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, args)], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@longer
def test_tensorflow_has_the_threads_and_the_gpu_of_its_task(tmp_path):
    """As a worker of Spark's asks a Keras model and a SavedModel, in a process where TensorFlow has not begun."""
    program(MAKE, tmp_path)
    for kind in ("keras", "tensorflow"):
        found = [program(ASK, tmp_path / kind, n).split("]")[:2] for n in (1, 3)]
        (between, all_), (between_three, all_three) = ([int(n) for n in rest.split()[:2]] for _, rest in found)
        assert [said for said, _ in found] == ["[3.0, 3.0"] * 2
        assert (between, between_three) == (1, 3) and all_three >= all_ + 4, (kind, found)  # those within one too
        assert "device:GPU:1" in program(ASK, tmp_path / kind, 1, "1"), kind
