"""What communication costs a PyTorch program: hora, Horovod's names on hora, DDP on hora and DDP on gloo.

Starts two ranks, each bound to one core, and measures in interleaved rounds; the two ranks that train without
communication are the reference, per step the slower of the two. After each round the ranks' weights must be equal.
Times are taken under SCHED_RR, in bursts.

    PYTHONPATH=python:python/compat python bench/torch_bench.py [--rounds 7] [--only tiny,all_reduce] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {"tiny": 40, "mlp": 12, "cnn": 5}  # steps a round
BYTES = {"4 B": 4, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
CALLS = {4: 300, 4 << 10: 300, 64 << 10: 100, 1 << 20: 25, 64 << 20: 1}


def model_of(name: str):
    import torch
    from torch import nn

    torch.manual_seed(1)
    if name == "tiny":
        layers = [m for _ in range(6) for m in (nn.Linear(32, 32), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(32, 10)), torch.randn(64, 32)
    if name == "mlp":
        layers = [m for _ in range(3) for m in (nn.Linear(512, 512), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(512, 10)), torch.randn(64, 512)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    return net, torch.randn(64, 3, 32, 32)


def realtime(on: bool) -> None:
    """All threads of this process to SCHED_RR or back; without the right to, nothing changes."""
    how, prio = (os.SCHED_RR, 5) if on else (os.SCHED_OTHER, 0)
    for task in os.listdir("/proc/self/task"):
        try:
            os.sched_setscheduler(int(task), how, os.sched_param(prio))
        except (PermissionError, ProcessLookupError):
            pass


class Trainer:
    """One variant of one model: its step, as a function."""

    def __init__(self, name: str, variant: str, gloo) -> None:
        import torch
        from torch.nn.functional import cross_entropy
        from torch.nn.parallel import DistributedDataParallel

        import hora
        import hora.torch
        import horovod.torch as hvd

        model, x = model_of(name)
        y = torch.arange(64) % 10
        x = x + hora.rank()
        opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        if variant == "hora.torch":
            opt = hora.torch.DistributedOptimizer(opt, model.named_parameters())
        elif variant == "horovod.torch":
            opt = hvd.DistributedOptimizer(opt, model.named_parameters())
        elif variant.startswith("ddp"):
            model = DistributedDataParallel(model, process_group=gloo if "gloo" in variant else None, gradient_as_bucket_view=True)
            if "accelerate" in variant:
                hora.torch.accelerate(model)
            elif "nothing" in variant:  # what DDP itself costs
                model.register_comm_hook(None, nothing)
        self.model = model

        def step() -> None:
            opt.zero_grad()
            cross_entropy(model(x), y).backward()
            opt.step()

        self.step = step

    def equal(self) -> bool:
        import torch

        import hora

        flat = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])
        every = hora.allgather(flat).view(hora.size(), -1)
        return bool(torch.equal(every[0], every[1]))


def nothing(state, bucket):
    import torch

    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def burst(work, times: int) -> list[float]:
    """Seconds of each of `times` calls, both ranks starting together."""
    import hora

    clock = time.perf_counter
    out = [0.0] * (times + 1)
    realtime(True)
    try:
        hora.barrier()
        out[0] = clock()
        for i in range(1, times + 1):
            work()
            out[i] = clock()
    finally:
        realtime(False)
    return [b - a for a, b in zip(out, out[1:], strict=False)]


def train(name: str, rounds: int, gloo, say) -> None:
    """The shares of the free processes' throughput that each variant keeps."""
    import hora

    variants = ["free", "hora.torch", "horovod.torch", "ddp hora", "ddp hora accelerate", "ddp nothing", "ddp gloo"]
    trainers = {v: Trainer(name, v, gloo) for v in variants}
    for t in trainers.values():
        for _ in range(10):
            t.step()
    kept: dict[str, list[float]] = {v: [] for v in variants}
    took: dict[str, list[float]] = {v: [] for v in variants}
    for _ in range(rounds):
        for v, t in trainers.items():
            mine = burst(t.step, MODELS[name])
            a, b = hora.allgather_object(mine)
            seconds = sum(map(max, a, b)) if v == "free" else max(sum(a), sum(b))
            took[v].append(seconds / len(mine))
            kept[v].append(took["free"][-1] / took[v][-1])
            assert v in ("free", "ddp nothing") or t.equal(), f"{name}: the ranks' weights differ under {v}"
    for v in variants:
        over = statistics.median(g / s for g, s in zip(took["ddp gloo"], took[v], strict=True))
        say({"kind": "train", "model": name, "variant": v, "us": statistics.median(took[v]) * 1e6,
             "kept": statistics.median(kept[v]), "low": min(kept[v]), "high": max(kept[v]), "over_gloo": over})  # fmt: skip


