"""Where a job's secret is and is not, an elastic job whose executors share no TMPDIR, and ranks that ignore SIGTERM."""

from __future__ import annotations

import _thread
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ends
import pytest
import sessions
from pyspark.find_spark_home import _find_spark_home
from sample import longer

import hora
import hora.spark
from hora.spark import _cluster, _task

apart = pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")

DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_secrets
getattr(test_secrets, sys.argv[2])(Path(sys.argv[3]))
"""
LOG = """
rootLogger.level = debug
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


def driven(folder: Path, name: str) -> dict:
    """What a function of this file says of a session of its own, with its output and its temporary files in the
    folder."""
    (folder / "driver.py").write_text(DRIVER)
    (folder / "tmp").mkdir()
    argv = [sys.executable, folder / "driver.py", Path(__file__).parent, name, folder]
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        code = subprocess.run(
            argv, stdout=out, stderr=err, env=os.environ | {"TMPDIR": str(folder / "tmp")}, timeout=300
        ).returncode
    last = (folder / "stderr").read_text(errors="replace")[-3000:] if code else ""
    assert code == 0, last
    return json.loads((folder / "said.json").read_text())


def forms(secret: str) -> list[bytes]:
    """What stands for a secret: its text, what that is of, and both in base 64."""
    raw = bytes.fromhex(secret)
    return [
        secret.encode(),
        secret.upper().encode(),
        raw,
        *(base64.b64encode(b).rstrip(b"=")[:-1] for b in (raw, secret.encode())),
    ]


def having(folder: Path, wanted: list[bytes]) -> list[str]:
    """The files of a folder that hold one of them."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and any(w in data for data in [path.read_bytes()] for w in wanted):
                found.append(str(path.relative_to(folder)))
        except OSError:  # it was removed just now, or is a socket
            continue
    return found


def closed(folder: Path, path: Path) -> bool:
    """Whether a file lies in a folder that is its user's alone."""
    return any((folder / p).exists() and not (folder / p).stat().st_mode & 0o77 for p in (path, *path.parents[:-2]))


def processes(wanted: list[bytes]) -> tuple[set[int], set[str]]:
    """All processes whose words and variables can be read, and those that have one of them there."""
    seen, found = set(), set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words, variables = Path(f"/proc/{name}/cmdline").read_bytes(), Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        seen.add(int(name))
        if any(w in words or w in variables for w in wanted):
            found.add(words.replace(b"\0", b" ").decode(errors="replace"))
    return seen, found


def looked_at(path, more=b""):
    """Writes who runs, and goes on when the driver has looked; rank 1 may be one that fails."""
    import os
    import time

    import hora

    hora.init()
    with open(f"{path}/{hora.rank()}~", "w") as f:
        f.write(f"{os.getpid()} {os.getppid()}")
    os.rename(f"{path}/{hora.rank()}~", f"{path}/{hora.rank()}")
    while not os.path.exists(f"{path}/looked"):
        time.sleep(0.02)
    if os.path.exists(f"{path}/fail"):
        raise KeyError("no such column")
    return int(hora.allreduce(hora.rank() + 1))


class Watch:
    """Looks at all processes from before a job until its ranks have told who they are, and then at files and settings
    too."""

    def __init__(self, spark, folder: Path, told: Path) -> None:
        told.mkdir()
        self._spark, self._folder, self._told = spark, folder, told
        self.secrets: list[str] = []
        self.said: dict = {"looks": 0, "processes": [], "roles": [], "settings": [], "files": [], "open": []}
        self._make, _task.make = _task.make, self._learn
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _learn(self, config):
        self.secrets.append(config["secret"])
        return self._make(config)

    def _look(self) -> None:
        try:
            end = time.monotonic() + 120
            found = set()
            while sum(p.name.isdigit() for p in self._told.iterdir()) < 2 and time.monotonic() < end:
                found |= self._processes()[1]
            pids = ends.told(self._told, 2, 1)
            seen, more = self._processes()
            below = set(ends.below(os.getpid()))
            executors = {ends.executor_of(p) for p in pids[::2]}
            roles = {"rank": pids[::2], "agent": pids[1::2], "executor": executors, "serving": ends.serving()}
            assert all(set(of) <= seen & (below | set(ends.serving())) for of in roles.values()), (roles, seen)
            self.said["roles"] = sorted(k for k, v in roles.items() if v)
            self.said["processes"] = sorted(found | more)
            wanted = forms(self.secrets[-1])
            context = self._spark.sparkContext
            settings = [*context.getConf().getAll(), *map(tuple, self._spark.sql("SET").collect())]
            self.said["settings"] = [k for k, v in settings if any(w in f"{k}={v}".encode() for w in wanted)]
            self.said["files"] = having(self._folder, wanted)
            self.said["open"] = [f for f in self.said["files"] if not closed(self._folder, Path(f))]
        finally:
            (self._told / "looked").touch()

    def _processes(self) -> tuple[set[int], set[str]]:
        self.said["looks"] += 1
        return processes([w for s in self.secrets for w in forms(s)])

    def over(self) -> dict:
        self._thread.join()
        _task.make = self._make
        return self.said


