"""The figures of hora.spark on one local cluster, each verified in the run; prints a table for bench/results (about 6
minutes).

    $(sh tools/deps.sh path spark-4)/bin/python bench/spark_bench.py [part …]

Parts: start, raise, kill, result, lines, ends; without one all of them.

Horovod is a peer of `start` where HORA_BENCH_HOROVOD is a folder that has it. Release 0.28.1 does not compile against
the frameworks of today, and its spark.run does not end on pyspark 4. Without frameworks it can be had, and a main that
does nothing needs none of what was not compiled, so that its check for that is set aside:

    py=$(sh tools/deps.sh path spark-3.5)/bin/python
    HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1 \\
        $py -m pip install --target FOLDER --no-deps horovod==0.28.1 cloudpickle psutil
    HORA_BENCH_HOROVOD=FOLDER $py bench/spark_bench.py start
"""

import _thread
import io
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "python/tests/spark"
sys.path.insert(0, str(TESTS))
import sessions  # isort: skip (first: where a tree has its library, it is the tree's hora)
import ends
import faults
import pyspark
from pyspark.ml.torch.distributor import TorchDistributor

import hora
import hora.spark
from hora.spark import _cluster

HOROVOD = os.environ.get("HORA_BENCH_HOROVOD")
if HOROVOD:  # before hora-compat's names, here and in the executors
    sys.path.insert(0, HOROVOD)
    os.environ["PYTHONPATH"] = os.pathsep.join([HOROVOD, os.environ["PYTHONPATH"]])


def empty():
    return 1


def barrier(batches):
    import pyarrow

    list(batches)
    yield pyarrow.RecordBatch.from_pydict({"x": [1]})


def told(what, seconds, note=""):
    every = " ".join(f"{t:.2f}" for t in seconds)
    print(f"| {what} | {statistics.median(seconds):.2f} | {every} | {note} |", flush=True)


def start(spark, _):
    rows = spark.range(2, numPartitions=2)
    torch = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    turns = {
        "empty barrier job of mapInArrow": lambda: (
            len(rows.mapInArrow(barrier, "x long", barrier=True).collect()) == 2
        ),
        "hora.spark.run, np=2, empty main": lambda: (
            hora.spark.run(empty, np=2) == [1, 1]
        ),
        "TorchDistributor, the same": lambda: torch.run(empty) == 1,
    }
    if HOROVOD:
        import horovod.runner.launch
        import horovod.spark

        horovod.runner.launch.gloo_built = lambda verbose=False: True
        turns["Horovod's spark.run, the same"] = lambda: (
            horovod.spark.run(empty, num_proc=2, use_gloo=True) == [1, 1]
        )
    times = {name: [] for name in turns}
    for turn in range(6):
        for name, run in turns.items():
            began = time.monotonic()
            assert run()
            if turn:  # the first one warms up
                times[name].append(time.monotonic() - began)
    plain, ours, *peers = (statistics.median(t) for t in times.values())
    names = [name.partition(",")[0] for name in list(turns)[2:]]
    faster = ", ".join(f"{took / ours:.1f} times faster than {peer}" for peer, took in zip(names, peers, strict=True))
    for name, took in times.items():
        told(name, took, f"{ours - plain:+.2f} s over the empty job (goal +0.5), {faster}" if "hora" in name else "")


def raises(spark, _):
    def work():
        import time

        import hora

        hora.init()
        if hora.rank() == 1:
            raise KeyError(time.time())
        time.sleep(60)

    took = []
    for _ in range(5):
        try:
            hora.spark.run(work, np=2)
        except KeyError as e:
            took.append(time.time() - e.args[0])
            assert e.__cause__.rank == 1 and "raise KeyError" in e.__cause__.text
    assert len(took) == 5
    told("a rank raises: the driver has its traceback", took, "goal 1")


