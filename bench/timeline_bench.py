"""What the timeline costs: steps of a tiny model with it on against off, turn by turn in one pair of processes.

    HOROVOD_TIMELINE=DYNAMIC hora run -np 2 --bind core python bench/timeline_bench.py [pairs] [steps]

Each turn is a number of steps with the timeline and as many without, in changing order; stopping, which writes the rest
of the file, counts as part of the steps with it. Ten steps before must lead where one process on the joined batch gets,
within checks.BOUND, and the ranks' weights be equal at the end. As root the turns run under SCHED_RR with a rest after
each, so that other programs do not disturb them.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from checks import BOUND, apart


def tiny() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(32, 32), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 10))


def alone(on: bool) -> None:
    """Put all threads of this process before others', or back."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            policy, priority = (os.SCHED_RR, 5) if on else (os.SCHED_OTHER, 0)
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 600
    fused = os.environ.get("SEPARATE", "0") == "0"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    hvd.init()
    rank = hvd.rank()
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    model = tiny()
    plain = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters()) if fused else plain
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    batches = [(torch.randn(64, 32), torch.randint(0, 10, (64,))) for _ in range(hvd.size())]  # other ones on each rank
    x, y = batches[rank]
    loss_of = torch.nn.CrossEntropyLoss()
    names = [n for n, _ in model.named_parameters()]

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        if not fused:  # one named operation for each gradient
            handles = [hvd.allreduce_async_(p.grad, name=n) for n, p in zip(names, model.parameters(), strict=True)]
            for h in handles:
                hvd.synchronize(h)
        optimizer.step()

    def weights() -> list:
        return [p.detach().numpy().copy() for p in model.parameters()]

    start, joined = weights(), copy.deepcopy(model)
    reference = torch.optim.SGD(joined.parameters(), lr=0.01, momentum=0.9)
    for _ in range(10):
        step()
        reference.zero_grad()
        loss_of(joined(torch.cat([b[0] for b in batches])), torch.cat([b[1] for b in batches])).backward()
        reference.step()
    far = apart(start, weights(), [p.detach().numpy() for p in joined.parameters()])
    assert max(hvd.allgather_object(far)) <= BOUND, f"ten steps end {far:.4f} of their way from one process on the joined batch"

    def block(on: bool, path: str) -> float:
        if on:
            hvd.start_timeline(path)
        hvd.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        if on:
            hvd.stop_timeline()
        hvd.barrier()
        return time.perf_counter() - began

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "timeline.json")
        for on in (False, True):
            block(on, path)
        ratios, off_times, on_times = [], [], []
        for turn in range(pairs):
            alone(True)
            took = {}
            for on in (False, True) if turn % 2 == 0 else (True, False):
                took[on] = block(on, path)
            alone(False)
            ratios.append(took[True] / took[False])
            off_times.append(took[False] / steps)
            on_times.append(took[True] / steps)
            time.sleep(sum(took.values()))
        if rank == 0:
            records = json.loads(Path(path).read_text())
            ops = sum(r.get("name", "") == "ALLREDUCE" for r in records)
            low, mid, high = statistics.quantiles(ratios, n=4)
            print(
                f"{'one operation per bucket' if fused else 'one operation per gradient'}: {pairs} turns of {steps} steps: "
                f"off {1e6 * statistics.median(off_times):.0f} us, on {1e6 * statistics.median(on_times):.0f} us per step, "
                f"ratio median {mid:.3f} quartiles {low:.3f}-{high:.3f}; {ops} operations, {Path(path).stat().st_size} bytes in the last file"
            )
            assert ops >= steps, "the last file does not hold every step"
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    every = hvd.allgather(flat).view(hvd.size(), -1)
    assert bool((every == every[0]).all()), "the ranks' weights differ"
    hvd.shutdown()


if __name__ == "__main__":
    main()
