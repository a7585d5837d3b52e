"""The figures of the server beside Slurm, Ray's jobs and MLflow's server, in turn on one machine; prints tables for
bench/results.

    python3 bench/server_bench.py PROGRAMS PEERS [part …]

PROGRAMS is a folder with hora and horad, PEERS an environment of Python with ray and mlflow; Slurm is Debian's. Parts:
first, trues, metrics; without one all of them. Each peer has its best day: Slurm an array, passes of its scheduler as
often as it makes them, and srun beside sbatch, Ray its client in a process that stays, MLflow batches of 1,000 values,
which is the most that it takes. What each has done is counted in the run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "python"))
SLOTS = 8
PATIENCE = 300.0


def until(what, so, every=0.005):
    end = time.monotonic() + PATIENCE
    while not so():
        if time.monotonic() > end:
            raise SystemExit(f"not so after {PATIENCE:.0f} s: {what}")
        time.sleep(every)


def row(what, all_of, unit, note=""):
    every = " ".join(f"{x:.3g}" for x in all_of)
    print(
        f"| {what} | {statistics.median(all_of):.3g} {unit} | {every} | {note} |",
        flush=True,
    )


class Hora:
    name = "hora"

    def __init__(self, programs, home):
        self.hora = str(programs / "hora")
        self.env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(TREE / "python")}
        self.env.pop("HORA_SERVER", None)
        self.up = subprocess.Popen(
            [
                self.hora,
                "up",
                "--dir",
                str(home / "server"),
                "--port",
                "0",
                "--slots",
                str(SLOTS),
            ],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        url = self.up.stdout.readline().split()[-1]
        from hora.server import Client

        self.client = Client(url, (home / "server/token").read_text().strip())

    def first(self):
        begin = time.perf_counter()
        p = subprocess.Popen(
            [self.hora, "submit", "--no-code", "--follow", "--", "echo", "first"],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = p.stdout.readline()
        took = time.perf_counter() - begin
        assert "first" in line, line
        p.wait()
        return took

    def trues(self, n):
        begin = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            ids = list(
                pool.map(
                    lambda _: self.client.submit(["true"], folder=None).id, range(n)
                )
            )
        until(
            "hora's jobs have ended",
            lambda: not list(self.client.jobs(["queued", "preparing", "running"])),
            0.05,
        )
        took = time.perf_counter() - begin
        done = {j.id for j in self.client.jobs(["finished"])}
        assert done.issuperset(ids)
        return n / took

    def metrics(self, runs, steps):
        script = (
            "from hora.server import tell\n"
            f"for step in range({steps}):\n"
            "    tell(step, {f'm{k:02d}': step * 0.5 + k for k in range(25)})\n"
        )
        begin = time.perf_counter()
        ids = [
            self.client.submit([sys.executable, "-c", script], folder=None).id
            for _ in range(runs)
        ]
        until(
            "hora's runs have ended",
            lambda: not list(self.client.jobs(["queued", "preparing", "running"])),
            0.05,
        )
        took = time.perf_counter() - begin
        for i in ids:
            found = self.client.metrics(i)
            assert len(found) == 25 and all(m.count == steps for m in found), [
                (m.name, m.count) for m in found
            ]
        return runs * steps * 25 / took

    def end(self):
        subprocess.run(
            [self.hora, "down", "--now"],
            check=False,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.up.wait()


class Slurm:
    name = "Slurm, sbatch"

    def __init__(self, home):
        self.home, host = home, os.uname().nodename
        for d in ("state", "munge", "spool"):
            (home / d).mkdir()
        key = home / "munge.key"
        key.write_text("not a secret. " * 8)
        key.chmod(0o600)
        socket = home / "munge/socket"
        conf = home / "slurm.conf"
        conf.write_text(f"""ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthInfo=socket={socket}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