def secret_job(folder: Path) -> None:
    """Jobs of each kind in a session that logs all it can: where their secrets were, and where they are in the end."""
    (folder / "log4j2.properties").write_text(LOG)
    (folder / "events").mkdir()
    (
        home := folder / "home"
    ).mkdir()  # where the workers of a local cluster have their executors' logs, whatever SPARK_WORKER_DIR says
    for path in Path(_find_spark_home()).iterdir():
        if path.is_dir() and path.name != "work":
            (home / path.name).symlink_to(path)
    os.environ["SPARK_HOME"] = str(home)
    log = f"-Dlog4j2.configurationFile=file:{folder}/log4j2.properties"
    more = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.compress": "false",
        "spark.driver.extraJavaOptions": log, "spark.executor.extraJavaOptions": log,
    }  # fmt: skip
    spark = sessions.start("local-cluster[2,1,1024]", folder, **more)
    spark.sparkContext.setLogLevel("DEBUG")
    _cluster.wait_for_slots(spark, 2, 120, print)
    said, known = {}, []

    def job(name: str, more: bytes = b"", **how) -> None:
        told = folder / f"told-{name}"
        watch = Watch(spark, folder, told)
        if name == "fails":
            (told / "fail").touch()
        try:
            got = hora.spark.run(looked_at, args=(str(told), more), np=2, **how)
        except KeyError as e:
            got = str(e) + str(e.__cause__)
            got = "raised" if not any(s in got for s in watch.secrets) else got
        said[name] = watch.over() | {"got": got}
        known.extend(watch.secrets)

    job("gang")
    job("fails")
    job("elastic", min_np=1, max_np=2)
    os.environ["HORA_SPARK_HUB"] = "task"  # the hub's function travels in the closure too
    job("afar")
    job("large", os.urandom(2 << 20))
    spark.stop()
    (folder / "said.json").write_text(json.dumps({"jobs": said, "backwards": [s[::-1] for s in known]}))


@apart
def test_the_secret_is_nowhere_but_in_the_closure_and_in_files_of_one_s_own(tmp_path):
    said = driven(tmp_path, "secret_job")
    jobs, secrets = said["jobs"], [s[::-1] for s in said["backwards"]]
    results = {"gang": [3, 3], "fails": "raised", "elastic": [3, 3], "afar": [3, 3], "large": [3, 3]}
    assert {name: job["got"] for name, job in jobs.items()} == results
    for name, job in jobs.items():
        assert job["roles"] == ["agent", "executor", "rank", "serving"] and job["looks"] > 1, (name, job)
        assert not job["processes"] and not job["settings"] and not job["open"], (name, job)
        spark_s = [
            f for f in job["files"] if not f.startswith("tmp/hora")
        ]  # a closure above 1 MiB: the call for a hub in a task
        assert len(spark_s) < len(job["files"]), (name, job)
        assert all(f.startswith("local/spark-") for f in spark_s) if name == "large" else not spark_s, (name, job)
    assert len(set(secrets)) == 5 and not having(tmp_path, [w for s in secrets for w in forms(s)])
    events = b"".join(p.read_bytes() for p in (tmp_path / "events").rglob("*") if p.is_file())
    assert b"SparkListenerJobEnd" in events and b'"spark.job.tags":"hora-' in events, (
        "the log of events has the jobs and their tags"
    )
    logs = [tmp_path / "stderr", *(tmp_path / "home" / "work").rglob("stderr")]
    assert len(logs) == 3 and all(p.read_bytes().count(b" DEBUG ") > 100 for p in logs), logs


