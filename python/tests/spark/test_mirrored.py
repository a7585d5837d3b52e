"""MirroredStrategyRunner on real tasks with real TensorFlow."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import beside
import ends
import pytest
from sample import longer
from spark_tensorflow_distributor import MirroredStrategyRunner

import hora
from hora.spark import _cluster


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


def test_what_the_function_raises_comes_to_the_driver(spark, monkeypatch):
    jobs, cancelled = [], []

    class Seen(_cluster.Job):
        def __init__(self, *args):
            super().__init__(*args)
            jobs.append(self)

        def cancel(self):
            cancelled.append(self)
            super().cancel()

    monkeypatch.setattr(_cluster, "Job", Seen)

    def work():
        from pyspark import BarrierTaskContext

        if BarrierTaskContext.get().partitionId() == 1:
            raise KeyError("no such column")
        BarrierTaskContext.get().barrier()

    with pytest.raises(KeyError, match="no such column") as e:
        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(work)
    assert e.value.__cause__.rank == 1 and 'raise KeyError("no such column")' in str(e.value.__cause__)
    assert jobs[0].wait(30) and not cancelled, "the kill of a task that waits in barrier() ends its executor"


def waits(path, how):
    """Task 0 waits in native code with a child; task 1, when both are known, fails somehow."""
    import ctypes
    import os
    import subprocess
    import sys
    import time

    import ends
    from pyspark import BarrierTaskContext

    place = BarrierTaskContext.get().partitionId()
    children = [subprocess.Popen(["sleep", "600"]).pid, os.fork() or time.sleep(600)]
    with open(f"{path}/{place}~", "w") as f:
        f.write(" ".join(map(str, (os.getpid(), *children))))
    os.rename(f"{path}/{place}~", f"{path}/{place}")
    if place == 1 and how != "wait":
        while not os.path.exists(f"{path}/0"):
            time.sleep(0.02)
        with open(f"{path}/when", "w") as f:
            f.write(str(time.time()))
        if how == "raise":
            raise KeyError("no such column")
        if how == "exit":
            sys.exit(3)
        if how == "agent":
            os.kill(next(p for p in ends.below(os.getpid()) if b"agent\0--kept" in ends.words(p)), 9)
            time.sleep(600)
        if how == "executor":
            os.kill(ends.executor_of(os.getpid()), 9)
            time.sleep(600)
        os._exit(7)
    ctypes.PyDLL(None).sleep(600)  # without letting go of the interpreter


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("raise", KeyError, "no such column"),
        ("exit", RuntimeError, r"rank 1 on .* ended with sys.exit\(3\); raise an exception"),
        ("agent", RuntimeError, "lost host|the Python worker of a task on"),
        ("die", RuntimeError, "the Python worker of a task on .* ended while the function ran: look at its executor's log"),
        ("executor", RuntimeError, "what had started its agent there has ended|the Python worker of a task on|Spark lost executor"),
    ],
)
def test_the_first_that_fails_ends_the_others_wherever_they_are(spark, tmp_path, how, error, words):
    with pytest.raises(error, match=words):
        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(waits, path=str(tmp_path), how=how)
    assert time.time() - float((tmp_path / "when").read_text()) < 20  # 3 to 6 s where nothing else runs
    ends.told(tmp_path, 2)
    own = (
        [int((tmp_path / "1").read_text().split()[0])] if how in ("raise", "exit") else []
    )  # whose function ended by itself: Spark may keep it
    assert ends.ended([p for p in ends.told(tmp_path, 2) if p not in own], 5)


def test_a_job_that_is_cancelled_leaves_nothing(spark, tmp_path):
    def cancel():
        found.extend(ends.told(tmp_path, 2))
        spark.sparkContext.cancelAllJobs()

    found = []
    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(RuntimeError, match="ancelled"):
        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(waits, path=str(tmp_path), how="wait")
    assert len(found) == 6 and ends.ended(found, 2)


DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import sessions, test_mirrored
spark = sessions.start("local[2]", Path(sys.argv[2]))
runner = test_mirrored.MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True)
runner.run(test_mirrored.waits, path=sys.argv[3], how="wait")
"""


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")
def test_a_driver_that_is_killed_leaves_nothing(tmp_path):
    for name in ("session", "told"):
        (tmp_path / name).mkdir()
    (tmp_path / "driver.py").write_text(DRIVER)
    driver = subprocess.Popen([sys.executable, tmp_path / "driver.py", Path(__file__).parent, tmp_path / "session", tmp_path / "told"])
    try:
        found = ends.told(tmp_path / "told", 2, 150, driver)
    finally:
        driver.kill()
        driver.wait()
    assert len(found) == 6 and ends.ended(found, 5)


def test_what_the_function_leaves_running_ends_with_it(spark):
    def work():
        import os
        import subprocess

        return os.getpid(), subprocess.Popen(["setsid", "sleep", "600"]).pid

    worker, child = MirroredStrategyRunner(num_slots=1, use_gpu=False, use_custom_strategy=True).run(work)
    assert os.path.exists(f"/proc/{worker}") and not os.path.exists(f"/proc/{child}")


def test_refused_before_it_starts(whole, spark, monkeypatch):
    monkeypatch.setattr(_cluster, "_QUIET", 0.5)
    monkeypatch.setattr(_cluster, "_BACK", 0.5)

    def work():
        return spark.version

    def run(n, fn, **more):
        return MirroredStrategyRunner(num_slots=n, use_custom_strategy=True, **more).run(fn)

    with pytest.raises(hora.HoraError, match="num_slots=9, the cluster has 4 task slots: give num_slots=4 or less"):
        run(9, int, use_gpu=False)
    with pytest.raises(hora.HoraError, match="num_slots=7, the cluster has 4 task slots: give num_slots=4 or less"):
        run(7, int)
    with pytest.raises(hora.ArgumentError, match=r"work uses the variable 'spark' \(a pyspark\..*SparkSession\) in line"):
        run(1, work, use_gpu=False)
    spark.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    spark.conf.set("spark.dynamicAllocation.enabled", "true")
    try:
        with pytest.raises(hora.HoraError, match="where Spark starts no gang: set spark.dynamicAllocation.enabled=false$"):
            run(1, int, use_gpu=False)
    finally:
        spark.conf.unset("spark.dynamicAllocation.enabled")
        spark.conf.unset("spark.sql.legacy.setCommandRejectsSparkCoreConfs")


def test_tasks_that_do_not_all_start_have_a_limit(spark, monkeypatch):
    monkeypatch.setenv("HORA_START_TIMEOUT", "3")
    monkeypatch.setattr(_cluster, "wait_for_slots", lambda *a: None)  # as under Connect, which does not tell
    with pytest.raises(hora.HoraError, match="of 9 workers started in 3 s: the cluster may have fewer than 9 free task slots"):
        MirroredStrategyRunner(num_slots=9, use_gpu=False, use_custom_strategy=True).run(int)


@longer
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
