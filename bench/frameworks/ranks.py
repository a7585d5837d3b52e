"""Two bound ranks for one part of frameworks_bench.py, and what its parts share: turns that are timed and checked,
medians, agreement."""

from __future__ import annotations

import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import WARM, Wrong

ROOT = Path(__file__).resolve().parents[2]
LINKS = 20  # operations of a chain
SIZES = {"4 B": 4, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
TIMES = {4: 20, 64 << 10: 10, 1 << 20: 5}  # chains a round


def folders() -> list[str]:
    """Where `make deps` has put the frameworks, those that are there."""
    found = []
    for name in ("tensorflow", "jax", "keras-2"):
        said = subprocess.run(["sh", "tools/deps.sh", "path", name], cwd=ROOT, capture_output=True, text=True, check=True)
        if not os.path.exists(os.path.join(said.stdout.strip(), ".complete")):
            sys.exit(f"frameworks_bench: {name} is not installed: run make deps")
        found.append(said.stdout.strip())
    return found


def around(more: dict[str, str]) -> dict[str, str]:
    """The environment of every rank: frameworks on the CPU with one thread each."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HORA_", "HOROVOD_")) or k == "HORA_LIBRARY"}
    paths = [str(ROOT / "bench"), str(ROOT / "python"), str(ROOT / "python" / "compat"), *filter(None, [env.get("PYTHONPATH", "")]), *folders()]
    return env | {
        "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "HORA_START_TIMEOUT": "120",
    } | more  # fmt: skip


def free_ports(n: int) -> list[int]:
    held = [socket.socket() for _ in range(n)]
    try:
        for s in held:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


def start(part: str, rounds: int, more: dict[str, str] | None = None) -> list[dict]:
    """The lines of one part, whose ranks are two processes of this program, each bound to a core."""
    ports = free_ports(4)
    with tempfile.TemporaryDirectory() as folder:
        secret = os.path.join(folder, "secret")
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(secrets.token_hex(32))
        base = around(more or {}) | {
            "HORA_SIZE": "2", "HORA_LOCAL_SIZE": "2", "HORA_ADDR": f"127.0.0.1:{ports[0]}", "HORA_SERVE": "1",
            "HORA_JOB": "frameworks-bench",
            "HORA_SECRET_FILE": secret, "BENCH_PART": part, "BENCH_ROUNDS": str(rounds),
            "BENCH_LINES": os.path.join(folder, "lines"),
            "BENCH_JAX": f"127.0.0.1:{ports[1]}",
        }  # fmt: skip
        cores = sorted(os.sched_getaffinity(0))
        ranks = []
        for r in range(2):
            cluster = {"cluster": {"worker": [f"127.0.0.1:{p}" for p in ports[2:]]}, "task": {"type": "worker", "index": r}}
            env = base | {"HORA_RANK": str(r), "HORA_LOCAL_RANK": str(r), "BENCH_CLUSTER": json.dumps(cluster)}
            core = cores[r % len(cores)]
            bind = lambda core=core: os.sched_setaffinity(0, {core})  # noqa: E731
            ranks.append(subprocess.Popen([sys.executable, str(ROOT / "bench" / "frameworks_bench.py")], env=env, preexec_fn=bind))
        codes = [p.wait() for p in ranks]
        if any(codes):
            raise Wrong(f"part {part}: its ranks ended with {codes}")
        with open(os.path.join(folder, "lines")) as f:
            return json.load(f)


class Teller:
    """What a part has measured: rank 0 prints it at once and leaves it to the parent."""

    def __init__(self) -> None:
        self.lines: list[dict] = []

    def say(self, **line: object) -> None:
        import hora

        self.lines.append(line)
        if hora.rank() == 0:
            print(text_of(line), flush=True)

    def leave(self) -> None:
        import hora

        if hora.rank() == 0:
            with open(os.environ["BENCH_LINES"], "w") as f:
                json.dump(self.lines, f)


def text_of(line: dict) -> str:
    """A line of the report."""
    goal = f", goal {line['goal']}: {'reached' if line['reached'] else 'SHORT'}" if line.get("goal") is not None else ""
    return f"{line['what']:42} {line['value']}{goal}"


def agree(faults: list[str], what: str) -> None:
    """Raises on all ranks what one of them has seen: a rank that went on alone would wait."""
    import hora

    every = [f"rank {r}: {f}" for r, fs in enumerate(hora.allgather_object(faults)) for f in fs]
    if every:
        raise Wrong(f"{what}: " + "; ".join(every))


def turns(call, give, take, data, scale: float, times: int, first: int) -> tuple[list[float], bool]:
    """As checks.timed, for calls that make new arrays: `give` makes the input of one turn, `take` reads the result."""
    import hora

    took, right = [], True
    clock = time.perf_counter
    for turn in range(-WARM, times):
        data.fill(first + turn)
        given = give(data.arrays[0])
        hora.barrier()
        begun = clock()
        got = take(call(given))
        ended = clock()
        data.arrays[0][...] = got
        right &= data.right(first + turn, scale, turn < 0 or turn == times - 1)
        if turn >= 0:
            took.append(ended - begun)
    return took, right


def quartiles(ratios: list[float]) -> tuple[float, float, float]:
    if len(ratios) < 2:
        return (ratios[0],) * 3
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high


def compare(
    teller: Teller, what: str, ours: list[float], theirs: list[float], against: str, goal: float | None
) -> None:
    """How many times as fast, by rounds: the median, and the quartiles beside it."""
    low, middle, high = quartiles([t / o for o, t in zip(ours, theirs, strict=True)])
    teller.say(what=f"{what} vs {against}", value=f"{middle:.2f} x ({low:.2f}-{high:.2f})", goal=goal, reached=goal is None or middle >= goal)
