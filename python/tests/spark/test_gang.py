"""hora.spark.run on a cluster of two executors with two slots each: results, errors, rows, and ends of every kind."""

from __future__ import annotations

import _thread
import io
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from ends import ended, executor_of, pids, told
from sample import longer

import hora
import hora.spark
from hora.spark import _cluster

SLACK = 3.0  # times what is promised


def where():
    import os

    import hora

    hora.init()
    return {
        "sum": hora.allreduce(hora.rank() + 1), "rank": hora.rank(), "local": hora.local_rank(),
        "cross": hora.cross_rank(), "pid": os.getpid(),
        "parent": os.getppid(), "fusion": os.environ.get("HOROVOD_FUSION_THRESHOLD"), "more": os.environ.get("MORE"),
    }  # fmt: skip


def test_every_rank_gives_its_result(spark, monkeypatch, capfd):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1000000")  # read when run is called
    got = hora.spark.run(where, np=4, env={"MORE": "yes"})
    assert [g["rank"] for g in got] == [0, 1, 2, 3] and {g["sum"] for g in got} == {10}
    assert [g["local"] for g in got] == [0, 1, 2, 3] and {g["cross"] for g in got} == {0}, (
        "executors of a machine are one host"
    )
    assert {(g["fusion"], g["more"]) for g in got} == {("1000000", "yes")}
    assert len({g["pid"] for g in got}) == 4 and ended([g["pid"] for g in got], SLACK)


def test_a_local_rank_is_the_place_of_its_own_device(spark):
    def work():
        import os

        import hora

        hora.init()
        return hora.local_rank(), os.environ["CUDA_VISIBLE_DEVICES"].split(","), os.environ["HORA_SPARK_TASK_DEVICES"]

    got = hora.spark.run(work, np=4)
    assert len({tuple(all_) for _, all_, _ in got}) == 1 and len(set(got[0][1])) == 4, (
        "all see those of the job on the host"
    )
    assert [all_[local] for local, all_, _ in got] == [mine for _, _, mine in got]


def test_output_comes_out_on_the_driver(spark):
    def work():
        import os

        print("printed by", os.environ["HORA_RANK"])

    said = io.StringIO()
    with redirect_stdout(said):
        assert hora.spark.run(work, np=2) == [None, None]
    assert {"[0]<stdout>:printed by 0", "[1]<stdout>:printed by 1"} <= set(said.getvalue().splitlines())


def test_an_exception_with_a_constructor_of_its_own_keeps_its_class(spark):
    class Two(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a}/{b}")

    def work():
        raise Two(1, 2)

    with pytest.raises(Two, match="1/2"):
        hora.spark.run(work, np=2)


def test_the_first_exception_comes_with_its_traceback(spark):
    def work():
        import time

        import hora

        hora.init()
        if hora.rank() == 1:
            raise KeyError("no such column")
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(KeyError, match="no such column") as e:
        hora.spark.run(work, np=2)
    assert time.monotonic() - began < 45
    cause = e.value.__cause__
    assert cause.rank == 1 and "raise KeyError" in cause.text


def test_an_echo_is_not_the_first_exception(spark):
    """Whatever class it has, and although that host's clock is behind."""

    def work():
        import time

        import hora

        hora.init()
        if hora.rank() == 1:
            raise KeyError("no such column")
        try:
            hora.allreduce(1.0, name="x")
        except hora.HoraError as e:
            time.time = lambda: 0.0
            raise RuntimeError(f"training has failed: {e}") from None

    with pytest.raises(KeyError, match="no such column"):
        hora.spark.run(work, np=2)


def test_rows_that_cannot_be_computed(spark):
    """Spark says why, and not the rank that asked for them."""

    def broken(batches):
        for batch in batches:
            yield batch
            raise ZeroDivisionError("in the query")

    def work():
        import hora.spark

        hora.init()
        return sum(b.num_rows for b in hora.spark.batches(64, last="short"))

    frame = spark.range(1000, numPartitions=2).mapInArrow(broken, "id long")
    for _ in range(3):
        with pytest.raises(hora.HoraError, match="ZeroDivisionError: in the query"):
            hora.spark.run(work, np=2, dataframe=frame)


def test_a_result_of_many_bytes(spark):
    def work():
        return bytes(50_000_000)

    assert [len(b) for b in hora.spark.run(work, np=2)] == [50_000_000] * 2


def test_rows_of_a_data_frame_in_equal_steps(spark):
    def work(last):
        import hora.spark

        hora.init()
        got = [b.column("id").to_pylist() for b in hora.spark.batches(64, last=last)]
        return len(got), [v for b in got for v in b]

    frame = spark.range(1000, numPartitions=3)
    short = hora.spark.run(work, args=("short",), np=2, dataframe=frame)
    assert short[0][0] == short[1][0] and sorted(short[0][1] + short[1][1]) == list(range(1000))
    drop = hora.spark.run(work, args=("drop",), np=2, dataframe=frame)
    assert [n for n, _ in drop] == [7, 7] and [len(rows) for _, rows in drop] == [448, 448]


