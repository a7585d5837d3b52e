"""Under Spark Connect: elastic jobs, new starts, horovod.spark, timeline, report, logs, the examples' functions, and a
client that is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import beside
import ends
import pyspark
import pytest

BEGIN = """
import os, sys
sys.path[:0] = [sys.argv[1]]
from pathlib import Path
import sessions
from pyspark.sql import SparkSession

folder = Path(sys.argv[2])
os.environ["SPARK_TESTING"] = "1"  # any free port
builder = SparkSession.builder.remote("local-cluster[2,1,1024]")
for k, v in sessions.settings(folder).items():
    builder = builder.config(k, v)
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__
import ends, faults
import hora, hora.spark
"""

PROGRAM = (
    BEGIN
    + """
import io, json, signal, threading
import elastic_example

def place(name):
    (folder / name).mkdir()
    return folder / name

told = place("example")
threading.Thread(target=elastic_example.kill_its_executor, args=(str(told),), daemon=True).start()
for r in hora.spark.run(elastic_example.train, args=(200, str(told)), np=2, min_np=1, max_np=2):
    print("elastic", r["total"] == r["step"] * (r["step"] - 1) / 2, r["sizes"][:3])

def anew(path):
    import os, time
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
    found = ends.told(told, 2)
    (told / "again").write_text("")
    os.kill(ends.executor_of(found[0]), signal.SIGKILL)

told = place("anew")
threading.Thread(target=kill, daemon=True).start()
print("anew", hora.spark.run(anew, args=(str(told),), np=2, restarts=2))

import horovod.spark
def work(a, b=0):
    import os
    import horovod.torch as hvd
    hvd.init()
    print("line", hvd.rank())
    return a + b + hvd.rank(), os.environ["GIVEN"]
said = io.StringIO()
print("horovod", horovod.spark.run(work, args=(10,), kwargs={"b": 5}, num_proc=2, env={"GIVEN": "yes"}, stdout=said))
print("lines", sorted(said.getvalue().splitlines()))

def steps():
    import horovod.torch as hvd, torch
    hvd.init()
    state = hvd.elastic.TorchState(step=0)
    @hvd.elastic.run
    def train(state):
        while state.step < 5:
            hvd.allreduce(torch.ones(1), name="x")
            state.step += hvd.size() == 2
            state.commit()
        return state.step, hvd.size()
    return train(state)
print("horovod elastic", horovod.spark.run_elastic(steps, num_proc=2, min_num_proc=1, max_num_proc=2))

def seen():
    import hora
    hora.init()
    hora.allreduce(1.0, name="seen", named=True)
os.environ |= {"HOROVOD_TIMELINE": str(folder / "timeline.json"), "HORA_SPARK_REPORT": str(folder / "report.json")}
hora.spark.run(seen, np=2)
del os.environ["HOROVOD_TIMELINE"], os.environ["HORA_SPARK_REPORT"]
print("timeline", "seen" in json.dumps(json.loads((folder / "timeline.json").read_text())))
report = json.loads((folder / "report.json").read_text())
print("report", report["exit_code"], report["epochs"][0]["size"])

from sparkdl import HorovodRunner
import notebook_example
here, there = (HorovodRunner(np=n).run(notebook_example.train, steps=100) for n in (-2, 2))
print("notebook", here == there, there["ranks"], hora.spark.run(notebook_example.mean_of, args=("id",), np=2, dataframe=spark.range(10_001)))
spark.stop()
"""
)

KILLED = BEGIN + "hora.spark.run(ends.pids, args=(sys.argv[3],), np=2)\n"

pytestmark = pytest.mark.skipif(
    os.environ.get("HORA_SPARK") != "all" or pyspark.__version__ < "4",
    reason="needs a session of its own, and pyspark 4 (make test-spark)",
)


def around(tmp_path, program):
    (tmp_path / "program.py").write_text(program)
    for name, path in {
        "elastic_example": "51-spark-elastic/train.py",
        "notebook_example": "50-spark-runner/notebook.py",
    }.items():
        shutil.copy(beside.ROOT / "examples" / path, tmp_path / f"{name}.py")
    return [sys.executable, tmp_path / "program.py", Path(__file__).parent, tmp_path]


def test_jobs_of_every_kind(tmp_path):
    done = subprocess.run(around(tmp_path, PROGRAM), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("elastic True [2, 1, 2]\n") == 2 and "anew [2, 2]\n" in done.stdout
    assert "horovod [(15, 'yes'), (16, 'yes')]\nlines ['[0]<stdout>:line 0', '[1]<stdout>:line 1']\n" in done.stdout
    assert "horovod elastic [(5, 2), (5, 2)]\ntimeline True\nreport 0 2\n" in done.stdout
    assert "[0]<stdout>:step 75: loss " in done.stdout and "notebook True 2 [5000.0, 5000.0]\n" in done.stdout


def test_a_client_that_is_killed_leaves_nothing(tmp_path):
    told = tmp_path / "told"
    told.mkdir()
    client = subprocess.Popen([*around(tmp_path, KILLED), told], start_new_session=True)
    try:
        found = ends.told(told, 2, 120, client)
        client.kill()
        assert len(found) == 4 and ends.ended(found, 3)
    finally:
        os.killpg(client.pid, signal.SIGKILL)  # Spark's server too, which is the client's child here
        client.wait()
