"""What is asked of Spark: the session, its free slots, a tagged job, a file for the executors. Classic and Connect alike."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from hora.errors import ArgumentError, HoraError

__all__ = ["Job", "connected", "host", "session", "setting", "ship", "slots", "wait_for_slots"]

_QUIET = 15.0  # seconds without a new executor after which no further one is waited for
_shipped: set[tuple[int, str]] = set()


def session(spark: Any = None) -> Any:
    """The session given, or the active one."""
    if spark is not None:
        if not hasattr(spark, "range") or not hasattr(spark, "conf"):
            raise ArgumentError(f"spark.run: spark={spark!r} is no SparkSession; give the session, or leave it away for the active one")
        return spark
    found = active()
    if found is None:
        raise HoraError("spark.run: there is no active SparkSession; make one with SparkSession.builder.getOrCreate(), or use hora.run")
    return found


def active() -> Any:
    """The active session of this process, if pyspark is there and has one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        try:  # of Connect alone
            from pyspark.sql.connect.session import SparkSession as Remote

            found = Remote.getActiveSession()
        except ImportError:
            pass
    return found


def connected(spark: Any) -> bool:
    return ".connect." in type(spark).__module__


def setting(spark: Any, name: str, default: str = "") -> str:
    try:
        return str(spark.conf.get(name, default))
    except Exception:  # Connect refuses to tell some
        return default


def host(spark: Any) -> str:
    """Where executors reach the driver, as Spark has it; under Connect that is the server."""
    return "" if connected(spark) else setting(spark, "spark.driver.host")


def slots(spark: Any) -> int | None:
    """How many tasks can run at once on the executors that have registered; None where Spark does not tell."""
    if connected(spark):
        return None
    scala = spark.sparkContext._jsc.sc()
    try:
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # an interior of Spark, which another version may not have
        return None


def wait_for_slots(spark: Any, wanted: int | None, limit: float, tell: Callable[[str], None]) -> int | None:
    """Wait while executors register; how many slots there are, at least those that are wanted, or an error."""
    fixed = setting(spark, "spark.master").startswith("local[") or setting(spark, "spark.master") == "local"
    began = grown = time.monotonic()
    most = -1
    while True:
        have = slots(spark)
        now = time.monotonic()
        if have is None or (wanted is not None and have >= wanted):
            return have
        if have > most:
            most, grown = have, now
        if most > 0 and (fixed or now - grown > (_QUIET if wanted is not None else 2)):
            if wanted is None:
                return most
            raise HoraError(
                f"spark.run: np={wanted}, the cluster has {most} task slot{'s' * (most != 1)}: give np={most} or less, or more executors or cores "
                "(spark.executor.instances, spark.executor.cores; a task takes spark.task.cpus)"
            )
        if now - began > limit:
            raise HoraError(
                f"spark.run: no executor has registered in {limit:.0f} s: look at the cluster's page, whether it has workers for this application"
            )
        if now - began > 2:
            tell(f"{most} of {wanted or 'the'} task slots are there; executors are registering")
        time.sleep(0.1)


def ship(spark: Any, program: str) -> tuple[str, str]:
    """Give the program to all executors; the name that it has there, and its digest."""
    with open(program, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    name = f"hora-{digest[:16]}"
    if setting(spark, "spark.master").startswith("local[") or (id(spark), digest) in _shipped:
        return name, digest
    folder = tempfile.mkdtemp(prefix="hora-ship-")
    try:
        path = os.path.join(folder, name)
        shutil.copyfile(program, path)
        if connected(spark):
            spark.addArtifacts(path, file=True)
        else:
            spark.sparkContext.addFile(path)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors fetch it from there whenever they come
            folder = ""
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    _shipped.add((id(spark), digest))
    return name, digest


class Job:
    """A Spark job in a thread of its own, known by a tag. `report` is called with its rows' number or its exception."""

    def __init__(self, spark: Any, frame: Callable[[], Any], tag: str, report: Callable[[BaseException | None], None]) -> None:
        self.spark, self.tag = spark, tag
        self._frame, self._report = frame, report
        if connected(spark):
            self.thread: Any = threading.Thread(target=self._work, daemon=True)
        else:
            from pyspark import InheritableThread  # with the caller's scheduler pool and job group

            self.thread = InheritableThread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        tags = self.spark if connected(self.spark) else self.spark.sparkContext
        ended: BaseException | None = None
        try:
            (tags.addTag if connected(self.spark) else tags.addJobTag)(self.tag)
            self._frame().collect()
        except BaseException as e:
            ended = e
        self._report(ended)

    def cancel(self) -> None:
        try:
            if connected(self.spark):
                self.spark.interruptTag(self.tag)
            else:
                self.spark.sparkContext.cancelJobsWithTag(self.tag)
        except Exception:  # the session has been stopped, and the job with it
            pass

    def wait(self, seconds: float) -> bool:
        self.thread.join(seconds)
        return not self.thread.is_alive()
