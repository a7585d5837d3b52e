"""What cannot work is one sentence with what to do, before the job starts where that can be known."""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from contextlib import redirect_stderr

import horovod.spark
import pytest
import sessions

import hora
import hora.spark
from hora._run import program
from hora.spark import _cluster, _folders, _refusals, _run, _spoken


def one():
    return 1


def test_dynamic_allocation_starts_no_gang(spark):
    rejected = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
    spark.conf.set(rejected, "false")
    spark.conf.set("spark.dynamicAllocation.enabled", "true")
    try:
        with pytest.raises(
            hora.HoraError, match="allocates executors dynamically, where Spark starts no gang: give min_np="
        ):
            hora.spark.run(one, np=2)
        with pytest.raises(
            hora.ArgumentError,
            match="that allocates executors dynamically has as many task slots as are asked for; give num_proc=",
        ):
            horovod.spark.run_elastic(one)
    finally:
        spark.conf.unset("spark.dynamicAllocation.enabled")
        spark.conf.unset(rejected)


@pytest.mark.parametrize(
    ("master", "dynamic"), [("local", False), ("local[2]", False), ("local-cluster[1,1,1024]", True), ("yarn", True)]
)
def test_where_spark_allocates_dynamically(monkeypatch, master, dynamic):
    monkeypatch.setattr(
        _cluster, "spark_setting", lambda spark, name, default="": {"spark.master": master}.get(name, "true")
    )
    assert _cluster.dynamic(None) == dynamic


@pytest.mark.parametrize(
    ("amount", "words"),
    [("0.5", "tasks share GPUs (spark.task.resource.gpu.amount=0.5)"), ("2", "tasks have 2 GPUs each")],
)
def test_tasks_that_have_not_just_one_gpu_are_told_of(spark, monkeypatch, amount, words):
    setting = _cluster.spark_setting
    monkeypatch.setattr(
        _cluster,
        "spark_setting",
        lambda s, name, default="": amount if name == "spark.task.resource.gpu.amount" else setting(s, name, default),
    )
    said = io.StringIO()
    with redirect_stderr(said):
        assert hora.spark.run(one, np=1) == [1]
    assert words in said.getvalue()


def test_an_executor_that_is_being_replaced_is_waited_for(monkeypatch):
    """A new JVM may take longer than executors that register one after the other."""
    monkeypatch.setattr(_cluster, "_QUIET", 0.2)
    monkeypatch.setattr(_cluster, "spark_setting", lambda spark, name, default="": "spark://one:7077")
    session = types.SimpleNamespace(sparkContext=types.SimpleNamespace(applicationId="replaced"))
    began, have = time.monotonic(), lambda: 2
    monkeypatch.setattr(_cluster, "slots", lambda spark: have())

    def wait(n):
        return _cluster.wait_for_slots(session, n, 60, lambda text: None)

    assert wait(2) == 2
    have = lambda: 1 + (time.monotonic() > began + 1)
    began = time.monotonic()
    assert wait(2) == 2 and time.monotonic() - began > 1
    with pytest.raises(hora.HoraError, match="np=3, the cluster has 2 task slots: give np=2 or less"):
        wait(3)
    monkeypatch.setattr(_cluster, "_BACK", 0.2)
    have = lambda: 1
    with pytest.raises(
        hora.HoraError,
        match="np=2, the cluster has 1 of the 2 task slots that it had: executors were lost, and none came",
    ):
        wait(2)


def test_executors_that_register_are_told_of(monkeypatch):
    monkeypatch.setattr(_cluster, "spark_setting", lambda spark, name, default="": "spark://one:7077")
    session = types.SimpleNamespace(sparkContext=types.SimpleNamespace(applicationId="registering"))
    began, said = time.monotonic(), []
    monkeypatch.setattr(_cluster, "slots", lambda spark: 1 + 2 * (time.monotonic() > began + 2.5))
    assert _cluster.wait_for_slots(session, 3, 60, said.append) == 3
    assert set(said) == {"1 of 3 task slots are there; executors are registering"}
    with pytest.raises(hora.HoraError, match="np=4, the cluster has 3 task slots: give np=3 or less"):
        _cluster.wait_for_slots(session, 4, 0.2, said.append)


