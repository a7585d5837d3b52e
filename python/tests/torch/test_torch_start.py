"""Equal starts as docs/migrate.md shows them: what the schedule, the ranks and the optimizer's holders see
afterwards."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import hora
import hora.torch as ht

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "migrate.md"

# What the guide takes as given: a dataset, a network and a loss; each rank begins with weights of its own.
GIVEN = """
import os, torch
from torch import nn
from torch.utils.data import DataLoader
torch.manual_seed(int(os.environ["HORA_RANK"]))
numbers = torch.Generator().manual_seed(4)
dataset = torch.utils.data.TensorDataset(torch.randn(256, 4, generator=numbers), torch.randn(256, 1, generator=numbers))
Net, loss_of, epochs = lambda: nn.Linear(4, 1), nn.functional.mse_loss, 3
"""


def recipe(horovod=False) -> str:
    """The script that the guide's first diff leads to, with hora's names or Horovod's."""
    diff = re.search(r"## From one process\n\n```diff\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    text = "".join(line[1:] or "\n" for line in diff[1].splitlines(True) if not line.startswith("-"))
    text = re.sub(r'torch\.save\(.*?, "model.pt"\)', "pass", text)
    if horovod:
        text = text.replace("import hora\n", "").replace("import hora.torch\n", "import horovod.torch as hvd\n")
        text = text.replace("hora.torch.", "hvd.").replace("hora.", "hvd.")
    return GIVEN + text


def equal_everywhere(value, what):
    every = hora.allgather_object(value)
    assert all(v == every[0] for v in every), (what, every)


def work_recipe(horovod):
    warnings.simplefilter("error")  # "lr_scheduler.step() before optimizer.step()" among others
    seen: dict = {}
    exec(recipe(horovod), seen)
    lr = seen["optimizer"].param_groups[0]["lr"]
    assert lr == seen["warmup"].get_last_lr()[0] > 0.01, (lr, seen["warmup"].get_last_lr())
    equal_everywhere(lr, "learning rate")
    equal_everywhere(torch.cat([p.detach().reshape(-1) for p in seen["model"].parameters()]).tolist(), "weights")


@pytest.mark.parametrize("horovod", [False, True])
def test_ranks_are_equal_after_the_guides_recipe(ranks, horovod):
    ranks(2, work_recipe, args=(horovod,), timeout=60)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def work_schedules():
    warnings.simplefilter("error")
    hora.init()
    for op in (hora.AVERAGE, hora.ADASUM):
        for before in (True, False):
            model = nn.Linear(4, 1)
            opt = inner = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
            if before:
                schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
            opt = ht.DistributedOptimizer(opt, op=op)
            if not before:
                schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
            calls = []
            opt.register_step_post_hook(lambda *_, calls=calls: calls.append(1))
            ht.broadcast_optimizer_state(opt, root_rank=0)
            step(model, opt)
            schedule.step()
            for holder in (inner, opt):
                holder.load_state_dict(opt.state_dict())  # a checkpoint, read back through whichever name
                step(model, opt)
                schedule.step()
            assert opt.param_groups[0]["lr"] == inner.param_groups[0]["lr"] == schedule.get_last_lr()[0] == 0.125
            assert len(calls) == 3, "torch's hooks run once in a step"
    # parameters that are added through the name from before are reduced too
    late = nn.Parameter(torch.zeros(3))
    inner.add_param_group({"params": [late]})
    late.grad = torch.full((3,), float(hora.rank()))
    step(model, opt)
    equal_everywhere(late.tolist(), "a parameter that came later")
    # … and wrapping once more is wrapping anew
    again = ht.DistributedOptimizer(opt, compression="bf16")
    assert again is opt and type(again).__mro__.count(ht.optimizer._Mixin) == 1
    for _ in range(2):
        step(model, again)
    assert again._compression is ht.Compression.bf16


def test_schedules_made_before_and_after(ranks):
    ranks(2, work_schedules, timeout=60)


def work_held(horovod):
    if horovod:
        import horovod.torch as start

        start.init()
    else:
        import hora.torch as start

        hora.init()
    r = hora.rank()
    model = nn.Linear(3, 2)
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1 * (r + 1), momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1 * (r + 1)), betas=(0.5 + r / 10, 0.9)),
        lambda p: torch.optim.AdamW(p, lr=0.1 * (r + 1), amsgrad=True),
    ):
        for have in ({0}, {1}, {0, 1}, set()):  # the ranks that have made a step
            model.requires_grad_(True)
            opt = make(model.parameters())
            if r in have:
                model(torch.full((1, 3), 1.0 + r)).sum().backward()
                opt.step()
            group, table = opt.param_groups[0], opt.state
            tensors = [t for s in table.values() for t in s.values() if isinstance(t, torch.Tensor)]
            lr = group["lr"]
            start.broadcast_optimizer_state(opt, root_rank=0)
            assert opt.param_groups[0] is group and opt.state is table
            if have == {0, 1}:
                now = [t for s in table.values() for t in s.values() if isinstance(t, torch.Tensor)]
                assert all(a is b for a, b in zip(tensors, now, strict=True)), "tensors of the state were replaced"
            assert not isinstance(lr, torch.Tensor) or group["lr"] is lr
            assert float(group["lr"]) == pytest.approx(0.1)
            plain = opt.state_dict()
            numbers = [
                [float(v) for v in t.reshape(-1)] for s in plain["state"].values() for t in s.values() if t is not None
            ]
            assert bool(numbers) == (horovod or 0 in have)  # Horovod's makes one that is fresh everywhere
            equal_everywhere(numbers, "state")
            equal_everywhere(
                [{k: str(v) for k, v in g.items() if k != "params"} for g in plain["param_groups"]], "groups"
            )


