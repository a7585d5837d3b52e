"""hora from Python against torch.distributed's gloo and mpi4py, in the same two processes, in turns.

    python bench/python_bench.py [--rounds 15] [--write bench/results/python_<hardware>_<date>.md]

Starts two ranks with mpirun, each bound to a core. In every round each library reduces an array some times in place.
Before each timed call the array is rewritten and the ranks meet; every result is checked, as bench/checks.py says; what
is reported are medians of the slower rank over the rounds, and medians and quartiles of the rounds' ratios. gloo runs
over loopback TCP: it has no shared memory. mpi4py runs under each of Open MPI's settings below, and the one that is
best at a size is the one reported. While it is timed, every thread of both processes is in one real-time scheduler
class (as root), so that other programs of the machine do not count; it leaves the class between the parts.
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

from checks import Data, Wrong, timed

# mpirun's flags: those of bench/settings.go, which a test there holds these to.
SETTINGS = {
    "openmpi": "",
    "openmpi-noreads": "--mca btl_vader_single_copy_mechanism none",
    "openmpi-noreads-larger": "--mca btl_vader_single_copy_mechanism none --mca btl_vader_eager_limit 65536 --mca btl_vader_max_send_size 131072",
    "openmpi-ring": "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 --mca coll_tuned_allreduce_algorithm_segmentsize 524288",
    "openmpi-ring-noreads": "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 --mca coll_tuned_allreduce_algorithm_segmentsize 524288 --mca btl_vader_single_copy_mechanism none",
    "openmpi-ring-noreads-larger": "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 --mca coll_tuned_allreduce_algorithm_segmentsize 524288 --mca btl_vader_single_copy_mechanism none --mca btl_vader_eager_limit 65536 --mca btl_vader_max_send_size 131072",
    "openmpi-rabenseifner": "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 6",
    "openmpi-rabenseifner-noreads-larger": "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 6 --mca btl_vader_single_copy_mechanism none --mca btl_vader_eager_limit 65536 --mca btl_vader_max_send_size 131072",
    "openmpi-ucx": "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any",
}

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


def contestants(world, nbytes: int, only: str) -> dict[str, tuple]:
    """By name: the call, and the array that it sums in place. With "numpy" those alone, and torch is not imported."""
    import hora
    import numpy as np
    from mpi4py import MPI

    n = nbytes // 4
    allreduce, mpi, a = hora.allreduce, world.Allreduce, np.zeros(n, np.float32)
    plain = {"hora numpy": (lambda: allreduce(a, out=a), a), "mpi4py numpy": (lambda: mpi(MPI.IN_PLACE, a), a)}
    if only == "numpy":
        return plain
    import torch
    import torch.distributed as dist

    reduce_, b, c = dist.all_reduce, torch.zeros(n), hora.buffer(n).torch()
    return {
        "hora torch": (lambda: allreduce(b, out=b), b.numpy()),
        "gloo torch": (lambda: reduce_(b), b.numpy()),
        "hora registered": (lambda: allreduce(c, out=c), c.numpy()),
        **plain,
    }


def part(world, name: str, nbytes: int, call, array, turn: int) -> float:
    """Seconds of a call, the median of the slower rank; an error, on all ranks, if one of them saw a wrong result."""
    data = Data([array], world.rank, world.size)
    real_time(True)
    try:
        took, right = timed(call, data, 1.0, SIZES[nbytes], turn, world.Barrier)
    finally:
        real_time(False)
    if not all(world.allgather(right)):
        raise Wrong(f"{name}: {nbytes} bytes: a wrong sum")
    time.sleep(0.01)
    return max(world.allgather(statistics.median(took)))


def join(only: str):
    """Every library's group of the same two processes."""
    import mpi4py

    mpi4py.rc.thread_level = "funneled"
    import hora
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    hora.init()
    if only != "numpy":
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        store = world.bcast(tempfile.mktemp(prefix="gloo-") if world.rank == 0 else None)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=world.rank, world_size=world.size)
    return world


