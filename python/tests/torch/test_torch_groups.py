"""DistributedOptimizer over some of the ranks, and what an asynchronous call of torch's gives back."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from training import start

import hora
import hora.torch as ht


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(seed, steps=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(steps, 8, 8, generator=g), torch.randint(0, 4, (steps, 8), generator=g)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def train(model, opt, x, y):
    for a, b in zip(x, y, strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(a), b).backward()
        opt.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def bytes_of(group):
    return sum(v for k, v in group.counters().items() if "bytes" in k)


def work_groups():
    """Ranks 0 and 2 train on one kind of data, ranks 1 and 3 on another."""
    hora.init()
    r = hora.rank()
    mine = hora.Group(range(r % 2, hora.size(), 2))
    ways = [
        {},
        {"overlap": True},
        {"named": False},
        {"compression": "fp16"},
        {"op": hora.ADASUM},
        {"gradient_predivide_factor": 2.0},
    ]
    x, y = batches(r % 2)
    for way in ways:
        single, model = network(), network()
        train(single, sgd(single), x, y)
        opt = ht.DistributedOptimizer(sgd(model), model.named_parameters(), group=mine, **way)
        before = bytes_of(mine)
        train(model, opt, x[:, mine.rank :: mine.size], y[:, mine.rank :: mine.size])
        assert bytes_of(mine) > before, way
        inside = hora.allgather(flat(model), group=mine).view(mine.size, -1)
        assert torch.equal(inside[0], inside[1]), way
        every = hora.allgather(flat(model)).view(hora.size(), -1)
        assert torch.equal(every[0], every[2]) and torch.equal(every[1], every[3]), way
        assert (every[0] - every[1]).abs().max() > 1e-3, "the groups have seen each other's gradients"
        if "op" not in way:
            torch.testing.assert_close(flat(model), flat(single), rtol=0, atol=5e-3 if "compression" in way else 1e-5)
    # What goes wrong in one group is told there, with the ranks' names; the other group goes on.
    model = network()
    opt = ht.DistributedOptimizer(sgd(model), model.named_parameters(), group=mine, num_groups=1 + (r == 3))
    if r % 2:
        with pytest.raises(RuntimeError, match=r"Mismatched buckets: .* on rank [13] and .* on rank [13]; give groups"):
            train(model, opt, x, y)
    else:
        train(model, opt, x, y)
    hora.barrier()
    others = hora.Group(range(1 - r % 2, hora.size(), 2))
    with pytest.raises(ValueError, match=rf"group of ranks \[{1 - r % 2}, {3 - r % 2}\]: rank {r} is not in it"):
        train(model, ht.DistributedOptimizer(sgd(model), model.named_parameters(), group=others), x, y)


def test_two_groups(ranks):
    ranks(4, work_groups, timeout=90)


def tensors(value):
    return [t.tolist() for t in value]


def work_results():
    """As gloo's: the tensors that the operation has filled, once it has ended."""
    for backend in ("hora", "gloo"):
        r, n = start(backend)
        x = torch.ones(2)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert tensors(work.result()) == [[n, n]], backend
        parts = [torch.zeros(2) for _ in range(n)]
        work = dist.all_gather(parts, x, async_op=True)
        work.wait()
        assert tensors(work.result()) == [[n, n]] * n, backend
        work = dist.broadcast(x, 0, async_op=True)
        work.wait()
        assert work.result()[0].data_ptr() == x.data_ptr(), backend
        work = dist.barrier(async_op=True)
        work.wait()
        assert work.result() == [], backend
        if r == 0:  # the other rank comes once this one has asked
            work = dist.all_reduce(x, async_op=True)
            with pytest.raises(RuntimeError, match=r"wait\(\)"):
                work.result()
        other = dist.new_group()
        dist.barrier(group=other)
        if r:
            work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert tensors(work.result()) == [[n * n] * 2], backend
        dist.destroy_process_group()


def test_results(ranks):
    ranks(2, work_results, timeout=60)
