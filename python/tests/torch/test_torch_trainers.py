"""Trainers and schemes built on torch.distributed, on backend "hora": each trains something small and is compared with
gloo."""

from __future__ import annotations

import contextlib
import os
import subprocess
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from training import data, flat, moved, network, no_gloo, on_both, same, start

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def trainers():
    """Where Lightning and Accelerate are; make deps has put them there."""
    folder = subprocess.run(
        ["sh", "tools/deps.sh", "path", "trainers"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert os.path.exists(os.path.join(folder, ".complete")), f"{folder} is not there; run make deps"
    return f"sys.path.append({folder!r})"


def asleep(model) -> bool:
    """Whether DDP's reducer sleeps and hora averages."""
    return type(getattr(model, "reducer", None)).__name__ == "Sleeper"


# -- Lightning


def work_lightning():
    warnings.simplefilter("ignore")
    import logging

    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    import hora.torch

    class Accelerated(DDPStrategy):
        def configure_ddp(self):
            super().configure_ddp()
            hora.torch.accelerate(self.model)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    n = int(os.environ["HORA_SIZE"])
    x, y = data(n)

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, _):
            return functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

        def on_train_end(self):
            self.went = moved()
            self.asleep = asleep(self.trainer.strategy.model)

    class Manual(Net):
        """Steps by itself: Lightning tells DDP's reducer of each backward pass, as DDP does not."""

        automatic_optimization = False

        def training_step(self, batch, _):
            opt = self.optimizers()
            for part in (batch[0], batch[0].flip(0)):
                opt.zero_grad()
                self.manual_backward(self.net(part).square().mean())
                opt.step()

    def trained(kind, strategy, **settings):
        model, before = kind(), moved()
        trainer = lightning.Trainer(
            accelerator="cpu", devices=n, strategy=strategy, max_epochs=2, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **settings,
        )  # fmt: skip
        trainer.fit(
            model,
            torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x.flatten(0, 1), y.flatten()), batch_size=4),
        )
        assert trainer.global_step == (32 if kind is Manual else 8 if settings else 16), trainer.global_step
        assert model.asleep == isinstance(strategy, Accelerated)
        assert model.went > before or dist.get_backend() == "gloo"
        return flat(model.net)

    ways = [(Net, {}), (Net, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1}), (Manual, {})]
    ends = {}
    for backend, strategies in (("hora", (DDPStrategy, Accelerated)), ("gloo", (DDPStrategy,))):
        for strategy in strategies:
            ends[backend, strategy] = [
                trained(kind, strategy(process_group_backend=backend), **how) for kind, how in ways
            ]
        if backend == "hora":
            no_gloo()
        dist.destroy_process_group()
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    for strategy in (DDPStrategy, Accelerated):
        for ours, theirs in zip(ends["hora", strategy], ends["gloo", DDPStrategy], strict=True):
            same(ours, theirs)


def test_lightning(job, trainers, free_ports):
    ranks_with_torch_variables(job, work_lightning, trainers, free_ports)


# -- Accelerate


def work_accelerate():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    import hora.torch

    n = int(os.environ["HORA_SIZE"])
    x, y = data(n)
    ends = []
    for backend, accelerated in (("hora", False), ("hora", True), ("gloo", False)):
        dist.init_process_group(
            backend
        )  # Accelerate takes no backend's name but those it knows; it takes a group that is there
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        assert accelerator.num_processes == n, accelerator.state
        model = network()
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x.flatten(0, 1), y.flatten()), batch_size=4)
        model, opt, loader = accelerator.prepare(model, opt, loader)
        if accelerated:
            assert hora.torch.accelerate(model) is model
        before = moved()
        steps = 0
        for accumulate in (False, True):
            for batch, target in loader:
                with accelerator.accumulate(model) if accumulate else contextlib.nullcontext():
                    loss = functional.cross_entropy(model(batch), target)
                    accelerator.backward(loss)
                    accelerator.clip_grad_norm_(model.parameters(), 10.0)
                    opt.step()
                    opt.zero_grad()
                steps += 1
        assert steps == 16 and asleep(model) == accelerated
        assert accelerator.unwrap_model(model) is model.module
        total = accelerator.gather(loss.detach().reshape(1))
        assert total.shape == (n,)
        ends.append(flat(model))
        if backend == "hora":
            assert moved() > before
            no_gloo()
        dist.destroy_process_group()
        del model
        AcceleratorState._reset_state()
        PartialState._reset_state()
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    for ours in ends[:2]:
        same(ours, ends[2])


def test_accelerate(job, trainers, free_ports):
    ranks_with_torch_variables(job, work_accelerate, trainers, free_ports)


