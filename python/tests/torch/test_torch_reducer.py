"""An accelerated DDP model, whose reducer sleeps, beside DDP on gloo: whatever a script does with it, the gradients are
DDP's."""

from __future__ import annotations

import copy
import datetime
import gc
import io
import os
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as Ddp
from torch.utils.checkpoint import checkpoint
from training import fit, flat, moved, network, same, same_everywhere, sgd, start


def asleep(model) -> bool:
    return type(model.reducer).__name__ == "Sleeper"


def wrap(model, overlap=None, plain=True, **settings):
    """DDP; on backend hora accelerated."""
    import hora.torch

    model = Ddp(model, **settings)
    if dist.get_backend() == "hora":
        assert hora.torch.accelerate(model, overlap) is model and isinstance(model, Ddp)
        assert asleep(model) == plain, settings
    return model


def grads(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def batch(i=0):
    """Another one on each rank."""
    g = torch.Generator().manual_seed(100 * i + dist.get_rank())
    return torch.randn(4, 8, generator=g)


def wide():
    """Its gradients are taken one by one."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))


def trained(model, steps=4, set_to_none=True, late=False):
    opt = sgd(model)
    for i in range(steps):
        if not late:
            opt.zero_grad(set_to_none)
        loss = model(batch(i)).square().mean()
        if late:
            opt.zero_grad(set_to_none)
        loss.backward()
        opt.step()
    same_everywhere(model)
    return flat(model)


# -- ways to come to gradients. Each gives a tensor that is the same on gloo.


def steps(view, overlap):
    out = []
    for net in (network, wide):
        for how in ({}, {"late": True, "set_to_none": False}):
            model = wrap(net(), overlap, gradient_as_bucket_view=view, bucket_cap_mb=0.002)
            out.append(trained(model, **how))
            if view and dist.get_backend() == "hora":
                assert {p.grad.data_ptr() for p in model.parameters()} == {
                    v.data_ptr() for b in model.reducer._own.buckets for v in b.views
                }
    return torch.cat(out)


def accumulated(view, overlap):
    """no_sync, then gradients that nobody zeroes."""
    model = wrap(wide(), overlap, gradient_as_bucket_view=view)
    out = []
    for turn in range(3):
        with model.no_sync():
            for i in range(2):
                model(batch(i)).square().mean().backward()
        local = grads(model)
        model(batch(2)).square().mean().backward()
        out += [local, grads(model)]
        model(batch(3)).square().mean().backward()
        out.append(grads(model))
        if turn == 1:
            model.zero_grad()
    return torch.cat(out)


def kept(view, overlap):
    """What a script holds of an earlier gradient: its own without views."""
    model = wrap(wide(), overlap, gradient_as_bucket_view=view)
    model(batch(0)).square().mean().backward()
    held = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(batch(1)).square().mean().backward()
    return torch.zeros(1) if view else torch.cat([g.reshape(-1) for g in held])


def several_forwards(view, overlap):
    model = wrap(wide(), overlap, gradient_as_bucket_view=view)
    out = []
    for i in range(2):
        model.zero_grad()
        (model(batch(i)).square().mean() + model(batch(i + 1)).square().mean()).backward()
        out.append(grads(model))
        one, two = model(batch(i)).square().mean(), model(batch(i + 1)).square().mean()
        one.backward()
        two.backward()  # DDP averages the first only
        out.append(grads(model))
        with torch.no_grad():
            model(batch(9))
        model.eval()
        model(batch(8))
        model.train()
        model(batch(7)).sum().backward()
        out.append(grads(model))
    return torch.cat(out)


def retained(view, overlap):
    """Two backward passes of one forward pass: the second stays local."""
    model = wrap(wide(), overlap, gradient_as_bucket_view=view)
    out = []
    for i in range(3):
        loss = model(batch(i)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        out.append(grads(model))
    return torch.cat(out)


class Heads(nn.Module):
    """Two parts that share nothing, one part used twice, and a loss that is not its output."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 128)
        self.aside = None

    def forward(self, x):
        left, right = self.left(self.left(x)).square().mean(), self.right(x).square().mean()
        self.aside = right
        return left, right


def in_parts(view, overlap):
    """One pass brings some gradients, the next one the others, in either order."""
    model = wrap(Heads(), overlap, gradient_as_bucket_view=view)
    out = []
    for i in range(4):
        left, right = model(batch(i))
        for loss in (left, model.module.aside) if i % 2 else (right, left):
            loss.backward()
        out.append(grads(model))
    return torch.cat(out)


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.net, self.reentrant = wide(), reentrant

    def forward(self, x):
        x = x.clone().requires_grad_()
        x = checkpoint(self.net[:2], x, use_reentrant=self.reentrant)
        return checkpoint(self.net[2:], x, use_reentrant=self.reentrant)


def checkpoints(view, overlap):
    return torch.cat([trained(wrap(Checkpointed(r), overlap, gradient_as_bucket_view=view)) for r in (True, False)])


def higher(view, overlap):
    """autograd.grad, which is no backward pass."""
    model = wrap(network(), overlap, gradient_as_bucket_view=view)
    out = []
    for i in range(2):
        x = batch(i).requires_grad_()
        y = model(x).square().mean()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (y + g.square().sum()).backward()
        out.append(grads(model))
        model.zero_grad()
    return torch.cat(out)


def failing(view, overlap):
    """A forward pass and a loss that raise change nothing."""
    model = wrap(network(), overlap, gradient_as_bucket_view=view)
    for i in range(2):
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3))
        model(batch(i))  # nobody goes back
    return trained(model)


