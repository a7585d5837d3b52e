"""Elastic jobs on ordinary tasks: an executor is killed, the others go on, its replacement joins, and the result is
right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ends import executor_of, told
from sample import longer

import hora.spark
from hora.spark import _cluster


@longer
def test_the_others_go_on_and_a_replacement_joins(spark, tmp_path):
    def train(path, steps):
        import os
        import time

        import hora
        import hora.elastic

        hora.init()
        state = hora.elastic.State(step=0, total=0, sizes=[])
        me = f"{path}/{os.getpid()}"

        @hora.elastic.run
        def work(state):
            while (state.step < steps or not os.path.exists(f"{path}/grown")) and not os.path.exists(
                f"{path}/one executor"
            ):
                with open(me + "~", "w") as f:
                    f.write(str(os.getpid()))
                os.rename(me + "~", me)
                mean = hora.allreduce(float(state.step), hora.AVERAGE, name="x")
                state.total += int(mean)
                if not state.sizes or state.sizes[-1] != hora.size():
                    state.sizes = [*state.sizes, hora.size()]
                    if (
                        hora.size() == 2 and 1 in state.sizes[state.sizes.index(2) :]
                    ):  # Spark may start one of the tasks late
                        open(f"{path}/grown", "w").close()
                state.step += 1
                state.commit()
                time.sleep(0.01)
            return state.step, state.total, state.sizes

        return work(state)

    def kill(folder):
        found = [executor_of(p) for p in told(folder, 2)]
        if found[0] == found[1]:
            (folder / "one executor").touch()
        else:
            os.kill(found[0], signal.SIGKILL)

    for n in range(
        5
    ):  # what an earlier test's job leaves running for a moment may have Spark deal both tasks to one executor
        folder = tmp_path / str(n)
        folder.mkdir()
        _cluster.wait_for_slots(spark, 4, 90, print)
        threading.Thread(target=kill, args=(folder,), daemon=True).start()
        chart = folder / "timeline.json"
        got = hora.spark.run(
            train, args=(str(folder), 50), np=2, min_np=1, max_np=2, env={"HOROVOD_TIMELINE": str(chart)}
        )
        if not (folder / "one executor").exists():
            break
    assert got and all(g == got[0] for g in got)
    steps, total, sizes = got[0]
    assert total == steps * (steps - 1) // 2, "every step was counted once"
    assert 1 in sizes[sizes.index(2) :] and sizes[-1] == 2
    records = json.loads(chart.read_text())  # of all epochs in which a rank that is still there was rank 0
    assert "x" in {r["args"].get("name") for r in records if r.get("name") == "process_name"}
    named = sum(r.get("name") == "ALLREDUCE" for r in records)
    assert named >= 50 - 2, f"{named} of {steps} steps: a survivor's are there, but for those of the epoch that broke"


DYNAMIC = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import faults, sessions
import hora.spark
from hora.spark import _cluster
spark = sessions.start(
    "local-cluster[2,1,1024]", Path(sys.argv[2]), **{
        "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.executorIdleTimeout": "2s",
    })
while _cluster.slots(spark):  # those that Spark begins with leave
    pass
Path(sys.argv[3]).mkdir()
got = hora.spark.run(faults.elastic, args=(sys.argv[3], 20), np=2, min_np=1, max_np=2)
print("got", sorted({g[:2] for g in got}))
"""


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")
def test_executors_that_come_when_tasks_wait(tmp_path):
    """A cluster that has none before: an elastic job is given to Spark, which then allocates them."""
    (tmp_path / "session").mkdir()
    (tmp_path / "driver.py").write_text(DYNAMIC)
    argv = [sys.executable, tmp_path / "driver.py", Path(__file__).parent, tmp_path / "session", tmp_path / "told"]
    driver = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert "got [(20, 190)]" in driver.stdout, driver.stdout + driver.stderr