@pytest.fixture
def free_ports():
    """The first of three ports in a row that nobody has: the next ones of a free port may be somebody's."""
    import socket

    for _ in range(100):
        with socket.socket() as a, socket.socket() as b, socket.socket() as c:
            a.bind(("127.0.0.1", 0))
            port = a.getsockname()[1]
            try:
                b.bind(("127.0.0.1", port + 1))
                c.bind(("127.0.0.1", port + 2))
            except (OSError, OverflowError):
                continue
            return port
    raise AssertionError("no three free ports in a row among a hundred")


def ranks_with_torch_variables(job, work, before, port):
    """Two ranks with the variables that `hora run` and torchrun set for torch."""
    env = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "0",
    }
    own = "os.environ.update({'RANK': os.environ['HORA_RANK'], 'LOCAL_RANK': os.environ['HORA_RANK']})"
    ends = job(2, work, env=env, before=f"import os; {own}; {before}").wait(150)
    bad = [f"--- rank {r} ended with {e.code}\n{e.out}\n{e.err}" for r, e in enumerate(ends) if e.code]
    assert not bad, "\n".join(bad)


# -- FSDP of the first kind, pipelines


def work_fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    def train():
        r, n = dist.get_rank(), dist.get_world_size()
        model = Fsdp(
            network(),
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            use_orig_params=True,
            device_id=torch.device("cpu"),
        )
        opt = torch.optim.Adam(model.parameters(), lr=0.01)
        for x, y in zip(*data(n), strict=True):
            opt.zero_grad()
            functional.cross_entropy(model(x[r::n]), y[r::n]).backward()
            model.clip_grad_norm_(10.0)
            opt.step()
        with Fsdp.summon_full_params(model):
            return flat(model)

    warnings.simplefilter("ignore")
    on_both(train)


def test_fsdp1(ranks):
    ranks(2, work_fsdp1, timeout=120)


def work_pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    def train():
        r, n = dist.get_rank(), dist.get_world_size()
        layers = network()
        mine = nn.Sequential(*(layers[:2] if r == 0 else layers[2:]))
        losses: list[torch.Tensor] = []
        for kind in (ScheduleGPipe, Schedule1F1B):
            stage = PipelineStage(mine, r, n, torch.device("cpu"))
            schedule = kind(stage, n_microbatches=4, loss_fn=functional.cross_entropy)
            opt = torch.optim.SGD(mine.parameters(), lr=0.1)
            for x, y in zip(*data(n, 3), strict=True):
                opt.zero_grad()
                if r == 0:
                    schedule.step(x)
                else:
                    parts: list[torch.Tensor] = []
                    schedule.step(target=y, losses=parts)
                    losses.append(torch.stack([p.detach() for p in parts]).mean())
                opt.step()
        return torch.cat([flat(mine), *(v.reshape(1) for v in losses)])

    on_both(train)


def test_pipelining(ranks):
    ranks(2, work_pipeline, timeout=120)


# -- a hundred steps


def work_hundred_steps():
    import hora
    import hora.torch

    r, n = start()
    x, y = data(n, 100)

    def fit(model, opt, rank, ranks, call=None):
        """The loss of each step over the joined batch."""
        losses = []
        for a, b in zip(x, y, strict=True):
            opt.zero_grad()
            loss = functional.cross_entropy((call or model)(a[rank::ranks]), b[rank::ranks])
            loss.backward()
            opt.step()
            if ranks > 1:
                dist.all_reduce(total := loss.detach().clone())
                losses.append(total.item() / ranks)
            else:
                losses.append(loss.item())
        return torch.tensor(losses)

    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    reference = network()
    curve = fit(reference, sgd(reference), 0, 1)
    assert curve[-10:].mean() < curve[:10].mean()
    for way in ("ddp", "accelerate", "optimizer"):
        model = network()
        call, opt = model, sgd(model)
        if way == "optimizer":
            opt = hora.torch.DistributedOptimizer(opt, model.named_parameters())
        else:
            call = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=way == "accelerate")
            if way == "accelerate":
                hora.torch.accelerate(call)
        torch.testing.assert_close(fit(model, opt, r, n, call), curve, rtol=1e-4, atol=1e-4)
        dist.all_gather(every := [torch.empty_like(flat(model)) for _ in range(n)], flat(model))
        assert all(torch.equal(e, every[0]) for e in every), f"{way}: ranks' weights differ"
        same(flat(model), flat(reference), 1e-3)
    dist.destroy_process_group()


def test_hundred_steps_follow_one_process(ranks):
    ranks(2, work_hundred_steps, timeout=120)