@pytest.mark.parametrize("horovod", [False, True])
def test_what_programs_hold_stays_theirs(ranks, horovod):
    ranks(2, work_held, args=(horovod,), timeout=60)


def test_compression_is_looked_at_when_it_is_given():
    hora.init()
    try:
        parameters = [nn.Parameter(torch.zeros(2))]
        for text, choice in (("fp16", ht.Compression.fp16), ("none", ht.Compression.none), (None, ht.Compression.none)):
            opt = ht.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), compression=text)
            assert opt._compression is choice
        assert isinstance(ht.DistributedOptimizer(opt, compression="powersgd")._compression, ht.Compression.powersgd)
        for wrong in ("fp8", 16, ht.Compression):
            with pytest.raises(
                ValueError, match=re.escape(f"compression={wrong!r}: give one of 'none', 'fp16', 'bf16'")
            ):
                ht.DistributedOptimizer(opt, compression=wrong)
    finally:
        hora.shutdown()


def test_the_module_lists_what_it_has():
    assert set(ht.__all__) <= set(dir(ht))
    for name in ht.__all__:
        assert name in ht.__doc__, f"help(hora.torch) says nothing of {name}"
        assert getattr(ht, name).__doc__, name
    arguments = list(inspect.signature(ht.DistributedOptimizer).parameters)[1:]
    rows = re.findall(r"^\| (`.*?=`) \|", GUIDE.read_text(encoding="utf-8"), re.M)
    assert sorted(re.findall(r"`(\w+)=`", " ".join(rows))) == sorted(arguments), (
        "docs/migrate.md explains each argument"
    )
    said = re.findall(r"^ *([\w, ]+):", ht.DistributedOptimizer.__doc__, re.M)
    assert set(arguments) <= {n for line in said for n in line.split(", ")}


# Modules are found as ever, but NumPy is not: torch begins as where nobody has installed it.
HIDE = """exec('''
from importlib.machinery import PathFinder
class Most(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == "numpy" else super().find_spec(name, path, target)
sys.meta_path[:] = [Most if f is PathFinder else f for f in sys.meta_path]
''')"""


def work_without_numpy():
    with pytest.raises(RuntimeError, match="(?i)numpy is not available"):
        torch.ones(1).numpy()
    import horovod.torch as hvd

    hvd.init()
    r, n = hvd.rank(), hvd.size()
    for start in (hvd, ht):
        torch.manual_seed(r)
        model = nn.Linear(4, 1)
        opt = start.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=0.1 * (r + 1)), model.named_parameters(), compression="fp16"
        )
        start.broadcast_parameters(model.state_dict(), root_rank=0)
        start.broadcast_optimizer_state(opt, root_rank=0)
        for _ in range(2):
            step(model, opt)
        start.broadcast_optimizer_state(opt, root_rank=1)
        weights = model.weight.detach().reshape(-1).tolist()
        for objects in (hvd, hora):
            assert objects.allgather_object(weights) == [weights] * n
            assert objects.broadcast_object({"rank": r}) == {"rank": 0}
    state = hvd.elastic.TorchState(model=model, optimizer=opt, sampler=hvd.elastic.ElasticSampler(range(8)), epoch=r)
    state.sync()
    ht.TorchState(model=model, optimizer=opt, epoch=r).sync()
    assert state.epoch == 0 and hvd.allreduce(torch.ones(3)).tolist() == [1.0] * 3 and hora.allreduce(2) == 2 * n
    assert "numpy" not in sys.modules


def test_nothing_needs_numpy(ranks):
    ranks(2, work_without_numpy, warm=False, before=HIDE, timeout=90)