def rank_main(rounds: int, only: str) -> None:
    world = join(only)
    times: dict[str, dict[int, list[float]]] = {}
    for nbytes in SIZES:
        work = contestants(world, nbytes, only)
        for i in range(rounds):
            for name, (call, array) in work.items():
                took = part(world, name, nbytes, call, array, i * (SIZES[nbytes] + 5))
                times.setdefault(name, {}).setdefault(nbytes, []).append(took)
    if world.rank == 0:
        print(json.dumps(times))
    if only != "numpy":
        import torch.distributed as dist

        dist.destroy_process_group()


def start_up(repeats: int) -> dict[str, list[float]]:
    """Seconds from the start of two processes, bound and in the real-time class, to their end: with hora's first sum,
    and with the framework's import alone."""
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
                    "HORA_SIZE": "2", "HORA_LOCAL_SIZE": "2",
                    "HORA_ADDR": f"127.0.0.1:{20000 + os.getpid() % 20000 + i}",
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


def report(times: dict[str, dict], starts: dict[str, list[float]], rounds: int) -> str:
    """`times` is by setting of Open MPI, as rank_main prints it; what is not mpi4py's comes from the first."""
    median = statistics.median
    lines = [
        f"Two ranks, each bound to a core, under real-time scheduling; {rounds} rounds in turns, in place, float32 sums; medians, and medians and quartiles",
        "of the rounds' ratios. gloo over loopback TCP; mpi4py on Open MPI at the setting that is best at the size; registered is `hora.buffer`.",
        "",
        "| array | bytes | hora | other | other's time | ratio | goal |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    dropped = []
    for kind, goals in GOALS.items():
        peer = f"{PEERS[kind]} {'numpy' if kind == 'numpy' else 'torch'}"
        for nbytes in SIZES:
            found = {}
            for setting, of in times.items():
                if peer in of:
                    ours, theirs = of[f"hora {kind}"][str(nbytes)], of[peer][str(nbytes)]
                    found[setting] = (ours, theirs, [t / o for o, t in zip(ours, theirs, strict=True)])
            best = min(found, key=lambda s: median(found[s][2]))
            ours, theirs, ratios = found[best]
            low, mid, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            called = f"mpi4py, {best}" if kind == "numpy" else f"{PEERS[kind]}, loopback TCP"
            lines.append(
                f"| {kind} | {nbytes} | {unit(median(ours))} | {called} | {unit(median(theirs))} | {mid:.1f}× ({low:.1f}–{high:.1f}) | {goals.get(nbytes, '')} |"
            )
            others = [f"{s} {median(found[s][2]):.1f}×" for s in found if s != best]
            if others:
                dropped.append(f"- {nbytes} bytes: {', '.join(others)}")
    if dropped:
        lines += ["", "Under Open MPI's other settings mpi4py is further behind:", "", *dropped]
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


def under(flags: str, rounds: int, only: str) -> dict:
    """What both ranks measured of those whose name has `only` in it, under some flags of mpirun."""
    done = subprocess.run(
        [shutil.which("mpirun.openmpi") or "mpirun", "--allow-run-as-root", "-np", "2", "--bind-to", "core", *flags.split(),
         sys.executable, __file__, "--rank", only, "--rounds", str(rounds)],
        stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"MPI4PY_MPIABI": "openmpi"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


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
    a.add_argument("--rank", help=argparse.SUPPRESS)
    args = a.parse_args()
    if args.rank is not None:
        rank_main(args.rounds, args.rank)
        return
    if args.only_starts:
        print(start_table(start_up(args.starts)))
        return
    times = {name: under(flags, args.rounds, "numpy" if flags else "") for name, flags in SETTINGS.items()}
    text = report(times, start_up(args.starts), args.rounds)
    print(text)
    if args.write:
        marker = "<!-- measured -->\n"
        before = args.write.read_text().split(marker)[0] if args.write.exists() else "# hora from Python\n\n"
        args.write.write_text(before + marker + text)


if __name__ == "__main__":
    main()
