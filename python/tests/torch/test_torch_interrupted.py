"""Exceptions of signal handlers in the middle of what hora.torch and torch.distributed do."""

import signal
import time

import pytest
import torch
import torch.distributed as dist
from training import start

import hora
import hora.torch
from hora import _lib


class Interrupted(Exception):
    """What the handlers here raise."""


def interrupt(*_):
    raise Interrupted


def cut(call):
    """Make a call that does not end before the handler raises."""
    signal.signal(signal.SIGALRM, interrupt)
    with pytest.raises(Interrupted):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        call()


def work_collectives():
    rank, _ = start()
    peer = 1 - rank
    whole = torch.empty(40_000)
    forms = [
        lambda x: dist.all_reduce(x), lambda x: dist.all_reduce(x, async_op=True).wait(),
        lambda x: dist.broadcast(x, 1),
        lambda x: dist.reduce(x, 1), lambda x: dist.all_gather([torch.empty(20_000) for _ in range(2)], x),
        lambda x: dist.all_gather_into_tensor(whole.clone(), x),
        lambda x: dist.reduce_scatter_tensor(torch.empty(10_000), x),
        lambda x: dist.all_to_all_single(torch.empty(20_000), x),
        lambda x: dist.recv(x, peer) if rank == 0 else dist.send(x, peer),
        lambda x: dist.all_reduce_coalesced([x, x.clone()]), lambda x: dist.barrier(),
    ]  # fmt: skip
    after = torch.zeros(1)
    for i, form in enumerate(forms):
        for _ in range(5):
            dist.barrier()
            if rank == 0:
                cut(lambda form=form, i=i: form(torch.full((20_000,), float(i))))
                noise = [torch.full((20_000 * k,), float("nan")) for k in (1, 2) for _ in range(3)]
            else:
                time.sleep(0.15)
                x = torch.full((20_000,), float(i + 1))
                form(x)
                assert i not in (0, 1, 3) or (x == 2 * i + 1).all(), (i, x)
            after.fill_(1)
            dist.all_reduce(after)
            assert after.item() == 2
            noise = None
    assert noise is None
    _lib.reap()
    assert not _lib.orphans


def test_collectives(ranks):
    ranks(2, work_collectives)


def model():
    torch.manual_seed(1)
    return torch.nn.Linear(100, 300)


def work_optimizer():
    hora.init()
    rank = hora.rank()
    net = model()
    optimizer = hora.torch.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), overlap=False
    )

    def backward():
        optimizer.zero_grad()
        (net(torch.full((4, 100), rank + 1.0)).sum() * (rank + 1)).backward()

    for _ in range(2):
        backward()
        optimizer.step()
    hora.barrier()
    backward()
    if rank == 0:
        cut(optimizer.step)
        assert net.weight.grad is None, "the averages on their way have their memory to themselves"
        (net(torch.full((4, 100), 1000.0)).sum()).backward()
        with pytest.raises(
            RuntimeError,
            match="Interrupted cut an earlier reduction of gradients short on rank 0.*broadcast_parameters",
        ):
            optimizer.step()
    else:
        time.sleep(0.3)
        optimizer.step()
        # (1·4·1 + 2·4·2) / 2
        assert torch.allclose(net.weight.grad, torch.full((300, 100), 10.0)), net.weight.grad
    # What the sentence says to do.
    hora.torch.broadcast_parameters(net.state_dict(), root_rank=1)
    optimizer = hora.torch.DistributedOptimizer(optimizer, net.named_parameters(), overlap=False)
    backward()
    optimizer.step()
    both = hora.allgather(net.weight.detach().reshape(1, -1))
    assert (both[0] == both[1]).all()


def test_optimizer(ranks):
    ranks(2, work_optimizer)


def work_model():
    rank, _ = start()
    ddp = hora.torch.accelerate(
        torch.nn.parallel.DistributedDataParallel(model(), gradient_as_bucket_view=True), overlap=False
    )

    def backward():
        ddp.zero_grad(set_to_none=False)
        (ddp(torch.full((4, 100), rank + 1.0)).sum() * (rank + 1)).backward()

    for _ in range(2):
        backward()
    dist.barrier()
    if rank == 0:
        cut(backward)
        with pytest.raises(RuntimeError, match="Interrupted cut an average of gradients short on rank 0"):
            backward()
    else:
        time.sleep(0.3)
        backward()
        assert torch.allclose(ddp.module.weight.grad, torch.full((300, 100), 10.0))
    dist.barrier()


def test_model(ranks):
    ranks(2, work_model)


def work_horovod():
    import horovod.torch as hvd

    hvd.init()
    rank = hvd.rank()
    forms = [
        lambda x, i: hvd.allreduce(x, name=f"a{i}", op=hvd.Sum), lambda x, i: hvd.allreduce_(x, name="b", op=hvd.Sum),
        lambda x, i: hvd.allgather(x, name="c"), lambda x, i: hvd.broadcast(x, 1, name="d"), lambda x,
        i: hvd.alltoall(x),
        lambda x, i: hvd.grouped_allreduce([x, x], name=f"e{i}", op=hvd.Sum)[0], lambda x,
        i: hvd.reducescatter(x, op=hvd.Sum, name="f"),
        lambda x, i: hvd.allreduce(x, name="g", op=hvd.Sum), lambda x, i: hvd.barrier(),
    ]  # fmt: skip
    for f, form in enumerate(forms):
        for i in range(4):
            hvd.barrier()
            x = torch.full((20_000,), float(f + rank))
            if rank == 0:
                cut(lambda x=x, form=form, i=i: form(x, i))
            else:
                time.sleep(0.15)
                y = form(x, i)
                assert f not in (0, 1, 5, 6, 7) or (y == 2 * f + 1).all(), (f, y)
                assert f not in (3,) or (y == f + 1).all(), (f, y)
            del x
            noise = [torch.full((20_000 * k,), float("nan")) for k in (1, 2) for _ in range(3)]
            z = form(torch.full((20_000,), 1.0), i + 100)
            assert z is None or f not in (0, 1, 5, 6, 7) or (z == 2).all(), (f, z)
            del noise
    if rank == 1:
        time.sleep(0.2)
    h = hvd.allreduce_async(torch.ones(3) * rank, name="again", op=hvd.Sum)
    if rank == 0:
        cut(lambda: hvd.synchronize(h))
    assert (hvd.synchronize(h) == 1).all(), "a handle stays good"


def test_horovod(ranks):
    ranks(2, work_horovod)