def layouts(view, overlap):
    """Element types that differ, a layout of its own, parameters without dimensions, some that need no gradient,
    buffers."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(6)
            self.conv = nn.Conv2d(2, 64, 3).to(memory_format=torch.channels_last)
            self.norm = nn.BatchNorm2d(64)
            self.wide = nn.Parameter(torch.randn(64, dtype=torch.float64))
            self.scale = nn.Parameter(torch.tensor(0.5))
            self.fixed = nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, x):
            return (
                (self.norm(self.conv(x)).mean((0, 2, 3)).double() * self.wide * self.scale + self.fixed.sum())
                .square()
                .mean()
            )

    net = Net()
    model = wrap(net, overlap, gradient_as_bucket_view=view)
    opt = sgd(model)
    for i in range(3):
        opt.zero_grad()
        model(batch(i)[:, :, None, None].expand(4, 8, 4, 4).reshape(16, 2, 4, 4) * batch(i)[0, 0]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
    assert (
        net.conv.weight.grad.is_contiguous(memory_format=torch.channels_last) and net.wide.grad.dtype is torch.float64
    )
    before = net.norm.running_mean.clone()
    model(torch.zeros(4, 2, 4, 4))  # rank 0's buffers
    rest = [p.detach().double().reshape(-1) for p in model.parameters()]
    return torch.cat([*rest, (net.norm.running_mean if dist.get_rank() else before).double()])


def joined(view, overlap):
    """Uneven inputs wake the reducer; training goes on with it."""
    model = wrap(network(), overlap, gradient_as_bucket_view=view)
    model.forward = model.forward  # as trainers do that put theirs around it
    start = trained(model, 2)
    opt = sgd(model)
    with model.join():
        for i in range(2 + 2 * dist.get_rank()):
            opt.zero_grad()
            model(batch(i)).square().mean().backward()
            opt.step()
    assert not asleep(model)
    same_everywhere(model)
    return torch.cat([start, trained(model, 2)])


def copied(view, overlap):
    """Copies are DDP models of their own."""
    model = wrap(network(), overlap, gradient_as_bucket_view=view)
    out = [trained(model, 2)]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for twin in (copy.deepcopy(model), loaded):
        assert type(twin) is Ddp and isinstance(model, Ddp) and repr(twin) == repr(model)
        out.append(trained(twin, 2))
    assert [*model.state_dict()] == [f"module.{k}" for k in network().state_dict()]
    model.load_state_dict(model.state_dict())
    return torch.cat([*out, trained(model, 2)])


def sharded_state(view, overlap):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = wrap(network(), overlap, gradient_as_bucket_view=view)
    fit(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01), dist.get_rank(), 2)
    same_everywhere(model)
    return flat(model)


PARTS = [
    steps, accumulated, kept, several_forwards, retained, in_parts, checkpoints, higher, failing, layouts, joined,
    copied, sharded_state,
]  # fmt: skip


def work_as_gloo():
    ours = {}
    start("hora")
    for part in PARTS:
        for view in (False, True):
            for overlap in (False, True):
                before = moved()
                ours[part, view, overlap] = part(view, overlap)
                assert moved() > before, part
    dist.destroy_process_group()
    gc.collect()
    start("gloo")
    for part in PARTS:
        for view in (False, True):
            theirs = part(view, None)
            for overlap in (False, True):
                what = f"{part.__name__}, view {view}, overlap {overlap}"
                torch.testing.assert_close(
                    ours[part, view, overlap], theirs, rtol=1e-5, atol=1e-5, msg=lambda m, w=what: f"{w}: {m}"
                )
    # Gloo's end is not ours to wait for: before torch 2.8 it holds the GIL while a thread of its own needs that to free
    # a tensor.
    meet("compared")


def test_gradients_are_those_of_gloo(ranks):
    ranks(2, work_as_gloo, timeout=120)


# -- models that need DDP's reducer


def work_reducer_awake():
    def with_hook(model):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        model.register_comm_hook(None, allreduce_hook)
        return model

    import hora.torch

    start()
    reference = trained(Ddp(network()))
    for settings in ({"find_unused_parameters": True}, {"static_graph": True}):
        same(trained(wrap(network(), plain=False, **settings)), reference)
    for change in ("_set_static_graph", "_update_process_group"):  # asked for afterwards
        model = wrap(network())
        getattr(model, change)(*[dist.group.WORLD][: change == "_update_process_group"])
        assert not asleep(model)
        same(trained(model), reference)
    with pytest.raises(RuntimeError, match="only be called once"):
        hora.torch.accelerate(with_hook(Ddp(network())))
    model = wrap(network())
    with pytest.raises(AttributeError):
        _ = model.reducer.something
    assert asleep(model)
    same(trained(with_hook(model)), reference)
    assert not asleep(model)
    for view in (False, True):  # DDP only warns of this one; then it raises on gloo
        model, twin = wrap(network(), gradient_as_bucket_view=view), wrap(network())
        for m in (model, twin):
            m(batch()).square().sum().backward(create_graph=m is model)
        same(grads(model).detach(), grads(twin))
        assert not any(v.requires_grad for b in model.reducer._own.buckets for v in b.views)
        model.zero_grad()
    half = wrap(network().to(torch.bfloat16))
    half(batch().bfloat16()).sum().backward()
    dist.destroy_process_group()


def test_models_that_need_the_reducer(ranks):
    ranks(2, work_reducer_awake, timeout=90)


def work_frozen_and_thawed():
    """What needed no gradient when DDP wrapped the model is left alone; a wrapper over the same module takes over."""
    start()
    net = network()
    net[0].weight.requires_grad_(False)
    model = wrap(net)
    net[0].weight.requires_grad_(True)
    opt = sgd(model)
    for i in range(2):
        opt.zero_grad()
        model(batch(i)).sum().backward()
    every = [torch.empty_like(net[0].weight) for _ in range(2)]
    dist.all_gather(every, net[0].weight.grad)
    assert not torch.equal(*every)
    dist.all_gather(every := [torch.empty_like(net[2].weight) for _ in range(2)], net[2].weight.grad)
    assert torch.equal(*every)
    own = model.reducer._own
    assert own.hooks and own.buckets
    model.zero_grad()
    del model
    gc.collect()
    assert not own.hooks and not own.buckets, "the hooks outlived their model"
    model, x = wrap(net), batch()
    trained(model)
    dist.destroy_process_group()
    gc.collect()
    assert grads(model).isfinite().all()  # gradients outlive the group
    with pytest.raises(RuntimeError):
        model(x).sum().backward()
    assert grads(model).isfinite().all()
    del model
    gc.collect()
    start()
    trained(wrap(net))
    dist.destroy_process_group()


def test_models_wrapped_again(ranks):
    ranks(2, work_frozen_and_thawed, timeout=90)


# -- what goes wrong


def meet(name):
    """Ends this process once every rank has come here."""
    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    met = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.{name}", n)
    met.set(str(r), "here")
    met.wait([str(i) for i in range(n)], datetime.timedelta(seconds=60))
    sys.stdout.flush()
    os._exit(0)


def work_missing(who, overlap):
    """A parameter that takes no part is named before the next forward pass, and no rank is left waiting."""
    r, _ = start(timeout=datetime.timedelta(seconds=2))
    model = wrap(Heads(), overlap)
    opt = sgd(model)
    for i in range(2):
        opt.zero_grad()
        sum(model(batch(i))).backward()
        opt.step()
    opt.zero_grad()
    lost = r == 1 or who == "all"
    if lost:
        model(batch(2))[0 if overlap else 1].backward()
        opt.zero_grad()
        side = "right" if overlap else "left"
        for _ in range(2):
            with pytest.raises(
                RuntimeError,
                match=rf"on rank {r} the last backward pass brought no gradient of {side}.weight, {side}.bias\. ",
            ):
                model(batch(3))
        with pytest.raises(RuntimeError, match="finished reduction"):
            model._check_reducer_finalized()
    else:
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            sum(model(batch(2))).backward()
    meet("missing")


@pytest.mark.parametrize(("who", "overlap"), [("all", False), ("one", False), ("one", True)])
def test_parameters_without_a_gradient(job, who, overlap):
    for e in job(2, work_missing, args=(who, overlap)).wait(60):
        assert e.code == 0, e.err


def work_broken():
    """A backward pass that raises, a parameter that changed its type, one that comes twice."""

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ArithmeticError("broken")

    start(timeout=datetime.timedelta(seconds=20))
    model = wrap(Heads())
    sum(model(batch())).backward()
    with pytest.raises(ArithmeticError):
        x = Raises.apply(batch().requires_grad_())
        sum(model(x)).backward()
    with pytest.raises(RuntimeError, match=r"Expected to have finished reduction in the prior iteration"):
        model(batch())
    for view in (False, True):  # the module is left alone then, for another wrapper
        again = wrap(Heads(), gradient_as_bucket_view=view)
        sum(again(batch())).backward()
        with pytest.raises(ArithmeticError):
            sum(again(Raises.apply(batch().requires_grad_()))).backward()
        again._remove_autograd_hooks()
        other = wrap(again.module)
        for i in range(2):
            other.zero_grad()
            sum(other(batch(i))).backward()
        dist.all_gather(every := [torch.empty_like(grads(other)) for _ in range(2)], grads(other))
        assert torch.equal(*every) and not every[0].isnan().any()
    net, twin = network(), wrap(network())
    for _ in range(2):
        twin(batch()).sum().backward()
    for view, drop in ((False, True), (True, True), (False, False), (True, False)):
        model = wrap(net.float(), gradient_as_bucket_view=view)
        for _ in range(2):
            model(batch()).sum().backward()
            net.double().float()  # the gradients get memory of their own
        same(grads(model), grads(twin))
        if drop:
            model.zero_grad()
        net.double()
        with pytest.raises(RuntimeError, match="float64 .*was torch.float32 when DDP wrapped"):
            model(batch().double()).sum().backward()
        net.zero_grad()
    model = wrap(Heads(), overlap=True)
    for i in range(2):
        left, right = model(batch())
        left.backward(retain_graph=True)
        if i == 0:
            right.backward()
    model = wrap(Heads(), overlap=True, bucket_cap_mb=0.0001)
    sum(model(batch())).backward()
    left, right = model(batch())
    right.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="the gradient of right.* came a second time, after its bucket was sent"):
        right.backward()
    meet("broken")


def test_passes_that_fail(job):
    for e in job(2, work_broken).wait(60):
        assert e.code == 0, e.err


def work_differ():
    """Buckets that differ are named before any memory is shared."""
    r, _ = start(timeout=datetime.timedelta(seconds=30))
    model = wrap(network(), bucket_cap_mb=0.0001 if r else 25)
    with pytest.raises(dist.DistBackendError) as e:
        model(batch()).sum().backward()
    print(e.value)
    meet("differ")


def test_buckets_that_differ(job):
    for e in job(2, work_differ).wait(60):
        assert e.code == 0, e.err
        assert "Mismatched ALLREDUCE tensor shapes" in e.out and "rank 0" in e.out and "rank 1" in e.out, e.out
