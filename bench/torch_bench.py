"""What communication costs a PyTorch program: hora, Horovod's names on hora, DDP on hora, and over gloo DDP and one
flat all_reduce by hand.

Starts two ranks, each bound to one core, and measures in interleaved rounds; the two ranks that train without
communication are the reference, per step the slower of the two. gloo runs over loopback TCP: it has no shared memory.
The ranks' weights must be equal after each round, and at the beginning and the end those of DDP on gloo and of one
process on the joined batch, within checks.BOUND. Calls rewrite their inputs and are checked as bench/checks.py says.
Times are taken under SCHED_RR, in bursts.

    PYTHONPATH=python:python/compat python bench/torch_bench.py [--rounds 7] [--only tiny,all_reduce] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from checks import BOUND, Data, Wrong, apart, timed

MODELS = {"tiny": 40, "mlp": 12, "cnn": 5}  # steps a round
BYTES = {"4 B": 4, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
# hora.torch's share of no communication, and how many times as fast as the better of the two over gloo; 0.98 of a DDP
# that communicates nothing will do for the second of cnn, where gloo leaves less room.
GOALS = {"tiny": (0.85, 1.5), "mlp": (0.93, 1.3), "cnn": (0.96, 1.05)}
VARIANTS = ["free", "hora.torch", "horovod.torch", "ddp hora", "ddp hora accelerate", "ddp nothing", "ddp gloo", "flat gloo"]
SILENT = ("free", "ddp nothing")  # these communicate nothing, so that their weights are nobody's
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
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2),
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
    """One variant of one model: its step, as a function. "joined" is one process on all ranks' batches.

    A test passes `spoil`, which gets the parameters when their gradients are reduced, or quiet=True for a variant that
    reduces nothing."""

    def __init__(self, name: str, variant: str, gloo, spoil=None, quiet: bool = False) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.functional import cross_entropy
        from torch.nn.parallel import DistributedDataParallel

        import hora
        import hora.torch
        import horovod.torch as hvd

        model, x = model_of(name)
        y = torch.arange(64) % 10
        if variant == "joined":
            x, y = torch.cat([x + r for r in range(hora.size())]), y.repeat(hora.size())
        else:
            x = x + hora.rank()
        self.parameters = list(model.parameters())
        self.start = self.weights()
        opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        wrapped = variant in ("hora.torch", "horovod.torch") and not quiet
        flat = None
        if wrapped:
            opt = (hora.torch if variant == "hora.torch" else hvd).DistributedOptimizer(opt, model.named_parameters())
        elif variant.startswith("ddp"):
            model = DistributedDataParallel(
                model, process_group=gloo if "gloo" in variant else None, gradient_as_bucket_view=True
            )
            if "nothing" in variant or quiet:  # what DDP itself costs
                model.register_comm_hook(None, nothing)
            elif "accelerate" in variant:
                hora.torch.accelerate(model)
        elif variant == "flat gloo":  # gradients are views of one tensor, which needs no copy at all
            flat = torch.zeros(sum(p.numel() for p in self.parameters))
            for p, part in zip(self.parameters, flat.split([p.numel() for p in self.parameters]), strict=True):
                p.grad = part.view_as(p)

        def step() -> None:
            if flat is None:
                opt.zero_grad()
            else:
                flat.zero_()
            cross_entropy(model(x), y).backward()
            if flat is not None and not quiet:
                dist.all_reduce(flat, group=gloo)
                flat.div_(hora.size())
            if spoil is None:
                opt.step()
                return
            if wrapped:
                opt.synchronize()
            spoil(self.parameters)
            with opt.skip_synchronize() if wrapped else contextlib.nullcontext():
                opt.step()

        self.step = step

    def weights(self) -> list:
        return [p.detach().numpy().copy() for p in self.parameters]

    def equal(self) -> bool:
        import torch

        import hora

        flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        every = hora.allgather(flat).view(hora.size(), -1)
        return bool((every == every[0]).all())


def check(name: str, trainers: dict[str, Trainer], joined: Trainer) -> dict[str, tuple[float, float]]:
    """How far each variant's way is from DDP on gloo's and from the joined batch's; an error, on all ranks, if that is
    too far."""
    far, faults = {}, []
    gloo = trainers.get("ddp gloo")
    for v, t in trainers.items():
        if v in SILENT:
            continue
        from_gloo = apart(t.start, t.weights(), gloo.weights()) if gloo else 0.0
        far[v] = (from_gloo, apart(t.start, t.weights(), joined.weights()))
        if not max(far[v]) <= BOUND:
            faults.append(f"{v} is {far[v][0]:.4f} of its way from DDP on gloo and {far[v][1]:.4f} from one process on the joined batch, at most {BOUND}")
        if not t.equal():
            faults.append(f"the ranks' weights differ under {v}")
    agree(faults, name)
    return far


def agree(faults: list[str], what: str) -> None:
    """Raises on all ranks what one of them has seen: a rank that went on alone would hang."""
    import hora

    every = [f"rank {r}: {f}" for r, fs in enumerate(hora.allgather_object(faults)) for f in fs]
    if every:
        raise Wrong(f"{what}: " + "; ".join(every))


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

    trainers, joined = {v: Trainer(name, v, gloo) for v in VARIANTS}, Trainer(name, "joined", None)
    for t in [*trainers.values(), joined]:
        for _ in range(10):
            t.step()
    check(name, trainers, joined)
    kept: dict[str, list[float]] = {v: [] for v in VARIANTS}
    took: dict[str, list[float]] = {v: [] for v in VARIANTS}
    for _ in range(rounds):
        for v, t in trainers.items():
            mine = burst(t.step, MODELS[name])
            a, b = hora.allgather_object(mine)
            seconds = sum(map(max, a, b)) if v == "free" else max(sum(a), sum(b))
            took[v].append(seconds / len(mine))
            kept[v].append(took["free"][-1] / took[v][-1])
            agree([] if v in SILENT or t.equal() else [f"the ranks' weights differ under {v}"], name)
    for _ in range(rounds * MODELS[name]):
        joined.step()
    far = check(name, trainers, joined)
    best = [min(pair) for pair in zip(took["ddp gloo"], took["flat gloo"], strict=True)]
    for v in VARIANTS:
        over = [g / s for g, s in zip(best, took[v], strict=True)]
        low, _, high = statistics.quantiles(over, n=4, method="inclusive") if len(over) > 1 else over * 3
        say({"kind": "train", "model": name, "variant": v, "us": statistics.median(took[v]) * 1e6,
             "kept": statistics.median(kept[v]), "low": min(kept[v]), "high": max(kept[v]),
             "over_gloo": statistics.median(over), "over_low": low, "over_high": high,
             "apart": far.get(v)})  # fmt: skip
    share, times = statistics.median(kept["hora.torch"]), statistics.median(g / s for g, s in zip(best, took["hora.torch"], strict=True))
    of_nothing = statistics.median(n / s for n, s in zip(took["ddp nothing"], took["hora.torch"], strict=True))
    wanted, faster = GOALS[name]
    say({"kind": "goal", "model": name, "kept": share, "goal": wanted, "reached": share >= wanted, "over_gloo": times, "over_goal": faster,
         "over_reached": times >= faster or name == "cnn" and of_nothing >= 0.98,
         "of_nothing": of_nothing})  # fmt: skip


def one_call(nbytes: int, gloo) -> dict[str, tuple]:
    """By variant: the call, its tensors, and what it makes of their sum."""
    import torch
    import torch.distributed as dist

    import hora
    import horovod.torch as hvd

    t = {v: torch.empty(nbytes // 4) for v in ("dist hora", "hvd", "hvd named", "dist gloo")}
    return {
        "dist hora": (lambda: dist.all_reduce(t["dist hora"]), [t["dist hora"]], 1.0),
        "hvd": (lambda: hvd.allreduce_(t["hvd"]), [t["hvd"]], 1 / hora.size()),
        "hvd named": (lambda: hvd.allreduce_(t["hvd named"], name="t"), [t["hvd named"]], 1 / hora.size()),
        "dist gloo": (lambda: dist.all_reduce(t["dist gloo"], group=gloo), [t["dist gloo"]], 1.0),
    }


def many_calls(count: int, nbytes: int, gloo) -> dict[str, tuple]:
    """The same with `count` tensors in flight."""
    import torch
    import torch.distributed as dist

    import hora
    import horovod.torch as hvd

    t = {v: [torch.empty(nbytes // 4) for _ in range(count)] for v in ("dist hora", "hvd", "dist gloo")}

    def torch_async(ts, group=None):
        for w in [dist.all_reduce(t, group=group, async_op=True) for t in ts]:
            w.wait()

    def hvd_async(ts):
        for h in [hvd.allreduce_async_(t, name=f"f.{i}") for i, t in enumerate(ts)]:
            hvd.synchronize(h)

    return {
        "dist hora": (lambda: torch_async(t["dist hora"]), t["dist hora"], 1.0),
        "hvd": (lambda: hvd_async(t["hvd"]), t["hvd"], 1 / hora.size()),
        "dist gloo": (lambda: torch_async(t["dist gloo"], gloo), t["dist gloo"], 1.0),
    }


def calls(rounds: int, gloo, say) -> None:
    """Blocking all-reduces, and 32 of 64 KiB in flight."""
    for label, nbytes in BYTES.items():
        measure(label, one_call(nbytes, gloo), CALLS[nbytes], rounds, say)
    measure("32 x 64 KiB", many_calls(32, 64 << 10, gloo), 10, rounds, say)


def measure(label: str, work: dict[str, tuple], times: int, rounds: int, say) -> None:
    import hora

    took: dict[str, list[float]] = {v: [] for v in work}
    data = {v: Data([t.numpy() for t in tensors], hora.rank(), hora.size()) for v, (_, tensors, _) in work.items()}
    for round_ in range(rounds):
        for v, (call, _, scale) in work.items():
            realtime(True)
            try:
                mine, right = timed(call, data[v], scale, times, round_ * (times + 5), hora.barrier)
            finally:
                realtime(False)
            agree([] if right else [f"{v} gave a wrong result"], label)
            took[v].append(max(hora.allgather_object(statistics.median(mine))))
    for v in work:
        over = [g / s for g, s in zip(took.get("dist gloo", took[v]), took[v], strict=True)]
        low, _, high = statistics.quantiles(over, n=4, method="inclusive") if len(over) > 1 else over * 3
        say({"kind": "call", "size": label, "variant": v, "us": statistics.median(took[v]) * 1e6, "low": min(took[v]) * 1e6,
             "high": max(took[v]) * 1e6, "over_gloo": statistics.median(over), "over_low": low,
             "over_high": high})  # fmt: skip


def text_of(line: dict) -> str:
    if line["kind"] == "goal":
        both = [("reached" if line[k] else "short") for k in ("reached", "over_reached")]
        return (f"{line['model']:5} hora.torch keeps {line['kept'] * 100:.1f} %, goal {line['goal'] * 100:.0f}: {both[0]}; "
                f"{line['over_gloo']:.2f} x the better of DDP and flat all_reduce over gloo, goal {line['over_goal']}: {both[1]} "
                f"({line['of_nothing']:.3f} of a DDP that communicates nothing)")  # fmt: skip
    over = f"{line['over_gloo']:.2f} ({line['over_low']:.2f}-{line['over_high']:.2f})"
    if line["kind"] == "call":
        return f"{line['size']:12} {line['variant']:10} {line['us']:9.1f} us ({line['low']:.1f}-{line['high']:.1f})  {over} x gloo over loopback TCP"
    far = f"  {line['apart'][0]:.0e} and {line['apart'][1]:.0e} of its way from ddp gloo and from the joined batch" if line["apart"] else ""
    return (f"{line['model']:5} {line['variant']:20} {line['us']:9.1f} us/step  kept {line['kept'] * 100:5.1f} % "
            f"({line['low'] * 100:.0f}-{line['high'] * 100:.0f})  {over} x the better over gloo{far}")  # fmt: skip


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
            print(text_of(line), flush=True)

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
            "HORA_SIZE": "2", "HORA_LOCAL_SIZE": "2", "HORA_ADDR": f"127.0.0.1:{ports[0]}", "HORA_SERVE": "1",
            "HORA_JOB": "torch-bench",
            "HORA_SECRET_FILE": secret.name, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ports[1]),
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        }  # fmt: skip
        cores = sorted(os.sched_getaffinity(0))
        ranks = []
        for r in range(2):
            env = base | {"HORA_RANK": str(r), "HORA_LOCAL_RANK": str(r), "RANK": str(r), "LOCAL_RANK": str(r)}
            command = [sys.executable, sys.argv[0], *sys.argv[1:]]
            core = cores[r % len(cores)]
            ranks.append(
                subprocess.Popen(command, env=env, preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}))
            )
        codes = [p.wait() for p in ranks]
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main())
