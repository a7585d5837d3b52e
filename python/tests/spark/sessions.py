"""Sessions of Spark that are small, quiet, and leave nothing outside a folder."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from beside import TREE

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join(
    p for p in (*TREE, os.environ.get("PYTHONPATH", "")) if p
)  # executors import the tree too
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
sys.path[:0] = [p for p in TREE if p not in sys.path]

# Whether the tests' session is a client of Spark Connect.
CONNECT = os.environ.get("HORA_SPARK_CONNECT") == "1"


def settings(folder) -> dict[str, str]:
    """What every session of the tests has."""
    os.environ["SPARK_WORKER_DIR"] = str(folder / "worker")  # else inside the pyspark package
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "local")
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.default.parallelism": "4",
    }


def gpus(folder) -> dict[str, str]:
    """Settings of a cluster whose workers have two GPUs each, by the word of a script; no two have the same."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "gpus.sh"
    script.write_text(
        f"#!/bin/sh\nexec 9>>{folder}/lock\nflock 9\nn=$(cat {folder}/given 2>/dev/null || echo 0)\necho $((n + 2)) >{folder}/given\n"
        'echo "{\\"name\\": \\"gpu\\", \\"addresses\\": [\\"$n\\", \\"$((n + 1))\\"]}"\n'
    )
    script.chmod(0o755)
    return {
        "spark.worker.resource.gpu.amount": "2",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "2",
        "spark.task.resource.gpu.amount": "1",
    }


def start(master: str, folder, **more: str):
    """A session. One process has one at a time: stop it before the next."""
    from pyspark.sql import SparkSession

    if CONNECT:
        return connect(master, folder, **more)
    builder = SparkSession.builder.master(master).appName("hora's tests")
    for key, value in {**settings(folder), **more}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if master.startswith("local-cluster"):  # whose workers have their folders there, whatever SPARK_WORKER_DIR says
        from pyspark.find_spark_home import _find_spark_home

        atexit.register(
            shutil.rmtree, Path(_find_spark_home(), "work", session.sparkContext.applicationId), ignore_errors=True
        )
    return session


def connect(master: str, folder, **more: str):
    """A client of Spark Connect, whose server this process starts on a cluster of its own."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_TESTING"] = "1"  # any free port
    builder = SparkSession.builder.remote(master)
    for key, value in {**settings(folder), **more}.items():
        if key != "spark.default.parallelism":  # else Spark's own number of tasks says nothing of the slots
            builder = builder.config(key, value)
    with warnings.catch_warnings():  # of settings that are the server's, which it has
        warnings.simplefilter("ignore", UserWarning)
        session = builder.getOrCreate()
    assert "connect" in type(session).__module__
    return session