def calls(rounds: int, gloo, say) -> None:
    """Blocking all-reduces, and 32 of 64 KiB in flight."""
    import torch
    import torch.distributed as dist

    import hora
    import horovod.torch as hvd

    for label, nbytes in BYTES.items():
        tensors = {v: torch.ones(nbytes // 4) for v in ("dist hora", "hvd", "hvd named", "dist gloo")}
        work = {
            "dist hora": lambda t: dist.all_reduce(t, dist.ReduceOp.MAX),
            "hvd": lambda t: hvd.allreduce_(t),
            "hvd named": lambda t: hvd.allreduce_(t, name="t"),
            "dist gloo": lambda t: dist.all_reduce(t, dist.ReduceOp.MAX, group=gloo),
        }
        measure(label, work, tensors, CALLS[nbytes], rounds, hora, say)
    many = {v: [torch.ones(16 << 10) for _ in range(32)] for v in ("dist hora", "hvd", "dist gloo")}

    def torch_async(ts, group=None):
        for w in [dist.all_reduce(t, dist.ReduceOp.MAX, group=group, async_op=True) for t in ts]:
            w.wait()

    def hvd_async(ts):
        for h in [hvd.allreduce_async_(t, name=f"f.{i}") for i, t in enumerate(ts)]:
            hvd.synchronize(h)

    work = {"dist hora": torch_async, "hvd": hvd_async, "dist gloo": lambda ts: torch_async(ts, gloo)}
    measure("32 x 64 KiB", work, many, 10, rounds, hora, say)


def measure(label, work, arguments, times, rounds, hora, say) -> None:
    took: dict[str, list[float]] = {v: [] for v in work}
    for v, f in work.items():
        for _ in range(3):
            f(arguments[v])
    for _ in range(rounds):
        for v, f in work.items():
            mine = burst(lambda f=f, x=arguments[v]: f(x), times)
            every = hora.allgather_object(statistics.median(mine))
            took[v].append(max(every))
    for v in work:
        over = statistics.median(g / s for g, s in zip(took["dist gloo"], took[v], strict=True))
        say({"kind": "call", "size": label, "variant": v, "us": statistics.median(took[v]) * 1e6, "low": min(took[v]) * 1e6,
             "high": max(took[v]) * 1e6, "over_gloo": over})  # fmt: skip
    for v, x in arguments.items():
        one = x[0] if isinstance(x, list) else x
        assert abs(one[0].item() - 1) < 1e-6 and one[-1].item() == one[0].item(), (label, v, one[0].item())


def rank_main(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    import hora
    import horovod.torch as hvd

    dist.init_process_group("hora")
    hvd.init()
    gloo = dist.new_group(backend="gloo")
    lines = []

    def say(line: dict) -> None:
        lines.append(line)
        if hora.rank() == 0:
            if line["kind"] == "train":
                print(f"{line['model']:5} {line['variant']:20} {line['us']:9.1f} us/step  kept {line['kept'] * 100:5.1f} % "
                      f"({line['low'] * 100:.0f}-{line['high'] * 100:.0f})  {line['over_gloo']:.2f} x ddp gloo", flush=True)  # fmt: skip
            else:
                print(f"{line['size']:12} {line['variant']:10} {line['us']:9.1f} us ({line['low']:.1f}-{line['high']:.1f})  "
                      f"{line['over_gloo']:.2f} x gloo", flush=True)  # fmt: skip

    only = options.only.split(",")
    for name in MODELS:
        if name in only:
            train(name, options.rounds, gloo, say)
    if "all_reduce" in only:
        calls(options.rounds, gloo, say)
    if hora.rank() == 0 and options.json:
        with open(options.json, "w") as f:
            json.dump(lines, f, indent=1)
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="tiny,mlp,cnn,all_reduce")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if "HORA_RANK" in os.environ:
        rank_main(options)
        return 0
    ports = []
    for _ in range(2):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
    with tempfile.NamedTemporaryFile("w", suffix=".secret") as secret:
        secret.write(secrets.token_hex(32))
        secret.flush()
        base = dict(os.environ) | {
            "HORA_SIZE": "2", "HORA_LOCAL_SIZE": "2", "HORA_ADDR": f"127.0.0.1:{ports[0]}", "HORA_SERVE": "1", "HORA_JOB": "torch-bench",
            "HORA_SECRET_FILE": secret.name, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[1]),
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        }  # fmt: skip
        cores = sorted(os.sched_getaffinity(0))
        ranks = []
        for r in range(2):
            env = base | {"HORA_RANK": str(r), "HORA_LOCAL_RANK": str(r), "RANK": str(r), "LOCAL_RANK": str(r)}
            command = [sys.executable, sys.argv[0], *sys.argv[1:]]
            core = cores[r % len(cores)]
            ranks.append(subprocess.Popen(command, env=env, preexec_fn=lambda core=core: os.sched_setaffinity(0, {core})))
        codes = [p.wait() for p in ranks]
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main())
