"""hora.torch: the wrapped optimizer against one process on the joined batch, and what goes with it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import hora
import hora.torch as ht


def network(width=32):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def batches(n, steps=10):
    g = torch.Generator().manual_seed(1)
    return torch.randn(steps, 4 * n, 8, generator=g), torch.randint(0, 4, (steps, 4 * n), generator=g)


def alone(n, make, width=32):
    """The same training in one process on the joined batch."""
    model = network(width)
    opt = make(model.parameters())
    for x, y in zip(*batches(n), strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        opt.step()
    return model


def momentum(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def adam(params):
    return torch.optim.AdamW(params, lr=0.01)


def together(make, passes=1, drop=False, clip=False, closure=False, width=32, **settings):
    """This rank's part of the training."""
    r, n = hora.rank(), hora.size()
    model = network(width)
    opt = ht.DistributedOptimizer(
        make(model.parameters()), model.named_parameters(), backward_passes_per_step=passes, **settings
    )
    for x, y in zip(*batches(n), strict=True):
        if closure == "whole":

            def evaluate(x=x, y=y):
                opt.zero_grad()
                loss = functional.cross_entropy(model(x[r::n]), y[r::n])
                loss.backward()
                return loss

            assert opt.step(evaluate).item() > 0
            continue
        if drop:
            model.zero_grad()  # sets .grad to None behind the optimizer's back
        else:
            opt.zero_grad()
        for _ in range(passes):
            (functional.cross_entropy(model(x[r::n]), y[r::n]) / passes).backward()
        if clip:
            opt.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            with opt.skip_synchronize():
                opt.step()
        elif closure:
            opt.step(lambda: torch.zeros(()))
        else:
            opt.step()
    return model


def furthest(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters(), strict=True))


def bitwise_equal(model):
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    every = hora.allgather(flat).view(hora.size(), -1)
    assert all(torch.equal(e, every[0]) for e in every), "ranks' weights differ"


def moved():
    return sum(v for k, v in hora.counters().items() if "bytes" in k)


def work_exact():
    hora.init()
    n = hora.size()
    reference = {make: alone(n, make) for make in (momentum, adam)}
    ways = [
        {}, {"passes": 2}, {"drop": True}, {"clip": True}, {"closure": True}, {"closure": "whole"}, {"num_groups": 2},
        {"groups": 3},
        {"gradient_predivide_factor": float(n)}, {"bucket_bytes": 600}, {"named": False},
        {"compression": ht.Compression.powersgd(2, start_iteration=99)},
    ]  # fmt: skip
    for make, overlap, way in itertools.product((momentum, adam), (False, True), ways):
        before = moved()
        model = together(make, overlap=overlap, **way)
        assert moved() > before, "gradients did not go through hora"
        bitwise_equal(model)
        d = furthest(model, reference[make])
        assert d < 2e-5, (make.__name__, overlap, way, d)
    # Large buckets take each gradient as soon as it is there.
    wide = alone(n, momentum, 400)
    for overlap, way in itertools.product((False, True), ({}, {"passes": 2}, {"drop": True}, {"clip": True})):
        model = together(momentum, overlap=overlap, width=400, **way)
        bitwise_equal(model)
        d = furthest(model, wide)
        assert d < 2e-5, (overlap, way, d)
    groups = network()
    params = list(groups.parameters())
    opt = ht.DistributedOptimizer(momentum(params), groups=[params[:2], params[3:4]])
    groups(torch.ones(2, 8)).sum().backward()
    opt.step()
    assert [len(b.params) for b in opt._buckets[:2]] == [2, 1]


