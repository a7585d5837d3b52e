"""What a Spark task does: start the agent and stay until it has ended.

The function travels by value, since it is nested: executors need pyspark, pyarrow and hora, of whatever place. It holds
no secret in its name, its arguments or its environment; the closure has it, and the agent reads it from a pipe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["SCHEMA", "make"]

SCHEMA = "code long"


def make(config: dict[str, Any]) -> Callable[[Any], Any]:
    """The task. `config`: hub, secret, program, shipped, digest, machine, version, python, feed, openmp, unreached,
    first, inside, local."""

    def task(batches: Any) -> Any:
        import hashlib
        import importlib.util
        import os
        import platform
        import signal
        import subprocess
        import sys
        import sysconfig
        import threading

        import pyarrow

        where = platform.node()

        def refuse(sentence: str) -> Any:
            raise RuntimeError(f"hora.spark: {sentence} [end]")

        def fits(path: str) -> bool:
            try:
                with open(path, "rb") as f:
                    return hashlib.sha256(f.read()).hexdigest() == config["digest"]
            except OSError:
                return False

        def program() -> str:
            own = os.path.join(sysconfig.get_path("scripts"), "hora")
            for path in (own, config["program"]):
                if fits(path) and os.access(path, os.X_OK):
                    return path
            if platform.machine() != config["machine"]:  # another program, of the same version, as was looked at before
                if os.access(own, os.X_OK):
                    return own
                refuse(
                    f"the executor on {where} is a {platform.machine()} and the driver a {config['machine']}, so that the driver's program "
                    f"cannot run there: install hora's wheel of version {config['version']} with {sys.executable} on the executors"
                )
            from pyspark import SparkFiles

            path = SparkFiles.get(config["shipped"])
            if not fits(path):
                refuse(
                    f"the program hora did not reach the executor on {where}: install hora's wheel of version {config['version']} there"
                )
            os.chmod(path, 0o755)
            return path

        def environment() -> dict[str, str]:
            own = sys.modules.get("hora.spark._settings")  # what a prediction has set here is not for ranks
            ours = {} if own is None else own.ours
            env = {
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("PYTHON_WORKER_FACTORY_", "PYTHON_UNIX_DOMAIN_", "HORA_SECRET"))
                and ours.get(k) != v
            }
            if not config["openmp"]:  # Spark's: as many as the task has cores, which is one
                env.pop("OMP_NUM_THREADS", None)
            env["PYTHONPATH"] = os.pathsep.join(
                p for p in sys.path if p
            )  # with what addPyFile and addArtifacts brought
            env["HORA_SPARK_PYTHON"] = sys.executable
            return env

        def devices() -> str:
            from pyspark import TaskContext

            context = TaskContext.get()
            mine = (
                list(context.resources()["gpu"].addresses)
                if context is not None and "gpu" in context.resources()
                else []
            )
            visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
            return ",".join(visible[int(d)] if visible and d.isdigit() and int(d) < len(visible) else d for d in mine)

        if sys.version_info[:2] != tuple(config["python"]):
            mine, theirs = (".".join(map(str, v)) for v in (sys.version_info[:2], config["python"]))
            refuse(
                f"the executor on {where} has Python {mine} and the driver {theirs}: set PYSPARK_PYTHON to an interpreter of the same version"
            )
        if importlib.util.find_spec("hora") is None:
            refuse(
                f"the executor on {where} has no module hora for {sys.executable}: install hora's wheel there, as on the driver"
            )
        import hora

        if hora.__version__ != config["version"]:
            refuse(
                f"the executor on {where} has hora {hora.__version__} and the driver {config['version']}: install the same version on both"
            )
        env = environment()
        if mine := devices():
            # The hub makes it those of all tasks of the job on this host, in the order of local ranks.
            env["CUDA_VISIBLE_DEVICES"] = env["HORA_SPARK_TASK_DEVICES"] = mine
        feed = None
        if config["feed"]:
            from hora.spark._rows import Feed

            feed = Feed(batches)
            env["HORA_SPARK_ROWS"] = feed.address
        else:
            for _ in batches:
                pass
        path, hub, first = program(), config["hub"], None
        if config["first"]:  # the hub is in the first of these tasks
            from hora.spark import _first

            hub, first = _first.meet(config, path)
        seat = None
        if config["inside"] is not None:  # the function runs in this process, and the agent guards it
            from hora.spark import _beside

            seat = _beside.Seat(env)
        command = [path, "agent", "--hub", hub]
        try:
            agent = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=sys.stderr, stderr=subprocess.PIPE)
        except OSError as e:
            if first is not None:
                first.close()
            refuse(
                f"the task on {where} may not start the program {command[0]} ({e.strerror}): install hora's wheel where programs may run, "
                "or let SPARK_LOCAL_DIRS be a place without noexec"
            )
        last = [b""]

        def pass_on() -> None:  # into the executor's log
            for line in agent.stderr:  # type: ignore[union-attr]
                last[0] = line
                if config["local"] and line.startswith(b"hora: the job has ended: "):
                    continue  # the hub says it, on the same terminal
                sys.stderr.write(line.decode(errors="replace"))

        reader = threading.Thread(target=pass_on, daemon=True)
        reader.start()
        try:
            agent.stdin.write(config["secret"].encode() + b"\n")  # type: ignore[union-attr]
            agent.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # it says why it has ended
        try:
            if feed is not None:
                feed.serve(agent)
            if seat is not None:
                from pyspark import TaskContext

                seat.run(agent, TaskContext.get().partitionId(), config["inside"])
            if first is not None:
                yield from first.beats(agent)
            code = agent.wait()
            if (
                code == config["unreached"]
            ):  # or the job's own code, which has lost a host: the hub tells why, and a new start may follow
                reader.join(5)
                said = last[0].decode(errors="replace").strip().removeprefix("hora: ")
                if not said.startswith("the job has ended: "):
                    refuse(f"the agent on {where}: {said}")
            if first is not None:
                yield from first.rows()
            elif not config["first"]:
                yield pyarrow.RecordBatch.from_pydict({"code": pyarrow.array([code], pyarrow.int64())})
        finally:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
            if first is not None:
                first.close()
            if seat is not None:
                seat.close()

    return task
