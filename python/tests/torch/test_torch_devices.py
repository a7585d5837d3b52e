"""A model with parameters on two devices of one process: layers one after the other inside, data-parallel outside.

The second device is one written in Python (second_device.py): torch treats it as it does an accelerator, with a thread
of its own for the backward pass. DistributedDataParallel is left out: torch refuses a module on devices of two types,
and the backend takes tensors of the host and of CUDA devices.
"""

from __future__ import annotations

import itertools
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

import hora
import hora.torch as ht
from hora.torch.compression import Compressor


class Split(nn.Module):
    """The first layers on the host, the others on the second device."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        self.to("second")
        self.first.to("cpu")

    def forward(self, x):
        return self.last(self.first(x).to("second"))


def momentum(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def plain(params):
    return torch.optim.SGD(params, lr=0.1)


def adam(params):
    return torch.optim.AdamW(params, lr=0.01)


def batches(n, steps=4):
    g = torch.Generator().manual_seed(1)
    return torch.randn(steps, 4 * n, 8, generator=g), torch.randint(0, 4, (steps, 4 * n), generator=g)


def fit(model, opt, mine, n, passes=1):
    """The losses of the training on these rows."""
    losses = []
    for x, y in zip(*batches(n), strict=True):
        opt.zero_grad()
        total = 0.0
        for _ in range(passes):
            loss = functional.cross_entropy(model(x[mine]), y[mine].to("second")) / passes
            loss.backward()
            total += loss.item()
        losses.append(total)
        opt.step()
    return torch.tensor(losses)


def weights(model):
    return torch.cat([p.detach().to("cpu").reshape(-1) for p in model.parameters()])


def moved():
    return sum(v for k, v in hora.counters().items() if "bytes" in k)


def on_their_devices(model, opt):
    for name, p in model.named_parameters():
        where = "cpu" if name.startswith("first") else "second"
        tensors = [p, p.grad, *(v for k, v in opt.state[p].items() if k != "step" and isinstance(v, torch.Tensor))]
        assert all(t.device.type == where for t in tensors), (name, [t.device for t in tensors])


class Twice(Compressor):
    """A compressor of a program's own."""

    @staticmethod
    def compress(tensor):
        return tensor * 2, tensor.device

    @staticmethod
    def decompress(tensor, ctx):
        assert tensor.device == ctx
        return tensor / 2


WAYS = [
    (momentum, {}, 1e-5),
    (adam, {}, 1e-5),
    (momentum, {"passes": 2}, 1e-5),
    (momentum, {"bucket_bytes": 600}, 1e-5),
    (momentum, {"named": False}, 1e-5),
    (momentum, {"num_groups": 2}, 1e-5),
    (momentum, {"compression": "fp16"}, 5e-3),
    (momentum, {"compression": "int8"}, 5e-2),
    (momentum, {"compression": ht.Compression.powersgd(4, start_iteration=99)}, 1e-5),
    (momentum, {"compression": ht.Compression.powersgd(4, start_iteration=1)}, 0.5),
    (momentum, {"compression": Twice}, 1e-5),
]


def work_two_devices():
    import second_device

    second_device.set_up()
    hora.init()
    r, n = hora.rank(), hora.size()
    for (make, way, bound), overlap in itertools.product(WAYS, (False, True)):
        if overlap and way.get("compression", "fp16") != "fp16":
            continue  # these are reduced in the step
        passes = way.get("passes", 1)
        settings = {k: v for k, v in way.items() if k != "passes"} | {"backward_passes_per_step": passes}
        single = Split()
        expected = fit(single, make(single.parameters()), slice(None), n)
        model = Split()
        opt = ht.DistributedOptimizer(make(model.parameters()), model.named_parameters(), overlap=overlap, **settings)
        before = moved()
        losses = fit(model, opt, slice(r, None, n), n, passes)
        what = (make.__name__, way, overlap)
        assert moved() > before, f"gradients did not go through hora: {what}"
        on_their_devices(model, opt)
        assert all(len({p.device for p in b.params}) == 1 for b in opt._buckets), what
        assert {p.device.type for b in opt._buckets for p in b.params} == {"cpu", "second"} or opt._custom, what
        every = hora.allgather(weights(model)).view(n, -1)
        assert torch.equal(every[0], every[-1]), f"ranks' weights differ: {what}"
        joined = hora.allreduce(losses, hora.AVERAGE)
        torch.testing.assert_close(joined, expected, rtol=0, atol=bound)
        torch.testing.assert_close(weights(model), weights(single), rtol=0, atol=bound)
    threads = set().union(*second_device.ops.values())
    assert len(threads) > 1, (
        "torch ran the second device's backward pass on the caller's thread: this is no such device"
    )


def test_two_devices(ranks):
    ranks(2, work_two_devices, timeout=120)


def work_rare():
    import second_device

    second_device.set_up()
    hora.init()
    r, n = hora.rank(), hora.size()
    # Adasum, whose changes are combined after the step
    model = Split()
    fit(model, ht.DistributedOptimizer(plain(model.parameters()), op=hora.ADASUM), slice(r, None, n), n)
    every = hora.allgather(weights(model)).view(n, -1)
    assert torch.equal(every[0], every[-1])
    # An equal start, of weights and of what the optimizer remembers
    model = Split()
    opt = adam(model.parameters())
    with torch.no_grad():
        for p in model.parameters():
            p.add_(r)
    if r == 0:
        fit(model, opt, slice(None), n)
    ht.broadcast_parameters(model.state_dict())
    ht.broadcast_optimizer_state(opt)
    assert all(p.device.type == ("cpu" if k.startswith("first") else "second") for k, p in model.named_parameters())
    assert all(opt.state[p]["exp_avg"].device == p.device for p in model.parameters())
    for mine in (
        weights(model),
        torch.cat([opt.state[p]["exp_avg"].to("cpu").reshape(-1) for p in model.parameters()]),
    ):
        every = hora.allgather(mine).view(n, -1)
        assert torch.equal(every[0], every[-1]) and every.abs().sum() > 0
    # What is left out, with the sentence that says so
    with pytest.raises(ValueError, match="same type of devices"):
        nn.parallel.DistributedDataParallel(model, process_group=object())


def test_rare_gradients_and_an_equal_start(ranks):
    ranks(2, work_rare, timeout=90)


def work_at_once():
    """Two towers, whose gradients arrive on two threads at once: the first bucket is still being sent when the second
    is there."""
    import second_device

    from hora.torch.buckets import Bucket

    second_device.set_up()
    hora.init()
    torch.manual_seed(0)
    towers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4).to("second")])
    opt = ht.DistributedOptimizer(plain(towers.parameters()), towers.named_parameters(), overlap=True)
    again, sent, collect = threading.Event(), [], Bucket.collect

    def slowly(bucket):
        if sent and sent[-1] == bucket.key:
            again.set()
        sent.append(bucket.key)
        again.wait(0.5 if opt._buckets and bucket.key == 0 else 0)
        collect(bucket)

    Bucket.collect = slowly
    for _ in range(2):
        opt.zero_grad()
        sent.clear()
        x = torch.ones(2, 4)
        (towers[0](x).sum() + towers[1](x.to("second")).sum().to("cpu")).backward()
        opt.step()
    assert sent == [0, 1], f"each bucket is sent once, not {sent}"
    every = hora.allgather(weights(towers)).view(hora.size(), -1)
    assert torch.equal(every[0], every[-1])


def test_gradients_of_two_devices_at_once(ranks):
    ranks(2, work_at_once, timeout=60)