@pytest.mark.parametrize(
    ("spark_says", "hora_says"),
    [
        (
            "x [SPARK-24942]: Barrier execution mode does not support dynamic resource allocation for now. y",
            "allocates executors dynamically",
        ),
        (
            "[SPARK-24819]: … run a barrier stage that requires more slots than the total number of slots",
            "fewer task slots than the job has",
        ),
        (
            "Python in worker has different version (3, 10) than that in driver 3.11, PySpark cannot",
            "have Python 3.10 and the driver 3.11:",
        ),
        (
            "Python in worker has different version: 3.10 than that in driver: 3.11, PySpark cannot",
            "have Python 3.10 and the driver 3.11:",
        ),
        (
            "ImportError: PyArrow >= 15.0.0 must be installed; however, it was not found.",
            "have no pyarrow 15.0.0 or later",
        ),
        ("ImportError: Pandas >= 1.0.5 must be installed; however, it was not found.", "have no pandas 1.0.5 or later"),
        (
            "    import pyarrow as pa\nModuleNotFoundError: No module named 'pyarrow'\n SQLSTATE",
            "executors have no pyarrow: install it there",
        ),
    ],
)
def test_what_spark_refuses_itself(spark_says, hora_says):
    said = str(_spoken.spoken(RuntimeError(spark_says)))
    assert hora_says in said and "\n" not in said and _spoken.final(RuntimeError(spark_says))
    assert _refusals.known("java.io.IOException: broken pipe") is None


def test_why_rows_could_not_be_computed():
    spark_says = (
        'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "a.py", line 3, in <lambda>\n'
        "    1 // (x - 700)\nZeroDivisionError: integer division or modulo by zero\n\n\tat org.apache.spark.api.python"
    )
    said = str(_spoken.spoken(RuntimeError(spark_says)))
    assert (
        "a task that computes the rows raised ZeroDivisionError: integer division or modulo by zero; the cause of"
        in said
    )


