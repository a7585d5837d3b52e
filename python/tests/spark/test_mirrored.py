"""MirroredStrategyRunner on real tasks with real TensorFlow."""

from __future__ import annotations

import inspect
import io
import json
import logging
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
import hora.spark
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


def test_a_worker_of_spark_s_is_left_as_it_was(spark):
    """Spark gives it to later tasks, whose GPUs may be others: what the first was given means nothing to them."""

    def look(batches):
        import os

        import pyarrow as pa

        for b in batches:
            yield pa.RecordBatch.from_pydict(
                {"seen": [f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}"] * b.num_rows}
            )

    def work():
        import os

        from pyspark import BarrierTaskContext

        return BarrierTaskContext.get().allGather(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}")

    workers = set()
    for _ in range(3):  # in which a worker comes to have another GPU than before
        told = [t.split() for t in MirroredStrategyRunner(num_slots=4, use_custom_strategy=True).run(work)]
        assert len({gpu for _, gpu in told}) == 4, told
        workers |= {pid for pid, _ in told}
    seen = {r.seen for r in spark.range(8, numPartitions=4).mapInArrow(look, "seen string").collect()}
    assert any(s.split()[0] in workers for s in seen) and {s.split()[1] for s in seen} == {"None"}, (seen, workers)


GPUS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import sessions, test_mirrored
folder, more = Path(sys.argv[2]), json.loads(sys.argv[4])
spark = sessions.start("local-cluster[2,2,1024]", folder, **sessions.gpus(folder / "gpus") | more)
print(json.dumps(getattr(test_mirrored, sys.argv[3])(spark)), flush=True)
spark.stop()
"""


def among_gpus(folder: Path, name: str, **more: str):
    """What a function of this file comes to in a session of its own, whose executors have two GPUs each."""
    (folder / "driver.py").write_text(GPUS)
    argv = [sys.executable, folder / "driver.py", Path(__file__).parent, folder, name, json.dumps(more)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def seen_gpus(num_slots: int, **more) -> list[list[list[str]]]:
    """Of each task what it sees and what Spark gave it."""

    def work():
        import os

        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        return context.allGather(
            f"{os.environ['CUDA_VISIBLE_DEVICES']} of {','.join(context.resources()['gpu'].addresses)}"
        )

    told = MirroredStrategyRunner(num_slots=num_slots, use_custom_strategy=True, **more).run(work)
    return [[sorted(filter(None, part.split(","))) for part in t.split(" of ")] for t in told]


def said_of(call, *args, **kwargs) -> str:
    """What an error says of a call, or what the call came to."""
    try:
        return str(call(*args, **kwargs))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def two_each(spark):
    warned = io.StringIO()
    logging.getLogger("MirroredStrategyRunner").addHandler(logging.StreamHandler(warned))
    _cluster.wait_for_slots(spark, 2, 90, print)
    seen = {n: [seen_gpus(n), warned.getvalue()] for n in (1, 2, 4, 3, 4)}
    _cluster._QUIET = 0.5
    return seen | {"more": said_of(seen_gpus, 5), "cpu": seen_gpus(2, use_gpu=False)}


def parts(spark):
    _cluster.wait_for_slots(spark, 4, 90, print)
    return {"gpu": said_of(seen_gpus, 2), "cpu": seen_gpus(4, use_gpu=False)}


def behind_ssl(spark):
    def one():
        return "ran"

    def run(**more):
        return MirroredStrategyRunner(num_slots=1, use_gpu=False, use_custom_strategy=True, **more).run(one)

    _cluster.wait_for_slots(spark, 4, 90, print)
    said = {"refused": said_of(run), "local": said_of(run, local_mode=True), "other": hora.spark.run(one, np=2)}
    spark.conf.set("tensorflow.spark.distributor.ignoreSsl", "true")
    return said | {"allowed": said_of(run), "indexed": [seen_gpus(4) for _ in range(2)]}


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")
def test_tasks_with_several_gpus_each(tmp_path):
    """As many tasks as have the slots' GPUs, which are spread evenly among them, the first tasks having one more."""
    said = among_gpus(tmp_path, "two_each", **{"spark.task.resource.gpu.amount": "2"})
    for slots, counts in {"1": [1], "2": [2], "3": [2, 1], "4": [2, 2]}.items():
        tasks, warned = said[slots]
        assert [len(mine) for mine, _ in tasks] == counts, said
        assert all(set(mine) <= set(given) and len(given) == 2 for mine, given in tasks), said
        assert len({gpu for mine, _ in tasks for gpu in mine}) == int(slots)
        assert (f"{len(tasks)} tasks have {2 * len(tasks)} GPUs in all, of which {slots} are used" in warned) == (
            slots in "13"
        ), warned
    assert (
        "MirroredStrategyRunner: tasks=3, the cluster has 2 task slots: give tasks=2 or less, or more executors"
        in said["more"]
    )
    assert said["more"].endswith("; num_slots=5 takes 3 tasks, of 2 GPUs each")
    assert [mine for mine, _ in said["cpu"]] == [[], []]


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")
def test_tasks_that_share_a_gpu_are_refused(tmp_path):
    said = among_gpus(tmp_path, "parts", **{"spark.task.resource.gpu.amount": "0.5"})
    assert said["gpu"] == (
        "RuntimeError: MirroredStrategyRunner: spark.task.resource.gpu.amount=0.5: a task must have whole GPUs; set it to 1 or more"
    )
    assert [mine for mine, _ in said["cpu"]] == [[]] * 4 and all(len(given) == 1 for _, given in said["cpu"])


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")
def test_under_ssl_it_is_asked_for_and_gpus_are_those_that_executors_may_see(tmp_path):
    """TensorFlow's own connections are in clear, whatever Spark's are."""
    said = among_gpus(
        tmp_path, "behind_ssl", **{"spark.ssl.enabled": "true", "spark.executorEnv.CUDA_VISIBLE_DEVICES": "7,GPU-6,5,4"}
    )
    assert said["refused"] == (
        "RuntimeError: MirroredStrategyRunner: spark.ssl.enabled is true, and what TensorFlow's workers say to each other would not be encrypted; "
        "set tensorflow.spark.distributor.ignoreSsl=true if that may be"
    )
    assert (said["local"], said["allowed"], said["other"]) == ("ran", "ran", ["ran", "ran"])
    visible = ["7", "GPU-6", "5", "4"]  # into which the addresses that Spark gives are indices
    for tasks in said["indexed"]:
        assert (
            all(mine == [visible[int(given[0])]] for mine, given in tasks) and len({mine[0] for mine, _ in tasks}) == 4
        ), said


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
        (
            "die",
            RuntimeError,
            "the Python worker of a task on .* ended while the function ran: look at its executor's log",
        ),
        (
            "executor",
            RuntimeError,
            "what had started its agent there has ended|the Python worker of a task on|Spark lost executor",
        ),
    ],
)
def test_the_first_that_fails_ends_the_others_wherever_they_are(spark, tmp_path, how, error, words):
    with pytest.raises(error, match=words):
        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(
            waits, path=str(tmp_path), how=how
        )
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
        MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True).run(
            waits, path=str(tmp_path), how="wait"
        )
    # Spark ends a Python worker two to four seconds after the cancelling, which may be told sooner
    assert len(found) == 6 and ends.ended(found, 12)


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
    driver = subprocess.Popen(
        [sys.executable, tmp_path / "driver.py", Path(__file__).parent, tmp_path / "session", tmp_path / "told"]
    )
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
    with pytest.raises(
        hora.ArgumentError, match=r"work uses the variable 'spark' \(a pyspark\..*SparkSession\) in line"
    ):
        run(1, work, use_gpu=False)
    spark.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    spark.conf.set("spark.dynamicAllocation.enabled", "true")
    try:
        with pytest.raises(
            hora.HoraError, match="where Spark starts no gang: set spark.dynamicAllocation.enabled=false$"
        ):
            run(1, int, use_gpu=False)
    finally:
        spark.conf.unset("spark.dynamicAllocation.enabled")
        spark.conf.unset("spark.sql.legacy.setCommandRejectsSparkCoreConfs")


def test_tasks_that_do_not_all_start_have_a_limit(spark, monkeypatch):
    monkeypatch.setenv("HORA_START_TIMEOUT", "3")
    monkeypatch.setattr(_cluster, "wait_for_slots", lambda *a: None)  # as under Connect, which does not tell
    with pytest.raises(
        hora.HoraError, match="of 9 workers started in 3 s: the cluster may have fewer than 9 free task slots"
    ):
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