def own_folders(folder: Path) -> None:
    """An elastic job in executors that have each a TMPDIR of their own, one of which is killed while it trains."""
    wrapper = folder / "python"
    wrapper.write_text(
        f'#!/bin/sh\nTMPDIR={folder}/tmp/$PPID\nmkdir -p -m 700 "$TMPDIR"\nexport TMPDIR\nexec {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(wrapper)
    told = folder / "told"
    told.mkdir()

    def train(path, steps):
        import os
        import tempfile
        import time

        import numpy as np

        import hora
        import hora.elastic

        hora.init()
        state = hora.elastic.State(step=0, weights=np.zeros(50_000), sizes=[])
        me = f"{path}/{os.getpid()}"

        @hora.elastic.run
        def work(state):
            while state.step < steps or not os.path.exists(f"{path}/grown"):
                with open(me + "~", "w") as f:
                    f.write(str(os.getpid()))
                os.rename(me + "~", me)
                state.weights += hora.allreduce(np.full(50_000, float(state.step)), hora.AVERAGE, name="x")
                if not state.sizes or state.sizes[-1] != hora.size():
                    state.sizes = [*state.sizes, hora.size()]
                    if hora.size() == 2 and 1 in state.sizes[state.sizes.index(2) :]:
                        open(f"{path}/grown", "w").close()
                state.step += 1
                state.commit()
                time.sleep(0.01)
            return state.step, [float(w) for w in set(state.weights)], state.sizes, tempfile.gettempdir()

        return work(state)

    def kill():
        victim = ends.executor_of(ends.told(told, 2)[0])
        (folder / "killed").write_text(str(victim))
        os.kill(victim, signal.SIGKILL)

    spark = sessions.start("local-cluster[2,1,1024]", folder)
    _cluster.wait_for_slots(spark, 2, 120, print)
    threading.Thread(target=kill, daemon=True).start()
    got = hora.spark.run(train, args=(str(told), 50), np=2, min_np=1, max_np=2)
    gone = folder / "tmp" / (folder / "killed").read_text()
    end = time.monotonic() + 5
    while (left := [str(p) for p in gone.iterdir()]) and time.monotonic() < end:
        threading.Event().wait(0.05)
    spark.stop()
    (folder / "said.json").write_text(json.dumps({"got": got, "killed": str(gone), "left": left}))


@apart
def test_an_elastic_job_whose_executors_share_no_folder(tmp_path):
    said = driven(tmp_path, "own_folders")
    assert len(said["got"]) == 2
    for steps, weights, sizes, _ in said["got"]:
        assert weights == [steps * (steps - 1) / 2], "every step was counted once, in all weights"
        assert 1 in sizes[sizes.index(2) :] and sizes[-1] == 2
    folders = {temporary for *_, temporary in said["got"]}
    assert (
        len(folders) == 2
        and said["killed"] not in folders
        and {str(Path(f).parent) for f in folders} == {str(tmp_path / "tmp")}
    )
    assert not said["left"], "who guards a worker removes what it had there, also when its executor is killed"


def deaf(path, how):
    """Rank 0 and two children go on after SIGTERM, of which one says when it came; rank 1 fails when all are there."""
    import os
    import signal
    import subprocess
    import time

    import hora

    hora.init()

    def came(*_):
        with open(f"{path}/term", "a") as f:
            f.write(f"{time.time()}\n")

    if hora.rank() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, came)
            open(f"{path}/ready", "w").close()
            while True:
                time.sleep(600)
        while not os.path.exists(f"{path}/ready"):
            time.sleep(0.01)
        with open(f"{path}/0~", "w") as f:
            f.write(f"{os.getpid()} {child} {subprocess.Popen(['sleep', '600']).pid}")
        os.rename(f"{path}/0~", f"{path}/0")
    while how == "interrupt" or not os.path.exists(f"{path}/0") or hora.rank() == 0:
        time.sleep(0.01)
    raise KeyError("no such column")


@longer
@pytest.mark.parametrize("how", ["raise", "interrupt"])
def test_who_ignores_sigterm_is_killed_half_a_second_later(spark, tmp_path, how):
    gone: list[float] = []

    def watch():
        pids.extend(ends.told(tmp_path, 1))
        if how == "interrupt":
            _thread.interrupt_main()
        if ends.ended(pids, 30):
            gone.append(time.time())

    pids: list[int] = []
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    with pytest.raises(KeyError if how == "raise" else KeyboardInterrupt):
        hora.spark.run(deaf, args=(str(tmp_path), how), np=2)
    raised = time.time()
    thread.join(30)
    assert len(pids) == 3 and gone, "they are still there"
    asked = float((tmp_path / "term").read_text().split()[0])
    print(
        f"{how}: killed {gone[0] - asked:.3f} s after TERM, {gone[0] - raised:+.3f} s after the call raised"
    )  # pytest -s
    assert gone[0] - raised < 3
    assert 0.4 < gone[0] - asked < 3, "0.5 s from TERM to KILL"
