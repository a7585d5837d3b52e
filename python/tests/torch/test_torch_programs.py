"""What programs do with their optimizer, wrapped: each training is compared with one process on the joined batch."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hora
import hora.torch as ht


def network(width=32, seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def wide():
    """Its buckets take each gradient as soon as it is there."""
    return network(400)


def batches(n, steps=5):
    g = torch.Generator().manual_seed(1)
    return torch.randn(steps, 4 * n, 8, generator=g), torch.randint(0, 4, (steps, 4 * n), generator=g)


def momentum(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def flat(model):
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])


def loss_of(model, x, y):
    return functional.cross_entropy(model(x), y)


def step(model, opt, x, y, i=0):
    opt.zero_grad()
    loss_of(model, x, y).backward()
    opt.step()


def equal(*models):
    """The ranks' weights are."""
    for model in models:
        every = hora.allgather(flat(model)).view(hora.size(), -1)
        assert torch.equal(every[0], every[-1]), f"ranks' weights differ by {(every[0] - every[-1]).abs().max()}"


def close(model, single, tolerance=2e-5):
    assert torch.isfinite(flat(model)).all()
    torch.testing.assert_close(flat(model), flat(single), rtol=0, atol=tolerance)


def together(train, build=network, tolerance=2e-5, make=momentum, overlap=False, **settings):
    """train(model, opt, x, y) in one process, and on all ranks; the latter's model, optimizer and result."""
    r, n = hora.rank(), hora.size()
    x, y = batches(n)
    single, model = build(), build()
    expected = train(single, make(single.parameters()), x, y)
    opt = ht.DistributedOptimizer(make(model.parameters()), model.named_parameters(), overlap=overlap, **settings)
    out = train(model, opt, x[:, r::n].clone(), y[:, r::n])
    equal(model)
    close(model, single, tolerance)
    assert out == expected or isinstance(out, torch.Tensor)
    return model, opt


def each(one):
    """A training that does `one` with every batch."""

    def train(model, opt, x, y):
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            one(model, opt, a, b, i)

    return train


# -- optimizers, schedules, evaluations


def part_optimizers(overlap):
    o = torch.optim
    makes = [
        lambda p: o.SGD(p, lr=0.1, momentum=0.9, fused=True),
        lambda p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
        lambda p: o.AdamW(p, lr=0.01, fused=True),
        lambda p: o.Adam(p, lr=torch.tensor(0.01)),
        lambda p: o.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    ]
    for make in makes:
        together(each(step), make=make, overlap=overlap, tolerance=1e-4)
    s = o.lr_scheduler
    schedules = [
        lambda opt: s.OneCycleLR(opt, 0.5, total_steps=10),
        lambda opt: s.SequentialLR(opt, [s.LinearLR(opt), s.ExponentialLR(opt, 0.9)], [2]),
        lambda opt: s.ReduceLROnPlateau(opt, patience=0),
    ]
    for schedule in schedules:

        def train(model, opt, x, y, schedule=schedule):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                when = schedule(opt)
                for a, b in zip(x, y, strict=True):
                    step(model, opt, a, b)
                    when.step(*([1.0] if isinstance(when, s.ReduceLROnPlateau) else []))
            return opt.param_groups[0]["lr"]

        together(train, overlap=overlap)


def zeroed(model, opt, x, y, i):
    opt.zero_grad(set_to_none=False)
    loss_of(model, x, y).backward()
    opt.step()


def half_precision(model, opt, x, y, i):
    opt.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, x, y)
    loss.backward()
    opt.step()


def clipped(model, opt, x, y, i):
    opt.zero_grad()
    loss_of(model, x, y).backward()
    if not hasattr(opt, "synchronize"):
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        opt.step()
        return
    opt.synchronize()
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    with opt.skip_synchronize():
        opt.step()


def functional_grad(model, opt, x, y, i):
    opt.zero_grad()
    named = {k: p.detach() for k, p in model.named_parameters()}
    grads = torch.func.grad(lambda d: functional.cross_entropy(torch.func.functional_call(model, d, (x,)), y))(named)
    for k, p in model.named_parameters():
        p.grad = grads[k]
    opt.step()


def graph_kept(model, opt, x, y, i):
    opt.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own about such gradients
        loss_of(model, x, y).backward(create_graph=True)
    opt.step()


