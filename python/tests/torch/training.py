"""What torch's tests share: process groups of one backend, something small to train, and proof of which way gradients
went."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

_starts = itertools.count()


def store():
    return dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.store{next(_starts)}", int(os.environ["HORA_SIZE"]))


def start(backend="hora", **settings):
    """The default group; this rank and their number."""
    import hora.torch  # noqa: F401

    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    dist.init_process_group(backend, store=store(), rank=r, world_size=n, **settings)
    return r, n


def moved() -> int:
    """Bytes that hora has moved in any group of torch's, over any link."""
    from hora.torch.backend import _alive

    return sum(v for b in _alive for k, v in b.group.counters().items() if "bytes" in k)


def no_gloo():
    """No process group is gloo's, so no gradient can have gone that way."""
    kinds = {kind for kind, _ in dist.distributed_c10d._world.pg_map.values()}
    assert kinds and not any("gloo" in k for k in kinds), kinds


def on_both(*parts: Callable[[], torch.Tensor], tolerance: float = 1e-5) -> list[torch.Tensor]:
    """What each part's training ends with: on backend hora, checked to have gone there, and equal on gloo."""
    start("hora")
    ours = []
    for part in parts:
        before = moved()
        ours.append(part())
        assert moved() > before, f"{part}: nothing went through hora"
        no_gloo()
    dist.destroy_process_group()
    start("gloo")
    for part, a in zip(parts, ours, strict=True):
        same(a, part(), tolerance)
    dist.destroy_process_group()
    return ours


def network(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def data(n, steps=8):
    g = torch.Generator().manual_seed(1)
    return torch.randn(steps, 4 * n, 8, generator=g), torch.randint(0, 4, (steps, 4 * n), generator=g)


def fit(model, opt, r, n):
    """Train on rank r's share of each batch."""
    for x, y in zip(*data(n), strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(x[r::n]), y[r::n]).backward()
        opt.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def alone(optimizer=sgd):
    """The same training in one process on the joined batches of all ranks."""
    model = network()
    opt = optimizer(model)
    for x, y in zip(*data(int(os.environ["HORA_SIZE"])), strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        opt.step()
    return flat(model)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def same(ours, theirs, tolerance=1e-5):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def same_everywhere(model):
    every = [torch.empty_like(flat(model)) for _ in range(dist.get_world_size())]
    dist.all_gather(every, flat(model))
    assert all(torch.equal(e, every[0]) for e in every), "ranks' weights differ"