def test_what_is_asked_for_wrongly_is_said_before_anything_starts(spark, monkeypatch):
    _cluster.wait_for_slots(spark, 4, 90, print)
    monkeypatch.setattr(_cluster, "_QUIET", 2)  # the executors are all there
    cases = [
        (dict(np=9), "np=9, the cluster has 4 task slots: give np=4 or less"),
        (dict(np=0), "np=0 is no number of processes"),
        (dict(np=2, min_np=3), "min_np=3, np=2: give 1 ≤ min_np ≤ np ≤ max_np"),
        (dict(min_np=7), "min_np=7, the cluster has 4 task slots: give min_np=4 or less"),
        (dict(np=2, dataframe=[1]), "dataframe=list is no Spark DataFrame; spark.createDataFrame makes one"),
        (dict(np=2, env=["A=1"]), "is no mapping of names to values; give a dict"),
        (dict(np=2, min_np=1, dataframe=spark.range(2)), "rows are dealt to a gang"),
        (dict(np=2, restarts=-1), "restarts=-1 is no number"),
        (dict(np=2, spark="local"), "spark='local' is no SparkSession"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(hora.HoraError, match=sentence):
            hora.spark.run(where, **arguments)
    context = spark.sparkContext

    def work():
        return context.master

    with pytest.raises(
        hora.HoraError,
        match=r"variable 'context' \(a pyspark.*SparkContext\) in line \d+ of test_gang.py, which cannot be pickled",
    ):
        hora.spark.run(work, np=1)


def waits(path):
    import os
    import time

    while not os.path.exists(path):
        time.sleep(0.05)


def test_slots_that_other_jobs_have_are_waited_for(spark, tmp_path, capsys):
    _cluster.wait_for_slots(spark, 4, 90, print)
    first = threading.Thread(target=hora.spark.run, args=(waits,), kwargs={"args": (str(tmp_path / "end"),), "np": 3})
    first.start()
    end = time.monotonic() + 60
    while _cluster.taken(spark) < 3:
        assert time.monotonic() < end
        time.sleep(0.05)
    second = threading.Thread(target=hora.spark.run, args=(waits,), kwargs={"args": (str(tmp_path),), "np": 2})
    second.start()
    said = ""
    while "np=2, 1 of the cluster's 4 task slots is free now: the job waits for others to end" not in said:
        assert time.monotonic() < end, said
        said += capsys.readouterr().err
        time.sleep(0.05)
    (tmp_path / "end").touch()
    first.join()
    second.join()
    assert _cluster.taken(spark) == 0


def test_ctrl_c_leaves_nothing(spark, tmp_path):
    found = []

    def interrupt():
        found.extend(told(tmp_path, 2))
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        hora.spark.run(pids, args=(str(tmp_path),), np=2)
    assert len(found) == 4 and ended(found, 1 * SLACK)


def test_a_job_cancelled_from_outside_leaves_nothing(spark, tmp_path):
    found = []

    def cancel():
        found.extend(told(tmp_path, 2))
        spark.sparkContext.cancelAllJobs()

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(hora.HoraError, match="Spark ended the job: .*(?i:cancelled)"):
        hora.spark.run(pids, args=(str(tmp_path),), np=2)
    assert len(found) == 4 and ended(found, 1 * SLACK)


DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import ends, sessions, hora.spark
spark = sessions.start("local[2]", Path(sys.argv[2]))
hora.spark.run(ends.pids, args=(sys.argv[3],), np=2)
"""


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")
def test_a_driver_that_is_killed_leaves_nothing(tmp_path):
    for name in ("session", "told"):
        (tmp_path / name).mkdir()
    (tmp_path / "driver.py").write_text(DRIVER)
    here = Path(__file__).parent
    driver = subprocess.Popen([sys.executable, tmp_path / "driver.py", here, tmp_path / "session", tmp_path / "told"])
    try:
        found = told(tmp_path / "told", 2, 150, driver)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert len(found) == 4 and ended(found, 1 * SLACK)


@longer
def test_a_gang_that_lost_its_executor_starts_anew(spark, tmp_path):
    def work(path):
        import os
        import time

        import hora

        hora.init()
        first = not os.path.exists(f"{path}/again")
        hora.barrier()
        if first:
            with open(f"{path}/{hora.rank()}~", "w") as f:
                f.write(str(os.getpid()))
            os.rename(f"{path}/{hora.rank()}~", f"{path}/{hora.rank()}")
            time.sleep(600)
        return int(hora.allreduce(1))

    def kill():
        found = told(tmp_path, 2)
        (tmp_path / "again").write_text("")
        os.kill(executor_of(found[0]), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    assert hora.spark.run(work, args=(str(tmp_path),), np=2, restarts=2) == [2, 2]


@longer
@pytest.mark.parametrize("kills", [1, 2])
def test_an_executor_is_lost_before_a_rank_has_begun(spark, monkeypatch, tmp_path, capfd, kills):
    from hora.spark import _run, _task

    make = _task.make

    def deadly(config):
        inner = make(config)

        def task(batches):
            import os
            import signal

            from pyspark import TaskContext

            marks = [f"{tmp_path}/{i}" for i in range(kills)]
            if TaskContext.get().partitionId() == 1 and (
                mark := next((m for m in marks if not os.path.exists(m)), None)
            ):
                open(mark, "w").close()
                pid = os.getppid()
                while b"java" not in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[0]:
                    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
                os.kill(pid, signal.SIGKILL)
                signal.pause()
            yield from inner(batches)

        return task

    monkeypatch.setattr(_run._task, "make", deadly)
    begun = tmp_path / "begun"

    def work():
        import hora

        with open(begun, "a") as f:
            f.write("x")
        hora.init()
        return hora.allreduce(1)

    if kills == 1:
        assert hora.spark.run(work, np=2) == [2, 2] and begun.read_text() == "xx", "each rank began once"
    else:
        with pytest.raises(hora.HoraError, match=r"Spark lost executor \d+ \(Command exited with code 137\)"):
            hora.spark.run(work, np=2)
        assert not begun.exists()
    assert capfd.readouterr().err.count("the job is given to Spark once more") == 1