def penalty(model, opt, x, y, i):
    opt.zero_grad()
    x = x.clone().requires_grad_()
    losses = functional.cross_entropy(model(x), y, reduction="none")
    slope = torch.autograd.grad(losses.sum(), x, create_graph=True)[0]
    (losses.mean() + slope.pow(2).sum(1).mean()).backward()
    opt.step()


def twice(model, opt, x, y, i):
    opt.zero_grad()
    loss = loss_of(model, x, y)
    loss.backward(retain_graph=True)
    (loss * 2).backward()
    opt.step()


def part_evaluations(overlap):
    for build in (network, wide):
        for one in (zeroed, clipped, functional_grad, graph_kept):
            _, opt = together(each(one), build, overlap=overlap)
            assert not any(b.flat.requires_grad or any(v.grad_fn for v in b.views) for b in opt._buckets), one
    together(each(penalty), overlap=overlap)
    together(each(half_precision), overlap=overlap, tolerance=5e-2)
    together(each(twice), overlap=overlap, backward_passes_per_step=2)
    if not overlap:  # compiling takes its time
        together(compiled)
    step_calls = []

    def hooked(params):
        opt = momentum(params)
        opt.register_step_pre_hook(lambda *_: step_calls.append("before"))
        opt.register_step_post_hook(lambda *_: step_calls.append("after"))
        return opt

    together(each(step), make=hooked, overlap=overlap)
    assert step_calls == ["before", "after"] * 10


class Checkpointed(nn.Module):
    """Two checkpointed parts, of one layer if tied: their gradients then arrive twice in a backward pass."""

    def __init__(self, reentrant, tied=False):
        super().__init__()
        torch.manual_seed(3)
        self.reentrant = reentrant
        self.first, self.a = nn.Linear(8, 16), nn.Linear(16, 16)
        self.b = self.a if tied else nn.Linear(16, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        h = self.first(x)
        for part in (self.a, self.b):
            h = checkpoint(lambda t, part=part: functional.relu(part(t)), h, use_reentrant=self.reentrant)
        return self.last(h)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(functional.relu(self.a(x)))


def part_models(overlap):
    for size in ({}, {"bucket_bytes": 300}):
        together(each(step), Tied, overlap=overlap, **size)
        together(each(step), lambda: Checkpointed(False), overlap=overlap, **size)
        together(each(step), lambda: Checkpointed(True), overlap=overlap, **size)
        together(each(step), lambda: Checkpointed(False, tied=True), overlap=overlap, **size)
    reentrant = {"build": lambda: Checkpointed(True, tied=True), "overlap": overlap, "bucket_bytes": 300}
    if overlap:  # the first of two gradients would have been sent without the second
        with pytest.raises(
            AssertionError, match="gradient of .*a.bias was computed more than backward_passes_per_step"
        ):
            together(each(step), **reentrant)
        hora.barrier()  # who is first here must not be missed by the other
    else:
        together(each(step), **reentrant)


def compiled(model, opt, x, y):
    fast = torch.compile(model, backend="aot_eager")
    for a, b in zip(x, y, strict=True):
        step(fast, opt, a, b)


# -- a model or an optimizer that changes


def converted(convert, feed=lambda x: x):
    def train(model, opt, x, y):
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            if i == 2:
                convert(model)
            opt.zero_grad()
            out = model(feed(a).to(next(model.parameters()).dtype))
            functional.cross_entropy(out.float(), b).backward()
            opt.step()

    return train


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(functional.relu(self.a(x)).to(self.b.weight.dtype))


def convolution():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(2, 6, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 4))


def part_converted(overlap):
    """`model.to(…)` gives gradients other memory than what is sent."""
    for named in (True, False):
        together(converted(lambda m: m.double()), overlap=overlap, named=named)
    together(converted(lambda m: m.double()), wide, overlap=overlap, tolerance=1e-4)
    together(converted(lambda m: m.to(torch.bfloat16)), overlap=overlap, tolerance=5e-2)
    together(converted(lambda m: m.b.double()), Halves, overlap=overlap)
    together(converted(lambda m: m.share_memory()), overlap=overlap)
    last = {"memory_format": torch.channels_last}
    together(converted(lambda m: m.to(**last), lambda x: x.view(-1, 2, 2, 2)), convolution, overlap=overlap)
    # between backward and step, where gradients are under way
    model = network()
    opt = ht.DistributedOptimizer(momentum(model.parameters()), overlap=overlap)
    x, y = batches(1)
    step(model, opt, x[0], y[0])
    opt.zero_grad()
    loss_of(model, x[1], y[1]).backward()
    model.double()
    if overlap:
        with pytest.raises(ValueError, match="converted while gradients were on their way"):
            opt.step()
    else:
        opt.step()
    step(model, opt, x[2].double(), y[2])
    equal(model)


