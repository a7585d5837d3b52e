"""What the driver makes of a gang's end, whoever was the first to say something of it."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import queue
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import hora
from hora import _run as programs
from hora import _task, _travel
from hora.spark import _beside, _cluster, _ended, _hub, _refusals, _run, _spoken, frontend
from hora.spark import _task as in_task

LOST = "hora: lost host vm: what had started its agent there has ended\n"
SPARK = RuntimeError(
    "Job aborted: ExecutorLostFailure (executor 4 exited caused by one of the running tasks) Reason: Command exited with code 50\n"
)


@pytest.mark.parametrize(
    ("said", "spark", "words"),
    [
        ("", None, "rank 1 on vm: killed by signal 15"),
        (LOST, None, "lost host vm: what had started its agent there has ended$"),
        (
            LOST,
            RuntimeError("Could not recover from a failed barrier ResultStage; a task was interrupted"),
            "lost host vm: what had started its agent",
        ),
        (LOST, SPARK, r"Spark lost executor 4 \(Command exited with code 50\)"),
    ],
)
def test_who_was_ended_after_a_host_was_lost_did_not_fail(tmp_path, said, spark, words):
    attempt = _run._Attempt(None, 2, 2, 2, False, None, 10, print, None, None, _refusals.PLAIN)
    attempt.opened = True
    attempt.exits = [{"rank": 1, "host": "vm", "cause": "killed by signal 15 (SIGTERM)"}]
    hub = SimpleNamespace(results=str(tmp_path), report=str(tmp_path / "none"), said=lambda: said)
    with pytest.raises(_ended.Lost) as e:
        _ended.results(attempt, hub, 1, None, lambda patience: spark)
    with pytest.raises(hora.HoraError, match=words):
        raise e.value.error


CAME_THROUGH = "".join(
    f"\tat org.apache.spark.scheduler.{m}(DAGScheduler.scala:1)\n" for m in ("cancelRunningStages", "interruptTasks")
)
BARRIER = f"""An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Could not recover from a failed barrier ResultStage. Most recent failure reason: barrier task 1 failed.
{CAME_THROUGH}"""


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_the_hub_s_last_words_are_read_first(tmp_path, monkeypatch, late):
    """Spark notices that a task has ended, and the hub knows why: also where what reads its words is slow."""
    program = tmp_path / "hub"
    events = 'while [ "$1" != --events ]; do shift; done; echo \'{"event": "opened"}\' >"$2"'
    program.write_text(f"#!/bin/sh\n{events}\nsleep 0.5\nprintf '{LOST}' >&2\nexit 1\n")
    program.chmod(0o755)
    take = _hub.Hub._take

    def slowly(self, source, to):
        time.sleep(4 * late)  # the hub has ended meanwhile
        take(self, source, to)

    monkeypatch.setattr(_hub.Hub, "_take", slowly)
    monkeypatch.setattr(_hub, "program", lambda: str(program))
    monkeypatch.setattr(_run._Attempt, "_listening", lambda self, hub: "nowhere")
    monkeypatch.setattr(_run._Attempt, "_config", lambda self, secret, where: {})

    class Job:
        thread = threading.Thread()

        def __init__(self, session, frame, tag, report):
            report(RuntimeError(BARRIER))

        def wait(self, seconds):
            return True

    monkeypatch.setattr(_cluster, "Job", Job)
    attempt = _run._Attempt(None, 2, 2, 2, False, None, 10, print, None, None, _refusals.PLAIN)
    with pytest.raises(_ended.Lost) as e:
        attempt.go(b"", {}, [], None, (io.StringIO(), io.StringIO()))
    assert "lost host vm: what had started its agent there has ended" in str(e.value.error)


def end_of_a_hub(flags=(), path="", stop=False):
    """A hub that nobody comes to: its exit code, what is shown of its words, and all of them."""
    events, shown = queue.SimpleQueue(), io.StringIO()
    hub = _hub.Hub(9, b"", {}, lambda kind, event: events.put((kind, event)), flags, streams=(shown, shown), path=path)
    try:
        while True:
            kind, event = events.get(timeout=30)
            if kind == "listening" and stop:
                hub.stop()
            if kind == "hub":
                hub.finish()
                return event["code"], shown.getvalue(), hub.said()
    finally:
        hub.close()


def test_what_the_driver_says_itself_is_not_shown():
    code, shown, said = end_of_a_hub(["--start-timeout", "1"])
    assert code == _ended.TIMEOUT and "0 of 9 workers have come" in said and not shown
    code, shown, said = end_of_a_hub(stop=True)
    assert code == 143 and "stopped by SIGTERM" in said and not shown


@pytest.mark.parametrize("code", [0, 1])
def test_a_worker_that_joined_too_late_is_heard_of_where_the_job_failed(tmp_path, code):
    program = tmp_path / "hub"
    line = "[1]<stderr>:hora: join epoch of job x: this worker was asked to leave the job: SIGTERM\n"
    program.write_text(f"#!/bin/sh\nprintf '{line}' >&2; echo done; exit {code}\n")
    program.chmod(0o755)
    ended, shown, said = end_of_a_hub(path=str(program))
    assert ended == code and "done" in shown and line.strip() in said
    assert (line in shown) == bool(code)


class NoCluster:
    """A session that has three slots, as far as a call is looked at before it."""

    sparkContext = SimpleNamespace(_jsc=None, applicationId="none")


@pytest.fixture
def no_cluster(monkeypatch):
    setting = lambda spark, name, default="": default or "local[3]" * (name == "spark.master")
    for module in (frontend, _cluster):  # the former's names are the latter's, also when they are put back
        monkeypatch.setattr(module, "spark_setting", setting)
        monkeypatch.setattr(module, "active_session", NoCluster)
    monkeypatch.setattr(_cluster, "session", lambda spark: NoCluster())
    monkeypatch.setattr(_cluster, "slots", lambda spark: 3)
    pytest.importorskip("pyspark")


def runner(np):
    from sparkdl import HorovodRunner

    return HorovodRunner(np=np)


def strategy(n):
    from spark_tensorflow_distributor import MirroredStrategyRunner

    return MirroredStrategyRunner(num_slots=n, use_gpu=False)


def horovod_spark():
    import horovod.spark

    return horovod.spark


class DataFrame:
    __module__ = "pyspark.sql.dataframe"


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hora.spark.run(print, np=0), "spark.run: np=0 is no number of processes"),
        (lambda: hora.spark.run(print, (1,), 2), "spark.run: kwargs=2 is no dict of keyword arguments; the number of processes is np=2"),
        (lambda: hora.spark.run(print, (LOCK,), np=1), "spark.run: argument 1 of print (a _thread.lock) cannot be pickled; make it"),
        (lambda: hora.spark.run(print, np=2, min_np=3), "spark.run: min_np=3, np=2: give 1 ≤ min_np ≤ np ≤ max_np"),
        (lambda: hora.spark.run(print, np=4), "spark.run: np=4, the cluster has 3 task slots"),
        (lambda: horovod_spark().run(print, (1,), num_proc=-1), "horovod.spark.run: num_proc=-1 is no number of processes"),
        (lambda: horovod_spark().run(print, 5, num_proc=1), "horovod.spark.run: args=5 is no sequence of arguments"),
        (lambda: horovod_spark().run(print, (LOCK,), num_proc=1), "horovod.spark.run: argument 1 of print (a _thread.lock) cannot be"),
        (
            lambda: horovod_spark().run(print, (DataFrame(),), num_proc=1),
            "horovod.spark.run: argument 1 of print (a pyspark.sql.dataframe.DataFrame) cannot be pickled, since it lives on the driver alone: "
            "collect what the function needs before the call",
        ),
        (lambda: horovod_spark().run(print, num_proc=4), "horovod.spark.run: num_proc=4, the cluster has 3 task slots: give num_proc=3 or less"),
        (
            lambda: horovod_spark().run_elastic(print, num_proc=2, min_num_proc=3),
            "horovod.spark.run_elastic: min_num_proc=3, num_proc=2: give 1 ≤ min_num_proc ≤ num_proc ≤ max_num_proc",
        ),
        (lambda: horovod_spark().run_elastic(print, num_proc=2, max_num_proc=1), "horovod.spark.run_elastic: num_proc=2, max_num_proc=1: give"),
        (lambda: horovod_spark().run_elastic(print, min_num_proc=4), "horovod.spark.run_elastic: min_num_proc=4, the cluster has 3 task"),
        (lambda: runner(9).run(print), "HorovodRunner: np=9, the cluster has 3 task slots: give np=3 or less"),
        (lambda: runner(2).run(print, lock=LOCK), "HorovodRunner: argument lock of print (a _thread.lock) cannot be pickled"),
        (lambda: runner(-2).run(print, frame=DataFrame()), "HorovodRunner: argument frame of print (a pyspark.sql.dataframe.DataFrame) cannot"),
        (lambda: strategy(9).run(print), "MirroredStrategyRunner: num_slots=9, the cluster has 3 task slots: give num_slots=3 or less"),
        (lambda: strategy(2).run(None), "MirroredStrategyRunner: None is no function"),
    ],
)  # fmt: skip
def test_who_was_called_speaks_of_its_own_arguments(no_cluster, call, words):
    with pytest.raises(hora.HoraError) as failed:
        call()
    assert str(failed.value).startswith(words)


def test_a_worker_speaks_for_who_was_called():
    payload = _travel.pack(threading.Lock, (), {}, "HorovodRunner")
    outcome = pickle.loads(_task._dumps(_task._call(payload, 0)))
    assert str(outcome["error"]).startswith(
        "HorovodRunner: the return value of allocate_lock (a _thread.lock) cannot be pickled"
    )
    assert type(outcome["error"]) is hora.ArgumentError and outcome["traceback"] == f"{outcome['error']}\n", (
        "no lines of hora's own"
    )


def fits():
    raise ValueError(
        "Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor>}) with an unsupported type (<class 'PerReplica'>) to a Tensor."
    )


def fails():
    raise ValueError("another one")


@pytest.mark.parametrize("work", [fits, fails])
def test_what_to_do_where_keras_3_fails_under_a_strategy(tmp_path, capfd, work):
    (tmp_path / "call").write_bytes(_travel.pack(work, (), {}))
    seat = _beside.Seat({})
    try:
        told = {"call": str(tmp_path / "call"), "result": "", "rank": 0, "host": "a", "mark": ""}
        outcome = seat._call(told, 0, lambda call: call())
    finally:
        seat.close()
    error = pickle.loads(_task._dumps(outcome))["error"]
    advice = "use tf.keras; or train with horovod.tensorflow.keras under sparkdl's HorovodRunner"
    assert type(error) is ValueError and (advice in outcome["traceback"]) == (advice in capfd.readouterr().err) == (
        work is fits
    )
    if hasattr(error, "add_note"):
        assert any(advice in n for n in getattr(error, "__notes__", [])) == (work is fits)


def test_the_first_that_failed_whatever_the_clocks_of_hosts_say(tmp_path):
    """Host b, whose clock is 100 s behind, has an echo of what failed on a."""
    for rank, host, made, came in (
        (0, "b", 910.3, 1010.4),
        (1, "a", 1010.1, 1010.2),
        (2, "a", 1010.0, 1010.3),
        (3, "b", 910.6, 1010.7),
    ):
        path = tmp_path / f"rank.{rank}"
        path.write_bytes(pickle.dumps({"ok": False, "rank": rank, "host": host, "time": made}))
        os.utime(path, (came, came))
    outcomes = programs._left(str(tmp_path))
    assert [o["rank"] for o in sorted(outcomes, key=programs._moment(outcomes))] == [2, 1, 0, 3]


def in_a_task(agent, **more):
    """What a task yields whose agent is this program."""
    config = {
        "hub": "b:1", "secret": "00", "program": str(agent), "shipped": "",
        "digest": hashlib.sha256(agent.read_bytes()).hexdigest(),
        "machine": platform.machine(), "version": hora.__version__, "python": sys.version_info[:2], "feed": False,
        "openmp": False,
        "unreached": _run._UNREACHED, "first": None, "inside": None, "local": False,
    }  # fmt: skip
    (batch,) = in_task.make(config | more)(iter(()))
    return batch.to_pydict()["code"]


def test_executors_of_another_architecture_use_their_own_program(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    program = tmp_path / "hora"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o755)
    assert in_a_task(program, machine="vax", digest="0" * 64, program="") == [5]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("the job has ended: lost host b: silent for 5s", False),
        ("reach the hub at b:1: refused: look whether the hub runs", True),
    ],
)
def test_a_lost_host_is_no_hub_that_was_not_reached(tmp_path, said, refused):
    """An agent ends with the same code: only where it has not reached its hub is the task's word final, and no new
    start follows."""
    program = tmp_path / "hora"
    program.write_text(f"#!/bin/sh\necho 'hora: {said}' >&2\nexit 69\n")
    program.chmod(0o755)
    if refused:
        with pytest.raises(RuntimeError, match="the agent on .*: reach the hub at b:1: refused") as e:
            in_a_task(program)
        assert _spoken.final(e.value)
    else:
        assert in_a_task(program) == [69]


@pytest.mark.parametrize("local", [False, True])
def test_what_the_hub_says_on_the_same_terminal_is_said_once(tmp_path, capfd, local):
    program = tmp_path / "hora"
    program.write_text(
        "#!/bin/sh\necho 'hora: the job has ended: rank 0 failed' >&2; echo 'hora: a warning' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    assert in_a_task(program, local=local) == [1]
    end, said = time.monotonic() + 10, ""
    while "a warning" not in said:
        assert time.monotonic() < end, said
        said += capfd.readouterr().err
    assert ("has ended" in said) != local
