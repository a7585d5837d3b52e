"""That the environment is whole: a JVM, a session, Python workers with what the others import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sample import longer

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sessions import start

def task(batches):
    import importlib, os, pyarrow
    for name in ("numpy", "pandas", "torch", "sklearn", "xgboost", "lightgbm", "hora.spark"):
        importlib.import_module(name)
    for _ in batches:
        pass
    yield pyarrow.RecordBatch.from_pydict({"pid": [os.getpid()]})

spark = start("local[2]", Path(sys.argv[2]))
pids = [r.pid for r in spark.range(2, numPartitions=2).mapInArrow(task, "pid long", barrier=True).collect()]
spark.stop()
print("tasks", len(pids), len(set(pids)))
"""


@longer
def test_a_session_with_two_slots_runs_two_tasks_at_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, Path(__file__).parent, tmp_path], capture_output=True, text=True, timeout=180
    )
    assert "tasks 2 2" in done.stdout, done.stdout + done.stderr


def test_the_session_of_the_other_tests_has_two_executors(spark):
    def task(batches):
        import os

        import pyarrow

        list(batches)
        yield pyarrow.RecordBatch.from_pydict({"parent": [os.getppid()]})

    rows = spark.range(4, numPartitions=4).mapInArrow(task, "parent long", barrier=True).collect()
    assert len(rows) == 4 and len({r.parent for r in rows}) == 2