def kill(spark, folder):
    formed, joined, there = [], [], []
    for i in range(2):
        _cluster.wait_for_slots(spark, 8, 120, lambda text: None)
        at, path = [], folder / f"kill{i}"
        path.mkdir()

        def end(at=at, path=path):
            pids = ends.told(path, 2)
            jvms = {ends.executor_of(p) for p in pids}
            time.sleep(1)
            os.kill(jvms.pop(), signal.SIGKILL)
            at.append(time.time())
            at.append(registered(spark, at[0]))

        threading.Thread(target=end, daemon=True).start()
        steps = 1200
        got = hora.spark.run(
            faults.elastic,
            args=(str(path), steps),
            np=8,
            min_np=2,
            max_np=8,
            restarts=10,
        )
        assert all(g[:2] == (steps, steps * (steps - 1) // 2) for g in got)
        after = [(size, t - at[0]) for size, t in got[0][2] if t > at[0]]
        formed.append(after[0][1])
        eight = [t for size, t in after if size == 8][:1]
        joined += eight
        there += [t - (at[1] - at[0]) for t in eight]
    told(
        "executor killed -9, elastic: the others train again",
        formed,
        "goal 1; the sum of all steps is right",
    )
    if joined:
        told(
            "… and eight ranks train again",
            joined,
            "Spark's time for a new executor included",
        )
        told(
            "… of which after Spark had the new executor",
            there,
            "its Python, the ranks' start and the next commit",
        )


def registered(spark, killed):
    """When Spark has two executors again, the new one among them."""
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    fewer = False
    while time.time() < killed + 120:
        n = status().size() - 1  # the driver is in it too
        fewer = fewer or n < 2
        if fewer and n == 2:
            return time.time()
        time.sleep(0.02)
    raise TimeoutError("Spark started no executor in the place of the one that was killed")


def result(spark, _):
    def work(n):
        import hora

        hora.init()
        return bytes(n) if hora.rank() == 0 else None

    began = time.monotonic()
    got = hora.spark.run(work, args=(2_000_000_000,), np=2)
    assert len(got[0]) == 2_000_000_000 and got[1] is None
    told("a result of 2 GB", [time.monotonic() - began])


def lines(spark, _):
    """
    Lines of eight ranks, and the same into /dev/null: steps that begin every 20 ms, which is 10,000 lines a second,
    and steps that sleep for 20 ms beside what printing costs, so that all of it is seen.
    """
    for paced in (True, False):
        taken, rates = {True: [], False: []}, []
        for turn in range(6):
            prints = turn % 2 == 0
            said, errs = io.StringIO(), io.StringIO()
            with redirect_stdout(said), redirect_stderr(errs):
                took = max(hora.spark.run(_prints, args=(prints, paced), np=8))
            taken[prints].append(took)
            if prints:
                rates.append(80_000 / took)
                assert _came(said, errs) == 80_000, _came(said, errs)
        ratio = statistics.median(taken[True]) / statistics.median(taken[False])
        how = "begin every 20 ms" if paced else "sleep for 20 ms"
        rate = f"{statistics.median(rates):,.0f} lines a second"
        told(f"400 steps of 8 ranks that print and {how}", taken[True], f"{rate}; all arrived or were counted")
        told("the same into /dev/null", taken[False], f"printing costs {ratio:.3f} times (goal 1.05)")


def _prints(prints, paced):
    """400 steps of 25 lines each; returns the seconds they took."""
    import os
    import time

    import hora

    hora.init()
    out = None if prints else open(os.devnull, "w")
    hora.barrier()
    began = time.monotonic()
    for step in range(400):
        for i in range(25):
            print("step", step, "line", i, "of a training that says much", file=out)
        due = began + 0.02 * (step + 1) - time.monotonic() if paced else 0.02
        if due > 0:
            time.sleep(due)
        hora.allreduce(float(step), name="x")
    return time.monotonic() - began


def _came(said, errs):
    """Lines that arrived, and those of which the driver said that they were dropped."""
    dropped = (line for line in errs.getvalue().splitlines() if "lines of output came faster" in line)
    return said.getvalue().count("\n") + sum(int(line.split()[1]) for line in dropped)


DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import ends, sessions, hora.spark
spark = sessions.start(sys.argv[4], Path(sys.argv[2]))
hora.spark.run(ends.pids, args=(sys.argv[3],), np=2)
"""


def served():
    """The job's hub and its agents."""
    found = ends.serving()
    assert len(found) >= 3, found
    return found


def ending(spark, folder):
    ways = {
        "Ctrl-C, a notebook's stop button": _thread.interrupt_main,
        "all jobs cancelled": spark.sparkContext.cancelAllJobs,
    }
    if pyspark.__version__ >= "4":  # before that only Connect has it
        ways["interruptAll"] = spark.interruptAll
    for n, (name, how) in enumerate(ways.items()):
        took = []
        for i in range(3):
            path = folder / f"end{n}{i}"
            path.mkdir()
            at, gone = [], threading.Event()

            def end(at=at, gone=gone, path=path, how=how, took=took):
                pids = ends.told(path, 2) + served()
                at.append(time.monotonic())
                how()
                assert ends.ended(pids, 30)
                took.append(time.monotonic() - at[0])
                gone.set()

            threading.Thread(target=end, daemon=True).start()
            try:
                hora.spark.run(ends.pids, args=(str(path),), np=2)
            except (KeyboardInterrupt, hora.HoraError):
                pass
            assert gone.wait(30)
        told(f"{name}: no process is left", took, "goal 1")
    for n, master in enumerate(("local[2]", "local-cluster[2,1,1024]")):
        path = folder / f"driver{n}"
        (path / "session").mkdir(parents=True)
        (path / "told").mkdir()
        (path / "driver.py").write_text(DRIVER)
        driver = subprocess.Popen([sys.executable, path / "driver.py", TESTS, path / "session", path / "told", master])
        pids = ends.told(path / "told", 2, 120, driver) + served()
        began = time.monotonic()
        driver.send_signal(signal.SIGKILL)
        assert ends.ended(pids, 30)
        told(
            "the driver killed -9: no process is left",
            [time.monotonic() - began],
            f"goal 1; {master}",
        )
        driver.wait()


PARTS = {
    "start": start,
    "raise": raises,
    "kill": kill,
    "result": result,
    "lines": lines,
    "ends": ending,
}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    folder = Path(tempfile.mkdtemp(prefix="spark-bench-"))
    spark = sessions.start("local-cluster[2,4,1024]", folder)
    try:
        _cluster.wait_for_slots(spark, 8, 120, print)
        print("| what | median, s | turns, s | |\n| --- | --- | --- | --- |")
        for name in wanted:
            PARTS[name](spark, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
