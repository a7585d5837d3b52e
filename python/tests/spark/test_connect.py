"""hora.spark.run under Spark Connect: the server on a cluster of its own, and a client that knows nothing of slots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

PROGRAM = """
import _thread, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import sessions
from pyspark.sql import SparkSession

os.environ["SPARK_TESTING"] = "1"  # any free port
builder = SparkSession.builder.remote("local-cluster[2,1,1024]")
for k, v in sessions.settings(Path(sys.argv[2])).items():
    if k != "spark.default.parallelism":  # else Spark's own number of tasks says nothing of the slots
        builder = builder.config(k, v)
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__

import hora, hora.spark

def work():
    import hora
    hora.init()
    return int(hora.allreduce(hora.rank() + 1)), hora.rank()

def bad():
    raise KeyError("no such column")

def rows():
    import hora, hora.spark
    hora.init()
    return sum(b.num_rows for b in hora.spark.batches(64, last="short"))

import hora._run
from hora.spark import _cluster, _hub
program, ship = hora._run.program, _cluster.ship
other = Path(sys.argv[2]) / "other"
def shipped(session, path):  # a driver whose program no executor has, nor finds where that has it
    told = ship(session, path)
    other.unlink()
    return told
other.write_bytes(Path(program()).read_bytes() + b"another")
other.chmod(0o755)
hora._run.program, _cluster.ship = lambda: str(other), shipped
print("shipped", hora.spark.run(work, np=2), other.exists())
hora._run.program, _cluster.ship = program, ship

print("results", hora.spark.run(work, np=2))
try:
    hora.spark.run(bad, np=2)
except KeyError as e:
    print("raised", e.__cause__.rank in (0, 1))
print("rows", sum(hora.spark.run(rows, np=2, dataframe=spark.range(1000, numPartitions=3))))
table = spark.range(5).selectExpr("cast(id as double) as a", "if(id = 3, null, id) as b", "'x' as note")
scored = hora.spark.predict(lambda columns: columns["a"] + columns["b"], table, features=["a", "b"])
print("predicted", [tuple(r)[2:] for r in scored.where("a > 1").orderBy("a").collect()])
print("all of them", hora.spark.run(work))
spark.conf.set("spark.sql.leafNodeDefaultParallelism", "5")
try:
    hora.spark.run(work)
except hora.HoraError as e:
    print("said", e)
spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as threads:  # which have made no session
    print("threads", list(threads.map(lambda n: hora.spark.run(lambda: n, np=1), (7, 8))))
from spark_tensorflow_distributor import MirroredStrategyRunner
def mirrored(x):
    from pyspark import BarrierTaskContext
    context = BarrierTaskContext.get()
    return x, context.allGather(str(context.partitionId()))
def runner(n):
    return MirroredStrategyRunner(num_slots=n, use_gpu=False, use_custom_strategy=True)
print("mirrored", runner(2).run(mirrored, x=5))
try:
    runner(2).run(bad)
except KeyError as e:
    print("mirrored raised", e.__cause__.rank in (0, 1))
os.environ["HORA_START_TIMEOUT"] = "10"
for start in (lambda: hora.spark.run(work, np=3), lambda: runner(3).run(mirrored, x=1)):
    try:
        start()
    except hora.HoraError as e:
        print("said", e)
del os.environ["HORA_START_TIMEOUT"]
print("results", hora.spark.run(work, np=2))

import ends
from hora.spark import _run
def interrupted(how, limit=3):
    def later():
        found.extend(ends.told(told, 2))
        how()
    told, found = Path(sys.argv[2]) / how.__name__, []
    told.mkdir()
    threading.Thread(target=later, daemon=True).start()
    try:
        hora.spark.run(ends.pids, args=(str(told),), np=2)
    except (hora.HoraError, KeyboardInterrupt) as e:
        print("ended", how.__name__, type(e).__name__, len(found), ends.ended(found, limit))
interrupted(spark.interruptAll)
interrupted(_thread.interrupt_main)

listening = _run._Attempt._listening
def blocked(self, hub):  # what a client behind a router tells
    listening(self, hub)
    return "127.0.0.1:1"
_run._Attempt._listening = blocked
print("afar", hora.spark.run(work, np=2))
print("again", hora.spark.run(work, np=2))
print("mirrored", runner(2).run(mirrored, x=5))
try:
    hora.spark.run(bad, np=2)
except KeyError as e:
    print("raised afar", e.__cause__.rank in (0, 1))
(Path(sys.argv[2]) / "interruptAll").rename(Path(sys.argv[2]) / "before")
interrupted(spark.interruptAll)

def asks():
    return spark.version
try:
    hora.spark.run(asks, np=1)
except hora.HoraError as e:
    print("said", e)
os.environ["HORA_SPARK_HUB"] = "driver"
try:
    hora.spark.run(work, np=2)
except hora.HoraError as e:
    print("said", e)
spark.stop()
"""


@pytest.mark.skipif(
    os.environ.get("HORA_SPARK") != "all" or pyspark.__version__ < "4",
    reason="needs a session of its own, and pyspark 4 (make test-spark)",
)
def test_under_connect(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", Path(__file__).parent, tmp_path],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "INVALID_CONF_VALUE" not in done.stderr, "no setting is asked for with what cannot be one"
    assert "shipped [(3, 0), (3, 1)] False" in done.stdout
    assert (
        done.stdout.count("results [(3, 0), (3, 1)]") == 2
        and "raised True" in done.stdout
        and "rows 1000" in done.stdout
    )
    assert "predicted [('x', 4.0, None), ('x', None, \"column 'b' is null\"), ('x', 8.0, None)]" in done.stdout
    assert "all of them [(3, 0), (3, 1)]" in done.stdout and "threads [[7], [8]]" in done.stdout
    assert "under Spark Connect this session does not tell how many task slots the cluster has; give np=" in done.stdout
    told = "of 3 workers started in 10 s: the cluster may have fewer than 3 free task slots; give a smaller "
    assert told + "np," in done.stdout and told + "num_slots," in done.stdout
    assert done.stdout.count("mirrored (5, ['0', '1'])") == 2 and "mirrored raised True" in done.stdout
    assert (
        done.stdout.count("ended interruptAll HoraError 4 True") == 2
        and "ended interrupt_main KeyboardInterrupt 4 True" in done.stdout
    )
    assert (
        "afar [(3, 0), (3, 1)]" in done.stdout
        and "again [(3, 0), (3, 1)]" in done.stdout
        and "raised afar True" in done.stdout
    )
    assert (
        done.stderr.count("the executors do not reach this machine (") == 1
        and "so the hub runs in the first task" in done.stderr
    )
    assert "asks uses the variable 'spark' (a pyspark.sql.connect." in done.stdout
    assert "the agent on " in done.stdout and ": reach the hub at 127.0.0.1:1: " in done.stdout