MaxJobCount=50000
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,default_queue_depth=10000,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={SLOTS} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
""")
        self.env = {**os.environ, "SLURM_CONF": str(conf)}
        quiet = {
            "env": self.env,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self.daemons = [
            subprocess.Popen(
                [
                    "munged",
                    "--foreground",
                    "--force",
                    f"--key-file={key}",
                    f"--socket={socket}",
                    f"--pid-file={home}/m.pid",
                    f"--log-file={home}/m.log",
                    f"--seed-file={home}/m.seed",
                ],
                **quiet,
            )
        ]
        until("munge is there", socket.exists)
        self.daemons.append(subprocess.Popen(["slurmctld", "-D"], **quiet))
        self.daemons.append(subprocess.Popen(["slurmd", "-D", "-N", host], **quiet))
        until(
            "Slurm's node is idle",
            lambda: "idle" in self.run("sinfo", "-h", "-o", "%T"),
            0.2,
        )

    def run(self, *argv):
        return subprocess.run(
            argv, check=False, env=self.env, capture_output=True, text=True
        ).stdout

    def first(self):
        out = self.home / "first.out"
        out.unlink(missing_ok=True)
        begin = time.perf_counter()
        self.run("sbatch", "-o", str(out), "--wrap", "echo first")
        until(
            "the first line",
            lambda: out.exists() and out.read_text() == "first\n",
            0.001,
        )
        took = time.perf_counter() - begin
        until("Slurm's job has ended", lambda: not self.run("squeue", "-h"), 0.05)
        return took

    def trues(self, n):
        done = self.home / "done"
        for f in done.glob("*") if done.exists() else []:
            f.unlink()
        begin = time.perf_counter()
        self.run("sbatch", f"--array=0-{n - 1}", "-o", "/dev/null", "--wrap", "true")
        until("Slurm's jobs have ended", lambda: not self.run("squeue", "-h"), 0.1)
        took = time.perf_counter() - begin
        assert (
            self.run("scontrol", "-o", "show", "jobs").count("JobState=COMPLETED") >= n
        )
        return n / took

    def end(self):
        for d in reversed(self.daemons):
            d.terminate()
            d.wait()


class Srun:
    """Slurm where somebody stays for each job: it is started at once, where one of sbatch waits for a pass of once a
    second."""

    name = "Slurm, srun"

    def __init__(self, slurm):
        self.slurm = slurm

    def first(self):
        begin = time.perf_counter()
        assert self.slurm.run("srun", "-n1", "echo", "first") == "first\n"
        return time.perf_counter() - begin

    def trues(self, n):
        begin = time.perf_counter()
        with ThreadPoolExecutor(SLOTS) as pool:
            list(pool.map(lambda _: self.slurm.run("srun", "-n1", "true"), range(n)))
        return n / (time.perf_counter() - begin)


# It stays for the whole run: what starting Python and importing Ray take is not counted.
RAY = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from ray.job_submission import JobSubmissionClient, JobStatus
c = JobSubmissionClient("http://127.0.0.1:8265")
def first(_):
    begin = time.perf_counter()
    i = c.submit_job(entrypoint="echo first")
    while "first" not in c.get_job_logs(i): time.sleep(0.005)
    took = time.perf_counter() - begin
    while c.get_job_status(i) not in (JobStatus.SUCCEEDED, JobStatus.FAILED): time.sleep(0.05)
    return took
def trues(n):
    begin = time.perf_counter()
    with ThreadPoolExecutor(8) as pool: ids = list(pool.map(lambda _: c.submit_job(entrypoint="true"), range(n)))
    for i in ids:
        while c.get_job_status(i) not in (JobStatus.SUCCEEDED, JobStatus.FAILED): time.sleep(0.02)
    took = time.perf_counter() - begin
    bad = [i for i in ids if c.get_job_status(i) != JobStatus.SUCCEEDED]
    assert not bad, c.get_job_info(bad[0])
    return n / took
print("ready", flush=True)
for line in sys.stdin:
    name, n = json.loads(line)
    print(globals()[name](n), flush=True)
"""