def work_evaluated():
    """LBFGS evaluates its closure until the loss is small enough: as often on each rank as one process does."""
    hora.init()
    r, n = hora.rank(), hora.size()
    x, y = batches(n)
    x = x.double()

    def train(make, mine):
        model = network().double()
        opt = make(model)
        rows = 0

        def evaluate():
            nonlocal rows
            rows += 1
            opt.zero_grad()
            loss = functional.cross_entropy(model(x[0][mine]), y[0][mine])
            loss.backward()
            return loss

        losses = [opt.step(evaluate).item() for _ in range(3)]
        return model, rows, losses

    for search in (None, "strong_wolfe"):

        def plain(model, search=search):
            return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, line_search_fn=search)

        one, times, losses = train(plain, slice(None))
        model, rows, heard = train(
            lambda m, make=plain: ht.DistributedOptimizer(make(m), m.named_parameters()), slice(r, None, n)
        )
        assert rows == times, (search, rows, times)
        assert torch.allclose(torch.tensor(heard), torch.tensor(losses), rtol=1e-6), (search, heard, losses)
        bitwise_equal(model)
        d = furthest(model, one)
        assert d < 1e-6, (search, d)


def test_lbfgs(ranks):
    ranks(2, work_evaluated)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_equal_to_one_process(ranks, n):
    ranks(n, work_exact if n > 1 else work_alone, timeout=120)


def work_alone():
    hora.init()
    model = together(momentum)
    assert furthest(model, alone(1, momentum)) == 0


def test_a_bucket_holds_one_device_and_one_type():
    """As a model has them whose layers lie on two devices; torch's "meta" stands for the second."""
    from hora.torch.buckets import assign

    kinds = [
        ("cpu", torch.float32),
        ("meta", torch.float32),
        ("cpu", torch.float64),
        ("meta", torch.float32),
        ("cpu", torch.float32),
    ]
    params = [nn.Parameter(torch.zeros(4, device=d, dtype=t)) for d, t in kinds]
    for groups in (None, [params[:2], params[2:]]):
        layout = assign(params, groups, 1 << 20)
        assert sorted(id(p) for members in layout for p in members) == sorted(map(id, params))
        assert all(len({(p.device, p.dtype) for p in members}) == 1 for members in layout)
        assert len(layout) == (3 if groups is None else 5)


def work_lossy():
    hora.init()
    reference = alone(hora.size(), momentum)
    c = ht.Compression
    for compression, bound in ((c.fp16, 5e-3), (c.bf16, 3e-2), (c.int8, 3e-2), (c.powersgd(4, start_iteration=2), 0.3)):
        for overlap in (False, True):
            model = together(momentum, compression=compression, overlap=overlap)
            bitwise_equal(model)
            assert 0 < furthest(model, reference) < bound, (compression, furthest(model, reference))

    class Half(ht.compression.Compressor):
        @staticmethod
        def compress(tensor):
            return tensor * 2, "twice"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "twice"
            return tensor / 2

    assert furthest(together(momentum, compression=Half), reference) < 2e-5
    # Error feedback: what one step leaves out, later ones bring. The sum over steps is close although each is coarse.
    int8 = c.int8(8)
    world = hora.world()
    g = torch.Generator().manual_seed(hora.rank())
    total = sent = 0
    for _ in range(50):
        flat = torch.randn(64, generator=g) * torch.logspace(-3, 0, 64)
        exact = hora.allreduce(flat, hora.AVERAGE)
        int8.reduce(0, flat, True, world)
        total, sent = total + exact, sent + flat
    assert (total - sent).abs().max() < 0.02


def test_compression(ranks):
    ranks(2, work_lossy, timeout=120)


