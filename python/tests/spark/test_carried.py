"""What a job carries to its workers, and what it keeps to itself: variables, the task's path, the program, the
secret."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import hora.spark
from hora import _run as programs
from hora.spark import _hub, _run


def around():
    """The worker's variables, and where its agent's program lies."""
    import os

    import hora

    hora.init()
    return dict(os.environ), os.readlink(f"/proc/{os.getppid()}/exe")


def test_the_driver_s_variables_but_not_its_place(spark, monkeypatch):
    for name, value in {
        "NCCL_DEBUG": "WARN",
        "HOROVOD_CYCLE_TIME": "3",
        "HORA_STALL_WARN": "50s",
        "HORA_RANK": "7",
        "HORA_SIZE": "9",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MY_OWN", "stays here")
    for rank, (env, _) in enumerate(hora.spark.run(around, np=2)):
        assert (env["NCCL_DEBUG"], env["HOROVOD_CYCLE_TIME"], env["HORA_STALL_WARN"]) == ("WARN", "3", "50s")
        assert (env["HORA_RANK"], env["HORA_SIZE"], env["HOROVOD_RANK"]) == (str(rank), "2", str(rank))
        assert "MY_OWN" not in env
    ((alone, _),) = hora.spark.run(around, np=1)
    assert alone.get("OMP_NUM_THREADS") in (None, str(os.cpu_count())), (
        "Spark's, of the task's one core, is not the worker's"
    )


def test_a_module_that_addpyfile_brought(spark, tmp_path):
    (tmp_path / "brought_along.py").write_text("ANSWER = 42\n")
    spark.sparkContext.addPyFile(str(tmp_path / "brought_along.py"))

    def work():
        import brought_along

        import hora

        hora.init()
        return brought_along.ANSWER

    assert hora.spark.run(work, np=2) == [42, 42]


def test_executors_without_the_program_get_it(spark, monkeypatch, tmp_path):
    """One that no executor has, neither in its wheel nor at the driver's path: it comes by Spark."""
    own = tmp_path / "hora"
    own.write_bytes(Path(programs.program()).read_bytes() + b"\0")  # of another digest than what is installed
    own.chmod(0o755)
    monkeypatch.setattr(programs, "program", lambda: str(own))
    real = _run._Attempt._config
    monkeypatch.setattr(
        _run._Attempt, "_config", lambda self, *given: real(self, *given) | {"program": "/nowhere/hora"}
    )
    for _, agent in hora.spark.run(around, np=2):
        assert Path(agent).name.startswith("hora-") and Path(agent).parent != tmp_path, agent


def _of_processes(name: str) -> list[bytes]:
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        try:
            found.append(path.read_bytes())
        except OSError:
            pass  # it has ended
    return found


def test_the_secret_is_nowhere_to_be_read(spark, monkeypatch, tmp_path, capfd):
    """Not in Spark's settings, in a variable, on a command line, in a job's description, or in what is printed."""
    secrets = []

    class Seen(_hub.Hub):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            secrets.append(self.secret)

    monkeypatch.setattr(_run, "Hub", Seen)

    def work():
        import time
        from pathlib import Path

        import hora

        hora.init()
        (Path(str(tmp_path)) / f"up{hora.rank()}").touch()
        end = time.monotonic() + 60
        while not (Path(str(tmp_path)) / "looked").exists() and time.monotonic() < end:
            time.sleep(0.02)

    seen = {}

    def look():
        end = threading.Event()
        while len(list(tmp_path.glob("up*"))) < 2:
            end.wait(0.02)
        seen["processes"] = _of_processes("environ") + _of_processes("cmdline")
        context = spark.sparkContext
        jobs = [context.statusTracker().getJobInfo(i) for i in context.statusTracker().getActiveJobsIds()]
        seen["settings"] = f"{context.getConf().getAll()} {context._jsc.sc().getLocalProperties()} {jobs}"
        (tmp_path / "looked").touch()

    looking = threading.Thread(target=look)
    looking.start()
    hora.spark.run(work, np=2)
    looking.join()
    said = "".join(capfd.readouterr())
    (secret,) = secrets
    assert len(secret) == 64 and len(seen["processes"]) > 10
    assert not any(secret.encode() in text for text in seen["processes"])
    assert secret not in seen["settings"] and secret not in said