class Ray:
    name = "Ray"

    def __init__(self, peers, home):
        self.ray = str(peers / "bin/ray")
        self.env = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{peers}/bin:{os.environ['PATH']}",
        }
        subprocess.run(
            [
                self.ray,
                "start",
                "--head",
                f"--num-cpus={SLOTS}",
                "--dashboard-port=8265",
                f"--temp-dir={home}",
            ],
            env=self.env,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = subprocess.Popen(
            [str(peers / "bin/python"), "-c", RAY],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.client.stdout.readline() == "ready\n"

    def ask(self, name, n=0):
        self.client.stdin.write(json.dumps([name, n]) + "\n")
        self.client.stdin.flush()
        return float(self.client.stdout.readline())

    def first(self):
        return self.ask("first")

    def trues(self, n):
        return self.ask("trues", n)

    def end(self):
        self.client.stdin.close()
        self.client.wait()
        subprocess.run(
            [self.ray, "stop", "--force"],
            check=False,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


MLFLOW = """
import sys
from mlflow.tracking import MlflowClient
from mlflow.entities import Metric
c = MlflowClient("http://127.0.0.1:5055")
steps = int(sys.argv[1])
run = c.create_run("0").info.run_id
all = [Metric(f"m{k:02d}", s * 0.5 + k, 1000 + s, s) for s in range(steps) for k in range(25)]
print("ready", flush=True)
sys.stdin.readline()
for i in range(0, len(all), 1000): c.log_batch(run, metrics=all[i:i + 1000])
c.set_terminated(run)
assert len(c.get_metric_history(run, "m07")) == steps
"""


class MLflow:
    name = "MLflow"

    def __init__(self, peers, home):
        self.python = str(peers / "bin/python")
        self.env = {
            **os.environ,
            "PATH": f"{peers}/bin:{os.environ['PATH']}",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        self.server = subprocess.Popen(
            [
                str(peers / "bin/mlflow"),
                "server",
                "--backend-store-uri",
                f"sqlite:///{home}/m.db",
                "--port",
                "5055",
                "--workers",
                "2",
            ],
            env=self.env,
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        import urllib.request

        def there():
            try:
                return (
                    urllib.request.urlopen(
                        "http://127.0.0.1:5055/health", timeout=2
                    ).status
                    == 200
                )
            except OSError:
                return False

        until("MLflow's server is there", there, 0.2)

    def metrics(self, runs, steps):
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
            "text": True,
        }
        all_of = [
            subprocess.Popen(
                [self.python, "-c", MLFLOW, str(steps)], env=self.env, **pipes
            )
            for _ in range(runs)
        ]
        assert all(p.stdout.readline() == "ready\n" for p in all_of)
        begin = time.perf_counter()  # its clients have started
        for p in all_of:
            p.stdin.write("go\n")
            p.stdin.flush()
        assert not any(p.wait() for p in all_of)
        return runs * steps * 25 / (time.perf_counter() - begin)

    def end(self):
        os.killpg(self.server.pid, 15)
        self.server.wait()


def synced(home):
    """How long a write of 4 KiB takes that is on the disk."""
    took = []
    with open(home / "synced", "wb") as f:
        for _ in range(50):
            f.write(bytes(4096))
            begin = time.perf_counter()
            f.flush()
            os.fsync(f.fileno())
            took.append(1e3 * (time.perf_counter() - begin))
    row("a synced write of 4 KiB", [statistics.median(took)], "ms")


def turns(peers, rounds, of, what, unit):
    all_of = {p.name: [] for p in peers}
    for _ in range(rounds):
        for p in peers:
            all_of[p.name].append(of(p))
    for name, seen in all_of.items():
        ratio = statistics.median(all_of["hora"]) / statistics.median(seen)
        row(
            f"{what}: {name}",
            seen,
            unit,
            "" if name == "hora" else f"hora's is {ratio:.3g}×",
        )


def main():
    programs, peers, parts = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        sys.argv[3:] or ["first", "trues", "metrics"],
    )
    with tempfile.TemporaryDirectory(prefix="hora-bench-") as base:
        made = []

        def start(make, name):
            (Path(base) / name).mkdir()
            made.append(make(Path(base) / name))
            return made[-1]

        try:
            hora = start(lambda home: Hora(programs, home), "h")
            synced(Path(base))
            print("| | median | each | |\n| --- | --- | --- | --- |")
            if set(parts) & {"first", "trues"}:
                slurm, ray = (
                    start(Slurm, "s"),
                    start(lambda home: Ray(peers, home), "r"),
                )
                all_of = [hora, slurm, Srun(slurm), ray]
                for p in all_of:
                    p.first()  # warm
                if "first" in parts:
                    turns(all_of, 9, lambda p: p.first(), "submit to first line", "s")
                if "trues" in parts:
                    turns(
                        all_of,
                        3,
                        lambda p: p.trues(30 if p is ray else 200),
                        "200 jobs of true, 8 slots (Ray: 30)",
                        "jobs/s",
                    )
                for p in (ray, slurm):
                    p.end()
                    made.remove(p)
            if "metrics" in parts:
                two = [hora, start(lambda home: MLflow(peers, home), "m")]
                turns(
                    two,
                    3,
                    lambda p: p.metrics(4, 2000),
                    "4 runs of 25 metrics with 2,000 points, at once",
                    "points/s",
                )
        finally:
            for p in reversed(made):
                p.end()


if __name__ == "__main__":
    threading.stack_size(1 << 20)
    main()