def work_rare():
    hora.init()
    r, n = hora.rank(), hora.size()
    g = torch.Generator().manual_seed(5)
    index = torch.randint(0, 20, (6, 4 * n, 3), generator=g)

    def embedding():
        torch.manual_seed(0)
        return nn.Sequential(nn.EmbeddingBag(20, 6, sparse=True), nn.Linear(6, 3))

    reference = embedding()
    opt = torch.optim.SGD(reference.parameters(), lr=0.1)
    for i in index:
        opt.zero_grad()
        reference(i).pow(2).mean().backward()
        opt.step()
    for settings in ({}, {"sparse_as_dense": True}, {"overlap": True}):
        model = embedding()
        opt = ht.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **settings)
        for i in index:
            opt.zero_grad()
            model(i[r::n]).pow(2).mean().backward()
            opt.step()
        assert furthest(model, reference) < 1e-5, settings
    # A rank that lacks some gradients contributes zeros to them.
    for overlap in (False, True):
        model = network()
        opt = ht.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), overlap=overlap)
        before = [p.detach().clone() for p in model.parameters()]
        for _ in range(2):
            opt.zero_grad()
            (model[0](torch.ones(1, 8)) if r else model(torch.ones(1, 8))).sum().backward()
            opt.step()
        assert not torch.equal(before[-1], model[4].bias)
        bitwise_equal(model)
    # zero_grad between backward and step, and too many passes, are mistakes with a sentence.
    opt.zero_grad()
    model(torch.ones(1, 8)).sum().backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        opt.zero_grad()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        model(torch.ones(1, 8)).sum().backward()
    opt.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        opt.step()
    # channels_last weights keep their layout
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    opt = ht.DistributedOptimizer(torch.optim.SGD(conv.parameters(), lr=0.1))
    for _ in range(2):
        opt.zero_grad()
        conv(torch.ones(1, 3, 5, 5)).sum().backward()
        opt.step()
    assert conv.weight.grad.stride() == conv.weight.stride()
    # a scheduler made before the wrapping works on the same learning rate
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    opt = ht.DistributedOptimizer(inner)
    model(torch.ones(1, 8)).sum().backward()
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] == 0.5
    assert type(opt).__name__ == "SGD" and isinstance(opt, torch.optim.SGD)
    with pytest.raises(ValueError, match="unique"):
        ht.DistributedOptimizer(inner, [("a", p) for p in model.parameters()])
    # Adasum: parallel changes are averaged, orthogonal ones added.
    weight = nn.Parameter(torch.zeros(2 * n))
    opt = ht.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hora.ADASUM)
    weight.grad = -torch.ones(2 * n)
    opt.step()
    torch.testing.assert_close(weight.detach(), torch.ones(2 * n))
    weight.data.zero_()
    weight.grad = torch.zeros(2 * n)
    weight.grad[2 * r] = -1
    opt.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([1.0, 0.0] * n))


def test_rare_gradients(ranks):
    ranks(2, work_rare, timeout=120)


def work_thawed(settings):
    """Layers that are trained for a while: ranks stay equal, and equal to one process, whose momentum rests
    meanwhile."""
    hora.init()
    r, n = hora.rank(), hora.size()

    def train(opt, model, x, y):
        for p in model[0].parameters():
            p.requires_grad_(False)
        for step, (a, b) in enumerate(zip(x, y, strict=True)):
            if step in (4, 7):
                for p in model[0].parameters():
                    p.requires_grad_(step == 4)
            opt.zero_grad()
            functional.cross_entropy(model(a), b).backward()
            opt.step()

    x, y = batches(n)
    model, single = network(), network()
    opt = ht.DistributedOptimizer(momentum(model.parameters()), model.named_parameters(), **settings)
    train(opt, model, x[:, r::n], y[:, r::n])
    train(momentum(single.parameters()), single, x, y)
    bitwise_equal(model)
    assert furthest(model, single) < 2e-5, furthest(model, single)
    assert any(p in opt._home for p in model[0].parameters())


@pytest.mark.parametrize("settings", [{}, {"overlap": True}, {"num_groups": 2}])
def test_parameters_that_are_trained_later(ranks, settings):
    ranks(2, work_thawed, args=(settings,))