def test_folders_of_drivers_that_were_killed_go(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_folders, "_YOUNG", 0)
    program = (
        "from hora.spark import _folders; import sys; print(_folders.make('hora-ship-'), flush=True); sys.stdin.read()"
    )
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | {"TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    lives, killed = (d.stdout.readline().decode().strip() for d in drivers)
    drivers[1].kill()
    drivers[1].wait()
    (tmp_path / "hora-spark-another").mkdir()  # of a release that has no locks, or of somebody who is about to lock it
    mine = _folders.make("hora-spark-")
    assert {str(p) for p in tmp_path.iterdir()} == {lives, mine, str(tmp_path / "hora-spark-another")} and killed
    _folders.remove(mine)
    assert not os.path.exists(mine)
    drivers[0].communicate(b"")


def test_nobody_is_advised_to_give_what_his_front_end_lacks():
    words = _refusals.Wording("num_slots", elastic=None, restarts=None)
    for spark_says, hora_says in (
        (
            "[SPARK-24942]: does not support dynamic resource allocation",
            "starts no gang: set spark.dynamicAllocation.enabled=false",
        ),
        (
            "[SPARK-24819]: requires more slots than the total number of slots",
            "give a smaller num_slots, or more executors",
        ),
        (
            "ExecutorLostFailure (executor 3 exited caused by x) Reason: gone",
            "Spark lost executor 3 (gone): its log says why",
        ),
    ):
        said = str(_spoken.spoken(RuntimeError(spark_says), words))
        assert said.endswith(hora_says) or hora_says in said, said
        assert "min_np" not in said and "restarts" not in said and "np=" not in said
    assert "give min_np=, for tasks" in str(_spoken.spoken(RuntimeError("SPARK-24942")))
    assert "call run_elastic, for tasks" in _refusals.Wording("num_proc", "call run_elastic", None).dynamic()


def test_spark_s_own_objects_stay_on_the_driver(spark):
    frame, lock = spark.range(3), threading.Lock()

    def counts():
        return frame.count()

    def calls_it():
        return counts()

    def asks():
        return spark.version

    def takes(frame):
        return frame

    def locks():
        return lock.locked()

    cases = [
        (calls_it, (), r"counts uses the variable 'frame' \(a pyspark\..*DataFrame\) in line \d+ of test_refusals.py, .*give its rows by dataframe="),
        (asks, (), r"asks uses the variable 'spark' \(a pyspark\..*SparkSession\) in line \d+ of test_refusals.py, .*alone: collect what"),
        (takes, (frame,), r"argument 1 of .*takes \(a pyspark\..*DataFrame\) cannot be pickled, .*give its rows by dataframe="),
        (locks, (), r"locks uses the variable 'lock' \(a _thread.lock\) in line \d+ of test_refusals.py, which cannot be pickled; make it"),
    ]  # fmt: skip
    for fn, args, sentence in cases:
        with pytest.raises(hora.ArgumentError, match=sentence):
            hora.spark.run(fn, args=args, np=1)


def test_an_attribute_is_no_variable(spark):
    """A notebook has a variable `spark`, and its functions may use hora.spark."""

    def rows():
        import hora.spark

        return list(hora.spark.batches(64))

    _refusals.refuse_spark_objects(types.FunctionType(rows.__code__, {"hora": hora, "spark": spark}), (), {})


def test_a_module_that_executors_lack(spark, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def five():\n    return 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    (tmp_path / "only_here.py").unlink()  # as on a machine that does not have it
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)

    def by_reference():
        return only_here.five()

    def inside():
        import nowhere_at_all

        return nowhere_at_all

    for fn, name in ((by_reference, "only_here"), (inside, "nowhere_at_all")):
        with pytest.raises(
            ModuleNotFoundError,
            match=f"rank 0 on .* has no module '{name}' for .*python.*: install it on the executors, or send",
        ):
            hora.spark.run(fn, np=1)


def test_executors_of_another_kind(spark, monkeypatch):
    plain = _run._Attempt._config
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    cases = [
        (
            {"python": (3, 1)},
            rf"the executor on .* has Python {mine} and the driver 3\.1: set PYSPARK_PYTHON to an interpreter of the same",
        ),
        (
            {"version": "0.0.0"},
            r"the executor on .* has hora .* and the driver 0\.0\.0: install the same version on both",
        ),
        (
            {"machine": "vax", "digest": "0" * 64},
            r"the executor on .* is a .* and the driver a vax, so that .*: install hora's wheel of version .* with .* on the executors",
        ),
        (
            {"shipped": "nothing", "digest": "0" * 64},
            r"the program hora did not reach the executor on .*: install hora's wheel of version",
        ),
    ]
    for more, sentence in cases:
        monkeypatch.setattr(_run._Attempt, "_config", lambda self, *a, more=more: plain(self, *a) | more)
        with pytest.raises(hora.HoraError, match=sentence) as e:
            hora.spark.run(one, np=2, restarts=1)
        assert "\n" not in str(e.value)


def test_spark_s_word_of_another_python(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.1")
    with pytest.raises(
        hora.HoraError, match=r"the executors have Python \d\.\d+ and the driver 3\.1: set PYSPARK_PYTHON"
    ):
        hora.spark.run(one, np=1)


NOEXEC = """
import sys
sys.path[:0] = [sys.argv[1]]
import hashlib, os, platform, shutil, types
import sessions
import hora
from hora._version import __version__
from hora.spark import _task

source, folder = sys.argv[2:]
os.makedirs(folder)
assert os.system(f"mount -t tmpfs -o noexec none {folder}") == 0
shutil.copy(source, f"{folder}/hora-shipped")
import pyspark
pyspark.SparkFiles.get = staticmethod(lambda name: f"{folder}/{name}")
with open(source, "rb") as f:
    digest = hashlib.sha256(f.read()).hexdigest()
import sysconfig
sysconfig.get_path = lambda name: folder
config = {
    "hub": "127.0.0.1:1", "secret": "0" * 64, "program": f"{folder}/hora-shipped", "shipped": "hora-shipped", "digest": digest,
    "machine": platform.machine(), "version": __version__, "python": sys.version_info[:2], "feed": False, "openmp": False, "unreached": 69, "local": False,
    "first": None, "inside": None,
}
try:
    list(_task.make(config)(iter([])))
except RuntimeError as e:
    print(e)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_task_that_may_not_start_programs(tmp_path):
    (tmp_path / "program.py").write_text(NOEXEC)
    here = os.path.dirname(os.path.abspath(sessions.__file__))
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, tmp_path / "program.py", here, program(), tmp_path / "noexec"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert re.match(
        r"hora\.spark: the task on .* may not start the program .*/noexec/hora-shipped \(Permission denied\): install hora's wheel where",
        done.stdout,
    ), done.stdout + done.stderr


def test_strangers_at_the_hub_s_port(spark, monkeypatch):
    listening = _run._Attempt._listening
    refused = []

    def intrude(where):
        host, _, port = where.split(",")[0].rpartition(":")
        for words in (b"GET / HTTP/1.0\r\n\r\n", bytes(4096), b"\x16\x03\x01\x02\x00\x01"):
            with socket.create_connection((host, int(port)), 5) as s:
                s.sendall(words)
                s.settimeout(15)
                try:
                    refused.append(s.recv(1 << 16))
                except OSError:
                    refused.append(b"")
        agent = subprocess.run(
            [program(), "agent", "--hub", where], input="0" * 63 + "1\n", capture_output=True, text=True, timeout=60
        )
        refused.append(agent.stderr)

    def there(self, hub):
        where = listening(self, hub)
        intrude(where)
        return where

    monkeypatch.setattr(_run._Attempt, "_listening", there)
    said = io.StringIO()
    with redirect_stderr(said):
        assert hora.spark.run(one, np=2) == [1, 1]
    assert len(refused) == 4 and "has its secret" in refused[3]
    assert not any(b"hora" in r[64:] for r in refused[:3]), "nothing is told to who proves nothing"
    assert "strangers are kept out, and nothing is lost by it" in said.getvalue()


def test_two_elastic_jobs_with_half_the_slots_each(spark, tmp_path):
    """Neither can begin; the one whose limit is over says so and lets go, and the other goes on."""
    _cluster.wait_for_slots(spark, 4, 90, print)

    def held(batches):
        import os
        import time

        import pyarrow

        list(batches)
        while not os.path.exists(f"{tmp_path}/go"):
            time.sleep(0.02)
        yield pyarrow.RecordBatch.from_pydict({"x": [1]})

    def work():
        import hora
        import hora.elastic

        hora.init()
        return hora.elastic.run(lambda state: int(hora.allreduce(1, name="x")))(hora.elastic.State(step=0))

    context = spark.sparkContext
    got: dict[str, object] = {}

    def job(name, limit):
        context.setLocalProperty("spark.scheduler.pool", name)
        try:
            got[name] = _run.launch(work, (), None, 3, min_np=3, max_np=3, limit=limit)
        except hora.HoraError as e:
            got[name] = str(e)

    def hold():
        context.setLocalProperty("spark.scheduler.pool", "hold")
        spark.range(4, numPartitions=4).mapInArrow(held, "x long").collect()

    threads = [
        threading.Thread(target=hold),
        *(threading.Thread(target=job, args=j) for j in (("second", 90), ("first", 10))),
    ]
    tracker = context.statusTracker()
    try:
        for n, t in enumerate(threads, 1):
            t.start()
            end = time.monotonic() + 60
            while len(tracker.getActiveJobsIds()) < n:
                assert time.monotonic() < end, (n, got)
                threading.Event().wait(0.02)
    finally:
        (tmp_path / "go").write_text("")
        for t in threads:
            if t.ident is not None:
                t.join(120)
    told = re.search(r"([0-2]) of 3 workers started in 10 s: .*give a smaller min_np", got["first"])
    assert told and (told[1] == "0" or "this job has let go of them" in got["first"]), (
        got
    )  # 0 where the machine is too busy for Spark
    assert got["second"] == [3, 3, 3], got


def test_the_place_of_the_hub_is_one_of_two(spark, monkeypatch):
    monkeypatch.setenv("HORA_SPARK_HUB", "moon")
    with pytest.raises(hora.ArgumentError, match="HORA_SPARK_HUB='moon': use 'driver' or 'task'"):
        hora.spark.run(one, np=1)
    monkeypatch.setenv("HORA_SPARK_HUB", "task")
    with pytest.raises(hora.ArgumentError, match="ordinary tasks have no first one that stays"):
        hora.spark.run(one, np=1, min_np=1)