def later(between):
    """The first layer's parameters are added in the fourth step, before it or between its backward and the update."""

    def late(model, opt, x, y):
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            if i == 3 and not between:
                opt.add_param_group({"params": list(model[0].parameters()), "lr": 0.05})
            opt.zero_grad()
            if i < 4:
                model[0].zero_grad()
            loss_of(model, a, b).backward()
            if i == 3 and between:
                opt.add_param_group({"params": list(model[0].parameters()), "lr": 0.05})
            opt.step()

    return late


def loaded(model, opt, x, y):
    """Back to an earlier state in mid-training."""
    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        step(model, opt, a, b)
        if i == 1:
            kept = io.BytesIO()
            torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, kept)
        if i == 3:
            kept.seek(0)
            state = torch.load(kept)
            model.load_state_dict(state["model"])
            opt.load_state_dict(state["opt"])


def part_changed(overlap):
    r, n = hora.rank(), hora.size()
    together(loaded, overlap=overlap)
    x, y = batches(n)
    for between in (False, True):
        single, model = network(), network()
        later(between)(single, momentum(single[2:].parameters()), x, y)
        opt = ht.DistributedOptimizer(momentum(model[2:].parameters()), overlap=overlap)
        later(between)(model, opt, x[:, r::n], y[:, r::n])
        equal(model)
        close(model, single)
    # A copy for a copy of the model goes on as the original does; pickled, it is the optimizer that was wrapped.
    model = network()
    opt = ht.DistributedOptimizer(
        momentum(model.parameters()), model.named_parameters(), overlap=overlap, compression="int8"
    )
    step(model, opt, x[0][r::n], y[0][r::n])
    other, copied = copy.deepcopy((model, opt))
    for a, b in zip(x[1:, r::n], y[1:, r::n], strict=True):
        step(model, opt, a, b)
        step(other, copied, a, b)
    equal(model, other)
    close(other, model)
    loaded_again = pickle.loads(pickle.dumps(opt))
    assert type(loaded_again) is torch.optim.SGD
    buffers = [s["momentum_buffer"] for s in loaded_again.state_dict()["state"].values()]
    assert all(
        torch.equal(a, s["momentum_buffer"]) for a, s in zip(buffers, opt.state_dict()["state"].values(), strict=True)
    )


def part_two_optimizers(overlap):
    """One loss, two optimizers, and two models whose parameters have the same names."""
    r, n = hora.rank(), hora.size()
    x, y = batches(n)

    def train(wrap, mine):
        twins = [network(), network(seed=4)]
        opts = [wrap(momentum(m.parameters()), m) for m in twins]
        for a, b in zip(x[:, mine], y[:, mine], strict=True):
            for opt in opts:
                opt.zero_grad()
            sum(loss_of(m, a, b) for m in twins).backward()
            for opt in opts:
                opt.step()
        return twins

    for names in (True, False):

        def wrap(opt, model, names=names):
            return ht.DistributedOptimizer(
                opt, model.named_parameters() if names else None, overlap=overlap, bucket_bytes=600
            )

        for model, single in zip(train(wrap, slice(r, None, n)), train(lambda opt, _: opt, slice(None)), strict=True):
            equal(model)
            close(model, single)


def adversaries(wrap, x, y, frozen=True):
    """A GAN: the generator's loss runs through the discriminator, which is frozen meanwhile."""
    torch.manual_seed(5)
    maker, judge = network(), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    makers, judges = wrap(momentum(maker.parameters())), wrap(torch.optim.Adam(judge.parameters(), lr=0.01))
    for a, b in zip(x, y, strict=True):
        judge.requires_grad_(True)
        judges.zero_grad()
        (judge(maker(a).detach()).mean() - judge(functional.one_hot(b, 4).float()).mean()).backward()
        judges.step()
        judge.requires_grad_(not frozen)
        makers.zero_grad()
        (-judge(maker(a)).mean()).backward()
        makers.step()
    return maker, judge