def work_equal_start():
    hora.init()
    r = hora.rank()
    torch.manual_seed(r)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    opt = torch.optim.Adam(model.parameters(), lr=0.1 * (r + 1))
    if r == 0:
        model(torch.randn(8, 4)).sum().backward()
        opt.step()
    ht.broadcast_parameters(model.state_dict(), root_rank=0)
    ht.broadcast_optimizer_state(opt, root_rank=0)
    bitwise_equal(model)
    state = opt.state_dict()
    assert state["param_groups"][0]["lr"] == 0.1 and len(state["state"]) == 4
    for s in state["state"].values():
        assert float(s["step"]) == 1
        every = hora.allgather(s["exp_avg"].reshape(1, -1).contiguous())
        assert torch.equal(every[0], every[-1])
    with pytest.raises(ValueError, match="LBFGS"):
        ht.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()))
    # batch normalization over ranks equals that over the joined batch
    n = hora.size()
    g = torch.Generator().manual_seed(2)
    x = torch.randn(6 * n, 5, 3, generator=g)
    weight = torch.randn(6 * n, 5, 3, generator=g)
    joined = nn.BatchNorm1d(5)
    y = joined(xj := x.clone().requires_grad_())
    (y * weight).sum().backward()
    layer = ht.SyncBatchNorm.convert(nn.Sequential(nn.BatchNorm1d(5)))[0]
    sizes = [6 * n - (n - 1), *[1] * (n - 1)]  # batches of different sizes
    at = sum(sizes[:r])
    mine = slice(at, at + sizes[r])
    out = layer(xm := x[mine].clone().requires_grad_())
    (out * weight[mine]).sum().backward()
    torch.testing.assert_close(out, y[mine], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(xm.grad, xj.grad[mine], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(layer.running_mean, joined.running_mean)
    torch.testing.assert_close(layer.running_var, joined.running_var)
    torch.testing.assert_close(hora.allreduce(layer.weight.grad), joined.weight.grad, rtol=1e-4, atol=1e-4)
    layer.eval()
    layer(x[:1])


@pytest.mark.parametrize("n", [2, 3])
def test_equal_start_and_batch_norm(ranks, n):
    ranks(n, work_equal_start, timeout=120)


def work_join():
    hora.init()
    r = hora.rank()
    model = nn.Linear(4, 1)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    opt = ht.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hora.SUM)
    for _ in range(3 + 2 * r):
        opt.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        opt.step()
    last = hora.join()
    assert last == hora.size() - 1
    if r == last:  # one unit per rank and step that was still there
        steps = sum(3 + 2 * i for i in range(hora.size()))
        torch.testing.assert_close(model.bias.detach(), torch.tensor([-float(steps)]))


def test_uneven_inputs(ranks):
    ranks(2, work_join, timeout=60)


def test_elastic_sampler_shares_out_what_is_left():
    data = list(range(23))
    seen = []
    sampler = ht.ElasticSampler(data, shuffle=True, seed=7)
    sampler.num_replicas, sampler.rank = 1, 0
    first = list(sampler)[:8]
    seen += first
    sampler.record_batch(0, 8)
    state = sampler.state_dict()
    again = ht.ElasticSampler(data, shuffle=True, seed=7)
    again.load_state_dict(state)
    assert sorted(seen + list(again)) == data
    again.set_epoch(1)
    assert sorted(again) == data and list(again) != list(ht.ElasticSampler(data, seed=7))
    assert list(ht.ElasticSampler(data, shuffle=False)) == data


def work_state():
    hora.init()
    r, n = hora.rank(), hora.size()
    torch.manual_seed(r)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1 * (r + 1), momentum=0.9)
    sampler = ht.ElasticSampler(list(range(20)), seed=3)
    state = ht.TorchState(model=model, optimizer=opt, sampler=sampler, step=r)
    if r == 0:
        sampler.record_batch(0, 4)
        state.commit()
    state.sync()
    bitwise_equal(model)
    assert state.step == 0 and opt.param_groups[0]["lr"] == 0.1 and sampler.processed_num == 4 * n
    kept = [p.detach().clone() for p in model.parameters()]
    model(torch.ones(2, 4)).sum().backward()
    opt.step()
    state.step = 5
    state.restore()
    assert state.step == 0 and all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))
    # Others have come or gone: what is left is shared out over those who are here.
    sampler.num_replicas, sampler.indices = 1, []
    for fn in state._resets:
        fn()
    left = set().union(*hora.allgather_object(list(sampler)))
    assert sampler.num_replicas == n and len(left) == 20 - 4 * n


def test_torch_state(ranks):
    ranks(2, work_state, timeout=60)
