"""Tests on a real Spark. They run in an environment that has one: `make test-spark` runs them in each, `make test` in
that of pyspark 4.

By hand: $(sh tools/deps.sh path spark-4)/bin/python -m pytest python/tests/spark

With HORA_SPARK_CONNECT=1 the session is a client of Spark Connect, and those files' tests run that say nothing of what
Connect has not; `make test-spark` runs them so too, on pyspark 4.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path

import pytest
import sessions
from beside import TREE

with contextlib.suppress(ImportError):
    import triton  # noqa: F401 - before TensorFlow: after it, its LLVM ends the process, whichever tests are chosen

ON_CONNECT = {
    f"test_{name}.py"
    for name in (
        "ensemble ensemble_cluster ensemble_columns ensemble_kinds estimator estimator_keras estimator_losses "
        "estimator_runs horovod_data horovod_estimator horovod_estimators horovod_lightning saved scoring sql "
        "sql_classes"
    ).split()
}

if (
    importlib.util.find_spec("pyspark") is None
):  # the tests' own environment, which runs the rest; a step of its own runs these
    collect_ignore_glob = ["test_*.py"]
elif sessions.CONNECT:
    collect_ignore = [p.name for p in Path(__file__).parent.glob("test_*.py") if p.name not in ON_CONNECT]


@pytest.fixture(scope="session", autouse=True)
def program(request):
    """In a tree that has its library its program is tested too; else the one that is installed."""
    if TREE:
        os.environ["PATH"] = f"{request.getfixturevalue('hora_program').parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session of all tests that need no other: two executors of two slots and two GPUs each, as processes of this
    machine."""
    folder = tmp_path_factory.mktemp("spark")
    more = sessions.gpus(folder / "gpus") | {"spark.scheduler.mode": "FAIR"}  # jobs of different pools share the slots
    session = sessions.start("local-cluster[2,2,1024]", folder, **more)
    yield session
    session.stop()


@pytest.fixture
def whole(spark):
    """The cluster with all its executors: another test may have killed one."""
    from hora.spark import _cluster

    _cluster.wait_for_slots(spark, 4, 90, print)
    return spark