def part_adversaries(overlap):
    r, n = hora.rank(), hora.size()
    x, y = batches(n)

    def wrap(opt):
        return ht.DistributedOptimizer(opt, overlap=overlap)

    pair = adversaries(wrap, x[:, r::n], y[:, r::n])
    equal(*pair)
    for model, single in zip(pair, adversaries(lambda opt: opt, x, y), strict=True):
        close(model, single, 1e-4)
    with pytest.raises(AssertionError, match=r"as a GAN's does, call requires_grad_\(False\)"):
        adversaries(wrap, x[:, r::n], y[:, r::n], frozen=False)
    hora.barrier()


# -- torch's GradScaler


def scaled(clip=False, explicit=False):
    """Training with a scaler; one rank's third batch overflows."""

    def train(model, opt, x, y):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        if x.shape[1] > 4 or hora.rank() == 1:
            x[2, 1, 0] = float("inf")
        for a, b in zip(x, y, strict=True):
            opt.zero_grad()
            scaler.scale(loss_of(model, a, b)).backward()
            skip = explicit and hasattr(opt, "synchronize")
            if skip:
                opt.synchronize()
            if clip or skip:
                scaler.unscale_(opt)
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            if skip:
                with opt.skip_synchronize():
                    scaler.step(opt)
            else:
                scaler.step(opt)
            scaler.update()
        return scaler.get_scale()

    return train


def part_scaled(overlap):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ways in ({}, {"clip": True}, {"explicit": True}):
            together(scaled(**ways), overlap=overlap)
        together(scaled(), wide, overlap=overlap)
        together(scaled(), make=lambda p: torch.optim.AdamW(p, lr=0.01, fused=True), overlap=overlap, tolerance=1e-4)
    # What is left out of one step and added to the next must not carry the overflow on.
    for compression, bound in (("fp16", 5e-3), ("int8", 5e-2), (ht.Compression.powersgd(2, start_iteration=0), 1.0)):
        together(scaled(), overlap=overlap, compression=compression, tolerance=bound)
    r, n = hora.rank(), hora.size()
    x, y = batches(n)
    model = network()
    opt = ht.DistributedOptimizer(momentum(model.parameters()), op=hora.ADASUM)
    assert scaled()(model, opt, x[:, r::n].clone(), y[:, r::n]) == 512
    equal(model)
    assert torch.isfinite(flat(model)).all()


PARTS = [name for name in globals() if name.startswith("part_")]


def work_part(name):
    hora.init()
    for overlap in (False, True):
        globals()[name](overlap)


@pytest.mark.parametrize("part", PARTS)
def test_programs(ranks, part):
    ranks(2, work_part, args=(part,), timeout=90)


# -- ranks that differ


def work_frozen(way):
    """A layer that one rank trains and the other does not: an error, not weights that drift apart."""
    hora.init()
    r, n = hora.rank(), hora.size()
    x, y = batches(n)
    model = network()
    opt = ht.DistributedOptimizer(momentum(model.parameters()), model.named_parameters(), named=way != "ordered")
    model[0].requires_grad_(way != "thawed")
    with pytest.raises(RuntimeError) as e:
        for i, (a, b) in enumerate(zip(x[:, r::n], y[:, r::n], strict=True)):
            if i == 3 and r == 1:
                model[0].requires_grad_(way == "thawed")
            step(model, opt, a, b)
    print(e.type.__name__, e.value)


@pytest.mark.parametrize("way", ["frozen", "ordered", "thawed"])
def test_frozen_on_one_rank(ranks, way):
    outs = ranks(2, work_frozen, args=(way,), timeout=60, env={"HORA_OP_TIMEOUT": "2"})
    for r, out in enumerate(outs):
        if way == "thawed":
            assert f"rank {1 - r} has not come" in out, out
        else:
            assert out.startswith("MismatchError") and "rank 0" in out and "rank 1" in out and "requires_grad" in out, (
                out
            )
    if way == "thawed":
        assert "now trained: 0.weight" in outs[1], outs[1]
