"""What is asked of Spark: the session, its free slots, a tagged job, a file for the executors. Classic and Connect
alike."""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from hora.errors import ArgumentError, HoraError

from . import _folders, _refusals

__all__ = [
    "Job",
    "Teller",
    "active_session",
    "connected",
    "default_tasks",
    "dynamic",
    "host",
    "interpreter",
    "key",
    "session",
    "settle",
    "ship",
    "slots",
    "spark_setting",
    "start_limit",
    "taken",
    "wait_for_slots",
]

_START = 600.0  # seconds until all tasks have started, as Horovod's start_timeout
_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}
_QUIET = 15.0  # seconds without a new executor after which no further one is waited for
# The same where the cluster has had as many: a lost executor's replacement is a new JVM, perhaps on a new machine.
_BACK = 120.0
_had: dict[str, int] = {}  # the most slots that an application has had
_SETTLE = 1.5  # seconds after a gang that failed in which Spark may yet end an executor of it
_shipped: set[tuple[str, str]] = set()
_shipping = threading.Lock()
_TELLS = 30.0  # seconds in which an executor tells which Python it has
_failed: dict[str, float] = {}  # when an application's last gang failed


def session(spark: Any = None) -> Any:
    """The session given, or the active one."""
    if spark is not None:
        if not hasattr(spark, "range") or not hasattr(spark, "conf"):
            raise ArgumentError(
                f"spark.run: spark={spark!r} is no SparkSession; give the session, or leave it away for the active one"
            )
        if not connected(spark) and getattr(spark.sparkContext, "_jsc", None) is None:
            raise HoraError(
                "spark.run: the session given by spark= has been stopped; make one with SparkSession.builder.getOrCreate()"
            )
        return spark
    found = active_session()
    if found is None:
        raise HoraError(
            "spark.run: there is no active SparkSession; make one with SparkSession.builder.getOrCreate(), or use hora.run"
        )
    return found


def active_session() -> Any:
    """The active session of this process, if pyspark is there and has one."""
    if "pyspark" not in sys.modules:
        return None
    if "SPARK_CONNECT_MODE_ENABLED" in os.environ and (found := _remote()) is not None:
        return found  # a client in whose process the server runs has a classic one too
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:  # in a thread that has made none: the program's
        found = getattr(SparkSession, "_instantiatedSession", None)
        if found is not None and getattr(found.sparkContext, "_jsc", None) is None:  # it has been stopped
            found = None
    return _remote() if found is None else found


def _remote() -> Any:
    """Connect's session of this thread, or the program's."""
    try:
        from pyspark.sql.connect.session import SparkSession as Remote
    except ImportError:
        return None
    found = Remote.getActiveSession() or getattr(Remote, "_default_session", None)
    return None if found is None or getattr(found, "is_stopped", False) else found


def connected(spark: Any) -> bool:
    return ".connect." in type(spark).__module__


def spark_setting(spark: Any, name: str, default: str = "") -> str:
    """One of the session's settings; the default where it is not set, or Spark does not tell it."""
    try:
        found = spark.conf.get(name, None)  # a text would have to be a value of that setting
    except Exception:  # Connect refuses to tell some
        return default
    return default if found is None else str(found)


def key(spark: Any) -> str:
    """What tells a session from those before it: their objects' places in memory are used again."""
    return str(spark.session_id if connected(spark) else spark.sparkContext.applicationId)


def dynamic(spark: Any) -> bool:
    """Whether executors come when tasks wait, and not before; never with a local master, whatever the setting."""
    if spark_setting(spark, "spark.master").partition("[")[0] == "local":
        return False
    return spark_setting(spark, "spark.dynamicAllocation.enabled") == "true"


def gpu_note(spark: Any) -> str:
    """What ranks should know of GPUs where a task has not just one."""
    amount = spark_setting(spark, "spark.task.resource.gpu.amount")
    try:
        each = float(amount)
    except ValueError:
        return ""
    if 0 < each < 1:
        return (
            f"tasks share GPUs (spark.task.resource.gpu.amount={amount}): a rank whose local_rank() is above the GPUs of its host names none by it; "
            "set it to 1 for a GPU each"
        )
    if each > 1:
        return (
            f"tasks have {amount} GPUs each (spark.task.resource.gpu.amount): local_rank() names one of all those of its host; "
            "HORA_SPARK_TASK_DEVICES names those of the rank's own task"
        )
    return ""


