"""What torch's profiler is shown of hora's collectives."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as Ddp
from training import network, sgd, start

SHAPE = [2, 3]


def calls(r, n):
    """Each of the backend's verbs, by the name of its event, with the shapes that go in on this rank."""
    x, parts, whole = torch.ones(SHAPE), [torch.empty(SHAPE) for _ in range(n)], torch.empty(2 * n, 3)
    many = [SHAPE] * n
    yield "all_reduce", [SHAPE], lambda: dist.all_reduce(x)
    yield "all_reduce", [SHAPE], lambda: dist.all_reduce(x, async_op=True).wait()
    yield "all_reduce", [SHAPE, SHAPE], lambda: dist.all_reduce_coalesced([x, x.clone()])
    yield "reduce", [SHAPE], lambda: dist.reduce(x, 0)
    yield "broadcast", [SHAPE], lambda: dist.broadcast(x, 0)
    yield "all_gather", [SHAPE], lambda: dist.all_gather(parts, x)
    yield "all_gather_into_tensor", [SHAPE], lambda: dist.all_gather_into_tensor(whole, x)
    yield "gather", [SHAPE], lambda: dist.gather(x, None if r else parts)
    yield "scatter", [] if r else many, lambda: dist.scatter(x, None if r else parts)
    yield "reduce_scatter", many, lambda: dist.reduce_scatter(x, parts)
    yield "reduce_scatter_tensor", [[2 * n, 3]], lambda: dist.reduce_scatter_tensor(x, whole)
    yield "all_to_all", [[2 * n, 3]], lambda: dist.all_to_all_single(torch.empty_like(whole), whole)
    yield "all_to_all", many, lambda: dist.all_to_all([torch.empty(SHAPE) for _ in range(n)], parts)
    yield "barrier", [], dist.barrier
    yield "recv" if r else "send", [SHAPE], lambda: dist.recv(x, 0) if r else dist.send(x, 1)
    yield "recvAnySource" if r else "send", [SHAPE], lambda: dist.recv(x) if r else dist.send(x, 1)


def profiled(way):
    if way == "autograd":
        return torch.autograd.profiler.profile(record_shapes=True)
    return torch.profiler.profile(record_shapes=True, activities=[torch.profiler.ProfilerActivity.CPU])


def events(prof):
    found = prof.function_events if hasattr(prof, "function_events") else prof.events()
    return [e for e in found if e.name.startswith("hora:")]


def work_verbs(way):
    from hora.torch.backend import HoraBackend

    r, n = start()
    before = HoraBackend.allreduce
    with profiled(way) as prof:
        for _, _, call in calls(r, n):
            call()
    assert HoraBackend.allreduce is before and "allreduce" not in vars(HoraBackend), (
        "something is left after the profiler"
    )
    found = events(prof)
    assert [e.name for e in found] == [f"hora:{name}" for name, _, _ in calls(r, n)]
    for e, (name, shapes, _) in zip(found, calls(r, n), strict=True):
        assert e.input_shapes == shapes and e.is_async and e.cpu_time > 0, (name, e.input_shapes, e.is_async)
    with profiled(way) as prof, pytest.raises((ValueError, TypeError)):
        dist.all_reduce(torch.empty(3, dtype=torch.float8_e4m3fnuz))
    assert len(events(prof)) == 1
    dist.destroy_process_group()


@pytest.mark.parametrize("way", ["autograd", "profile"])
def test_every_collective_is_an_event_with_shapes(ranks, way):
    ranks(2, work_verbs, args=(way,), timeout=60)


def work_gradients():
    """One event a bucket and step, whichever way the gradients go, whether a bucket is sent early or at the end."""
    import hora.torch

    start()

    def plain(model, _):
        return Ddp(model)

    def accelerated(model, overlap):
        return hora.torch.accelerate(Ddp(model), overlap)

    def hooked(model, overlap):
        return hora.torch.accelerate(Ddp(model, find_unused_parameters=True), overlap)

    for way in (plain, accelerated, hooked, None):
        for overlap in (False, True):
            model = network() if way is None else way(network(), overlap)
            opt = sgd(model)
            if way is None:
                opt = hora.torch.DistributedOptimizer(opt, model.named_parameters(), overlap=overlap)

            def steps(count, model=model, opt=opt):
                for _ in range(count):
                    opt.zero_grad()
                    model(torch.ones(2, 8)).sum().backward()
                    opt.step()

            steps(3)
            with profiled("profile") as prof:
                steps(2)
            sums = [e for e in events(prof) if e.name == "hora:all_reduce"]
            what = f"{way and way.__name__}, overlap {overlap}: {[(e.name, e.input_shapes) for e in events(prof)]}"
            # The reducer asks about unused parameters too.
            assert len(sums) == 2 * (1 + (way is hooked)), what
            assert all(e.input_shapes and e.input_shapes[0] for e in sums), what
            steps(1)
    dist.destroy_process_group()


def test_gradients_are_events(ranks):
    ranks(2, work_gradients, timeout=90)
