"""MirroredStrategyRunner on real tasks with real TensorFlow."""

from __future__ import annotations

import inspect
import os
import sys

import beside
import pytest
from spark_tensorflow_distributor import MirroredStrategyRunner


@pytest.fixture
def tensorflow(monkeypatch):
    """Its folders go to the tasks with the driver's import path."""
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])


def test_the_signature_is_the_reference_s():
    of = inspect.signature(MirroredStrategyRunner.__init__).parameters
    assert {n: p.default for n, p in of.items() if n not in ("self", "num_slots")} == {
        "local_mode": False, "use_gpu": True, "gpu_resource_name": "gpu", "use_custom_strategy": False,
    }  # fmt: skip
    assert all(p.kind is p.KEYWORD_ONLY for n, p in of.items() if n != "self")
    for wrong in (0, -1, True, "2"):
        with pytest.raises(ValueError, match="is no number of slots"):
            MirroredStrategyRunner(num_slots=wrong)
    with pytest.raises(ValueError, match="give num_slots=1"):
        MirroredStrategyRunner(num_slots=2, local_mode=True, use_gpu=False)


def test_gpus_that_spark_does_not_give(spark):
    with pytest.raises(RuntimeError, match=r"spark.task.resource.tpu.amount is not set.*give use_gpu=False"):
        MirroredStrategyRunner(num_slots=2, gpu_resource_name="tpu")


def test_each_task_sees_the_gpus_that_spark_gave_it(spark):
    def work():
        import os

        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        mine = f"{os.environ['CUDA_VISIBLE_DEVICES']} of {','.join(context.resources()['gpu'].addresses)}"
        return context.allGather(mine)

    told = MirroredStrategyRunner(num_slots=3, use_custom_strategy=True).run(work)
    assert all(t.split(" of ")[0] == t.split(" of ")[1] for t in told) and len(set(told)) == 3, told


def test_local_mode_leaves_the_variable_as_it_was(spark, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    runner = MirroredStrategyRunner(num_slots=1, local_mode=True, use_gpu=False, use_custom_strategy=True)
    assert runner.run(lambda x: (x, os.environ["CUDA_VISIBLE_DEVICES"]), x=5) == (5, "")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_a_function_in_the_tasks_own_workers(spark):
    def work(scale):
        import json
        import os

        from pyspark import BarrierTaskContext

        config = json.loads(os.environ["TF_CONFIG"])
        places = BarrierTaskContext.get().allGather(str(config["task"]["index"]))
        return len(set(config["cluster"]["worker"])) * scale, places, bytes(1 << 20), os.environ["CUDA_VISIBLE_DEVICES"]

    result = MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(work, scale=10)
    assert result == (20, ["0", "1"], bytes(1 << 20), "")


def test_what_the_function_raises_comes_to_the_driver(spark):
    def work():
        from pyspark import BarrierTaskContext

        if BarrierTaskContext.get().partitionId() == 1:
            raise KeyError("no such column")
        BarrierTaskContext.get().barrier()

    with pytest.raises(RuntimeError, match=r"task 1 on .*KeyError: 'no such column'"):
        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(work)


def test_two_workers_of_tensorflow_train_as_one(spark, tensorflow):
    def train():
        import tensorflow as tf

        strategy = tf.distribute.get_strategy()

        @tf.function
        def step():
            def each():
                return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.5))

            return strategy.run(each)

        return strategy.num_replicas_in_sync, float(step())

    path = list(sys.path)  # Spark may give the batches to a worker that no gang has had

    def used(batches):
        import sys

        sys.path.extend(p for p in path if p not in sys.path)
        import tensorflow as tf

        for b in batches:
            tf.constant(1.0) + 1
            yield b

    runner = MirroredStrategyRunner(num_slots=2, use_gpu=False)
    assert runner.run(train) == (2, 3.0)
    assert spark.range(8, numPartitions=8).mapInArrow(used, "id long").count() == 8  # in the same workers of Spark's
    assert runner.run(train) == (2, 3.0)