def host(spark: Any) -> str:
    """Where executors reach the driver, as Spark has it; under Connect that is the server."""
    return "" if connected(spark) else spark_setting(spark, "spark.driver.host")


def slots(spark: Any) -> int | None:
    """How many tasks can run at once on the executors that have registered; None where Spark does not tell."""
    if connected(spark):
        return None
    scala = spark.sparkContext._jsc.sc()
    try:
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # an interior of Spark, which another version may not have
        return None


def wait_for_slots(
    spark: Any, wanted: int | None, limit: float, tell: Callable[[str], None], word: str = "np"
) -> int | None:
    """Wait while executors register; how many slots there are, at least those that are wanted, or an error."""
    fixed = spark_setting(spark, "spark.master").startswith("local[") or spark_setting(spark, "spark.master") == "local"
    began = grown = time.monotonic()
    most = -1
    while True:
        have = slots(spark)
        now = time.monotonic()
        if have is None:
            return _shares(spark) if wanted is None else None
        application = str(spark.sparkContext.applicationId)
        had = _had[application] = max(have, _had.get(application, 0))
        if wanted is not None and have >= wanted:
            return have
        if have > most:
            most, grown = have, now
        quiet = 2.0 if wanted is None else _BACK if had >= wanted else _QUIET
        if most > 0 and (fixed or now - grown > quiet or wanted is not None and now - began > limit):
            if wanted is None:
                return most
            if had >= wanted:
                raise HoraError(
                    f"spark.run: {word}={wanted}, the cluster has {most} of the {had} task slots that it had: executors were lost, and none came in "
                    f"their place in {min(quiet, limit):.0f} s; give {word}={most} or less, or look at the cluster's page"
                )
            raise HoraError(
                f"spark.run: {word}={wanted}, the cluster has {most} task slot{'s' * (most != 1)}: give {word}={most} or less, or more executors or cores "
                "(spark.executor.instances, spark.executor.cores; a task takes spark.task.cpus)"
            )
        if now - began > limit:
            raise HoraError(
                f"spark.run: no executor has registered in {limit:.0f} s: look at the cluster's page, whether it has workers for this application"
            )
        if now - began > 2:
            tell(f"{most} of {wanted or 'the'} task slots are there; executors are registering")
        time.sleep(0.1)


def taken(spark: Any) -> int:
    """How many tasks of this application run now, of other jobs; 0 where Spark does not tell."""
    if connected(spark):
        return 0
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def _shares(spark: Any) -> int | None:
    """How many tasks Spark itself would make of work that says nothing of that: one a core of the executors that are
    there.

    None where somebody has set that number, or where tasks take more than a core.
    """
    set_by_hand = any(
        spark_setting(spark, f"spark.{name}") for name in ("default.parallelism", "sql.leafNodeDefaultParallelism")
    )
    if set_by_hand or spark_setting(spark, "spark.task.cpus", "1") != "1":
        return None
    try:
        return default_tasks(spark)
    except Exception:  # the job that follows says it better
        return None


def default_tasks(spark: Any) -> int:
    """Of how many tasks Spark makes work that says nothing of that."""
    from pyspark.sql import functions as F

    said = spark_setting(spark, "spark.default.parallelism")
    if said:
        return int(said)
    if not connected(spark):
        return int(spark.sparkContext.defaultParallelism)
    return int(spark.range(1 << 16).select(F.spark_partition_id().alias("p")).distinct().count())


def settle(spark: Any) -> None:
    """Wait until Spark is through with a gang that failed a moment ago.

    The executor's thread that takes its Python workers' connections is killed with their tasks, and now and then nobody
    catches
    that: the whole executor ends (exit code 50), a moment after the job, and takes along the gang that has come there
        meanwhile.
    """
    left = _failed.get(key(spark), -_SETTLE) + _SETTLE - time.monotonic()
    if left > 0:
        time.sleep(left)


