"""hora from Python against torch.distributed's gloo and mpi4py, in the same two processes, in turns.

    python bench/python_bench.py [--rounds 15] [--write bench/results/python_<hardware>_<date>.md]

Starts two ranks with mpirun, each bound to a core. In every round each library reduces the same array some times in
place; results are checked before each timed part; what is reported are medians over the rounds, and medians of the
rounds' ratios. While it is timed, every thread of both processes is in one real-time scheduler class (as root), so
that other programs of the machine do not count; it leaves the class between the parts.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = {4: 1000, 4096: 500, 1 << 20: 20, 64 << 20: 1}  # bytes → operations in one part
GOALS = {
    "torch": {
        4: "≥ 40× or ≤ 2.5 µs",
        4096: "≥ 25× or ≤ 4 µs",
        1 << 20: "≥ 2×",
        64 << 20: "≥ 2×",
    },
    "registered": {1 << 20: "≥ 5×", 64 << 20: "≥ 5×"},
    "numpy": {4: "≥ 1×", 4096: "≥ 1×", 1 << 20: "≥ 1×", 64 << 20: "≥ 2×"},
}
PEERS = {"torch": "gloo", "registered": "gloo", "numpy": "mpi4py"}


def real_time(on: bool) -> None:
    policy, param = (os.SCHED_RR, os.sched_param(5)) if on else (os.SCHED_OTHER, os.sched_param(0))
    for task in os.listdir("/proc/self/task"):
        try:
            os.sched_setscheduler(int(task), policy, param)
        except (PermissionError, ProcessLookupError):
            pass


def rank_main(rounds: int) -> None:
    import mpi4py
    import numpy as np

    mpi4py.rc.thread_level = "funneled"
    import hora
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    torch.set_num_threads(1)
    hora.init()
    store = world.bcast(tempfile.mktemp(prefix="gloo-") if world.rank == 0 else None)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=world.rank, world_size=world.size)
    times: dict[str, dict[int, list[float]]] = {}

    def part(name: str, nbytes: int, call, fill, value) -> None:
        fill(world.rank + 1.0)
        call()
        assert value() == 3.0, f"{name}: {nbytes} bytes: a wrong sum: {value()}"
        fill(0.0)
        count = SIZES[nbytes]
        world.Barrier()
        real_time(True)
        call()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        took = (time.perf_counter() - begun) / count
        real_time(False)
        assert value() == 0.0
        times.setdefault(name, {}).setdefault(nbytes, []).append(took)
        world.Barrier()
        time.sleep(0.01)

    def turns(nbytes: int) -> None:
        n = nbytes // 4
        a, b, c = np.zeros(n, np.float32), torch.zeros(n), hora.buffer(n).torch()
        allreduce, reduce_, mpi = hora.allreduce, dist.all_reduce, world.Allreduce

        def ends(x) -> float:
            first, last = float(x[0]), float(x[-1])
            return first if first == last else float("nan")

        for _ in range(rounds):
            part(
                "hora torch",
                nbytes,
                lambda: allreduce(b, out=b),
                b.fill_,
                lambda: ends(b),
            )
            part("gloo torch", nbytes, lambda: reduce_(b), b.fill_, lambda: ends(b))
            part(
                "hora registered",
                nbytes,
                lambda: allreduce(c, out=c),
                c.fill_,
                lambda: ends(c),
            )
            part(
                "hora numpy",
                nbytes,
                lambda: allreduce(a, out=a),
                a.fill,
                lambda: ends(a),
            )
            part(
                "mpi4py numpy",
                nbytes,
                lambda: mpi(MPI.IN_PLACE, a),
                a.fill,
                lambda: ends(a),
            )

    for nbytes in SIZES:
        turns(nbytes)
    if world.rank == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


def start_up(repeats: int) -> dict[str, list[float]]:
    """Seconds from the start of two processes, bound and in the real-time class, to their end: with hora's first sum, and with
    the framework's import alone."""
    import hora

    programs = {
        "numpy alone": "import numpy",
        "numpy with hora": "import numpy, hora; hora.init(); assert hora.allreduce(numpy.ones(1))[0] == 2",
        "torch alone": "import torch",
        "torch with hora": "import torch, hora; hora.init(); assert hora.allreduce(torch.ones(1))[0] == 2",
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.touch(0o600)
        secret.write_text(os.urandom(32).hex())
        # As pip installs it, compiled: a tree's files may be compiled at each start.
        shutil.copytree(Path(hora.__file__).parent, Path(folder) / "hora", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder, quiet=1)
        path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        for i in range(repeats):
            for name, program in programs.items():
                common = {
                    "HORA_SIZE": "2", "HORA_LOCAL_SIZE": "2", "HORA_ADDR": f"127.0.0.1:{20000 + os.getpid() % 20000 + i}",
                    "HORA_SERVE": "1", "HORA_SECRET_FILE": str(secret), "HORA_JOB": f"start-{i}", "PYTHONPATH": path,
                }  # fmt: skip
                begun = time.perf_counter()
                both = [
                    subprocess.Popen(
                        ["taskset", "-c", str(r), sys.executable, "-c", program],
                        env=os.environ | common | {"HORA_RANK": str(r), "HORA_LOCAL_RANK": str(r)},
                        preexec_fn=lambda: real_time(True),
                    )
                    for r in range(2)
                ]
                codes = [p.wait() for p in both]
                assert not any(codes), codes
                times[name].append(time.perf_counter() - begun)
    return times


def unit(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def report(
    times: dict[str, dict[str, list[float]]],
    starts: dict[str, list[float]],
    rounds: int,
) -> str:
    median = statistics.median
    lines = [
        f"Two ranks on two cores, {rounds} rounds in turns, in place, float32 sums; medians, and medians of the rounds' ratios.",
        "",
        "| array | bytes | hora | other | other's time | ratio | goal |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, goals in GOALS.items():
        peer = f"{PEERS[kind]} {'numpy' if kind == 'numpy' else 'torch'}"
        for nbytes in SIZES:
            ours, theirs = times[f"hora {kind}"][str(nbytes)], times[peer][str(nbytes)]
            ratio = median(t / o for o, t in zip(ours, theirs, strict=True))
            lines.append(
                f"| {kind} | {nbytes} | {unit(median(ours))} | {PEERS[kind]} | {unit(median(theirs))} | {ratio:.1f}× | {goals.get(nbytes, '')} |"
            )
    return "\n".join([*lines, "", start_table(starts)]) + "\n"


def start_table(starts: dict[str, list[float]]) -> str:
    median = statistics.median
    lines = [
        "| start to end of two processes | median | more than the import alone | goal |",
        "| --- | --- | --- | --- |",
    ]
    for framework, goal in (("numpy", "≤ 40 ms"), ("torch", "≤ 60 ms")):
        alone, with_hora = (
            starts[f"{framework} alone"],
            starts[f"{framework} with hora"],
        )
        extra = median(w - a for a, w in zip(alone, with_hora, strict=True))
        lines.append(f"| import {framework}, init, first sum | {unit(median(with_hora))} | {unit(extra)} | {goal} |")
    return "\n".join(lines)


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=15)
    a.add_argument("--starts", type=int, default=7)
    a.add_argument("--only-starts", action="store_true")
    a.add_argument(
        "--write",
        type=Path,
        help="the page whose tables are written anew, after its marker",
    )
    a.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = a.parse_args()
    if args.rank:
        rank_main(args.rounds)
        return
    if args.only_starts:
        print(start_table(start_up(args.starts)))
        return
    done = subprocess.run(
        [shutil.which("mpirun.openmpi") or "mpirun", "--allow-run-as-root", "-np", "2", "--bind-to", "core",
         sys.executable, __file__, "--rank", "--rounds", str(args.rounds)],
        stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"MPI4PY_MPIABI": "openmpi"},
    )  # fmt: skip
    text = report(json.loads(done.stdout.splitlines()[-1]), start_up(args.starts), args.rounds)
    print(text)
    if args.write:
        marker = "<!-- measured -->\n"
        before = args.write.read_text().split(marker)[0] if args.write.exists() else "# hora from Python\n\n"
        args.write.write_text(before + marker + text)


if __name__ == "__main__":
    main()
