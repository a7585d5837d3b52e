"""How torch trainings end that do not end well: interrupted, or with an exception on one rank."""

from __future__ import annotations

import datetime
import os
import random
import signal
import subprocess
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

SOAK = bool(os.environ.get("HORA_SOAK"))


def start(seconds=60.0):
    import hora.torch  # noqa: F401

    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    store = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.store", n)
    dist.init_process_group("hora", store=store, rank=r, world_size=n, timeout=datetime.timedelta(seconds=seconds))
    return r, n


class Rows(torch.utils.data.Dataset):
    """Rows without an end: workers are forked once, before the first step. A Ctrl-C in the middle of a fork
    would be lost, not by us: Python drops an exception raised inside a hook of os.register_at_fork. Nor by us is what
    follows one inside multiprocessing.Queue.put: it leaves the queue's lock taken (`with` has called acquire and has
    not entered yet), and the program waits for it at its end. So few batches are fetched, each for many steps."""

    def __len__(self):
        return 1 << 40

    def __getitem__(self, i):
        return torch.full((8,), float(i % 7)), i % 4


def work_endless(way, broken_at):
    """Trains with forked DataLoader workers until somebody interrupts it, or one rank raises."""
    import hora.torch

    r, _ = start()
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    call, opt = model, torch.optim.SGD(model.parameters(), lr=0.1)
    if way == "optimizer":
        opt = hora.torch.DistributedOptimizer(opt, model.named_parameters())
    else:
        call = nn.parallel.DistributedDataParallel(model)
        if way == "accelerate":
            hora.torch.accelerate(call)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=8 * 256, num_workers=1, multiprocessing_context="fork")
    steps = (part for xs, ys in loader for part in zip(xs.split(8), ys.split(8), strict=True))
    for step, (x, y) in enumerate(steps, 1):
        opt.zero_grad()
        nn.functional.cross_entropy(call(x), y).backward()
        opt.step()
        if step == 1:
            print("training", flush=True)
        if step == broken_at and r == 1:
            raise ValueError("a fault of the training's own")


def processes_of(groups):
    """Living processes whose process group is one of these."""
    out = subprocess.run(["ps", "-eo", "pgid=,pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in out.splitlines() if line.split()[0] in groups and not line.split()[2].startswith("Z")]


def test_no_hang_and_no_orphan(job):
    """10 runs, 200 in a soak: Ctrl-C at a random moment, or an exception on one rank."""
    runs, seed = (200 if SOAK else 10), int(os.environ.get("HORA_SEED", time.time_ns() % 100000))
    print(f"seed {seed}: HORA_SEED={seed} replays it")
    rng = random.Random(seed)
    for i in range(runs):
        way, interrupt = rng.choice(["ddp", "accelerate", "optimizer"]), i % 2 == 0
        j = job(2, work_endless, args=(way, 0 if interrupt else rng.randint(1, 12)))
        if interrupt:
            for p in j.processes:
                p.until("training", 100)
            time.sleep(rng.uniform(0, 0.5))  # the moment of the interrupt
            for p in j.processes:
                os.killpg(p.pid, signal.SIGINT)
        groups = {str(p.pid) for p in j.processes}
        ends = j.wait(100)  # fails when a rank hangs
        assert all(e.code not in (0, -signal.SIGABRT, -signal.SIGSEGV) for e in ends), f"run {i} ({way}): {ends}"
        if interrupt:
            assert any("KeyboardInterrupt" in e.err for e in ends), f"run {i} ({way}): {ends}"
            assert all("KeyboardInterrupt" in e.err or "rank" in e.err for e in ends), f"run {i} ({way}): {ends}"
        else:
            assert "a fault of the training's own" in ends[1].err, f"run {i} ({way}): {ends[1].err}"
            assert "rank 1" in ends[0].err, f"run {i} ({way}): {ends[0].err}"
        until = time.monotonic() + 30
        while left := processes_of(groups):
            assert time.monotonic() < until, f"run {i} ({way}) left {left}"
            time.sleep(0.05)
        if SOAK and i % 10 == 9:
            print(f"{i + 1} of {runs} runs", flush=True)


def work_hook_raises():
    """An exception inside a gradient's hook reaches the caller of backward; the other rank is told, not left
    waiting."""
    import hora.torch

    r, _ = start(seconds=6)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    opt = hora.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), overlap=True
    )
    for _ in range(2):
        opt.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        opt.step()

    def fault(p):
        raise ValueError("inside a hook")

    if r == 1:
        model[1].weight.register_post_accumulate_grad_hook(fault)
    opt.zero_grad()
    if r == 1:
        with pytest.raises(ValueError, match="inside a hook"):
            model(torch.ones(1, 4)).sum().backward()
        raise SystemExit(3)
    with pytest.raises(Exception, match="rank 1"):
        model(torch.ones(1, 4)).sum().backward()
        opt.step()
    os._exit(4)


def test_an_exception_inside_a_hook(job):
    ends = job(2, work_hook_raises).wait(100)
    assert [e.code for e in ends] == [4, 3], ends


def work_rank_skips():
    """A rank that leaves out an iteration: the other's wait ends by the group's timeout, with a sentence."""
    r, n = start()
    left = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.left", n)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        model.zero_grad()
    if r == 1:
        left.wait(["over"])  # alive, but not in the step that the other waits in
        os._exit(0)
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(datetime.timedelta(seconds=2))
    began = time.monotonic()
    with pytest.raises(
        RuntimeError, match=r"DistBackendError.*rank 1"
    ):  # torch's future hands DistBackendError on as its base
        model(torch.ones(2, 4)).sum().backward()
    assert 1.5 < time.monotonic() - began < 6
    left.set("over", "")
    os._exit(5)


def test_a_rank_that_skips_a_step(job):
    ends = job(2, work_rank_skips).wait(60)
    assert ends[0].code == 5 and ends[1].code == 0, ends


def work_freed():
    """Tensors that nobody refers to any more stay until the operation on them has ended."""
    import gc

    _, n = start()
    for _ in range(10):
        works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(4)]
        gc.collect()
        del works
    dist.barrier()
    dist.all_reduce(x := torch.ones(3))
    assert x.tolist() == [n] * 3
    dist.destroy_process_group()


def test_tensors_freed_in_flight(ranks):
    ranks(2, work_freed, timeout=60)