def ship(spark: Any, program: str) -> tuple[str, str]:
    """Give the program to all executors; the name that it has there, and its digest."""
    with open(program, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    name = f"hora-{digest[:16]}"
    with _shipping:  # of two jobs that begin at once one sends it: a name stands for one path
        if not spark_setting(spark, "spark.master").startswith("local[") and (key(spark), digest) not in _shipped:
            _send(spark, program, name)
            _shipped.add((key(spark), digest))
    return name, digest


def _send(spark: Any, program: str, name: str) -> None:
    folder = _folders.make("hora-ship-")
    try:
        path = os.path.join(folder, name)
        shutil.copyfile(program, path)
        if connected(spark):
            spark.addArtifacts(path, file=True)
        else:
            spark.sparkContext.addFile(path)
            atexit.register(_folders.remove, folder)  # executors fetch it from there whenever they come
            folder = ""
    finally:
        if folder:
            _folders.remove(folder)


class Job:
    """A Spark job in a thread of its own, known by a tag. `report` is called with its rows' number or its exception."""

    def __init__(
        self, spark: Any, frame: Callable[[], Any], tag: str, report: Callable[[BaseException | None], None]
    ) -> None:
        self.spark, self.tag = spark, tag
        self._frame, self._report = frame, report
        self.rows: list[Any] = []
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
            self.rows = self._frame().collect()
        except BaseException as e:
            ended = e
            _failed[key(self.spark)] = time.monotonic()
        self._report(ended)

    def cancel(self) -> None:
        try:
            if connected(self.spark):
                self.spark.interruptTag(self.tag)
            else:
                self.spark.sparkContext.cancelJobsWithTag(self.tag)
        except Exception:  # the session has been stopped, and the job with it
            pass

    def leave(self, seconds: float) -> None:
        """Cancel it where it does not end by itself in that time, for which nobody waits."""
        threading.Thread(target=self._end_late, args=(seconds,), daemon=True).start()

    def _end_late(self, seconds: float) -> None:
        if not self.wait(seconds):
            self.cancel()

    def wait(self, seconds: float) -> bool:
        self.thread.join(seconds)
        return not self.thread.is_alive()


def interpreter(spark: Any) -> str:
    """The path of an executor's Python, and on which machine; "" where none tells it soon.

    The task needs no package: it is asked where one is not there.
    """
    from pyspark.sql import functions as F

    def where(_: Any) -> str:
        import platform
        import sys

        return f"{sys.executable} on {platform.node()}"

    def frame() -> Any:
        return spark.range(1, numPartitions=1).select(F.udf(where, "string", useArrow=False)("id"))

    job = Job(spark, frame, f"hora-{secrets.token_hex(6)}", lambda _: None)
    if not job.wait(_TELLS):
        job.cancel()
    return str(job.rows[0][0]) if job.rows else ""


def all_slots(spark: Any, limit: float, tell: Callable[[str], None], words: _refusals.Wording) -> int:
    """How many ranks a job has that does not say it: as many as there are task slots."""
    if dynamic(spark):
        raise ArgumentError(
            f"spark.run: a cluster that allocates executors dynamically has as many task slots as are asked for; give {words.np}="
        )
    found = wait_for_slots(spark, None, limit, tell)
    if found is None:
        raise ArgumentError(
            f"spark.run: under Spark Connect this session does not tell how many task slots the cluster has; give {words.np}="
        )
    return found


def start_limit() -> float:
    """Seconds until all tasks must have started."""
    for name in ("HORA_START_TIMEOUT", "HOROVOD_SPARK_START_TIMEOUT"):
        text = os.environ.get(name, "").strip()
        if not text:
            continue
        unit = next((u for u in ("ms", "s", "m", "h") if text.endswith(u)), "")
        try:
            return float(text.removesuffix(unit)) * _UNITS[unit]
        except ValueError:
            raise ArgumentError(
                f"spark.run: {name}={text!r} is no time such as 90, 90s or 10m; correct it, or unset it"
            ) from None
    return _START


class Teller:
    """Says on standard error what the start waits for, each thing once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        if text != self._last:
            self._last = text
            print(f"hora: {text}", file=sys.stderr, flush=True)
