"""Memory that is read and written at once, and names in use before the group of names is there: refused at the call."""

import time

import numpy as np
import pytest

import hora


def refused(call, says="overlap"):
    with pytest.raises(hora.ArgumentError, match=says):
        call()


def work_single():
    hora.init()
    rank, size = hora.rank(), hora.size()
    x = np.arange(3000.0)
    before = x.copy()
    for how in ({}, {"async_": True}, {"name": "n", "named": True}):
        refused(lambda how=how: hora.allreduce(x[:1000], out=x[500:1500], **how))
        refused(lambda how=how: hora.allreduce(x[500:1500], out=x[:1000], **how))
        refused(lambda how=how: hora.allreduce(x[:1000], out=x[999:1999], **how))
        refused(lambda how=how: hora.broadcast(x[:1000], out=x[500:1500], **how))
        refused(lambda how=how: hora.allgather(x[:1000], out=x[500 : 500 + 1000 * size], **how))
        refused(lambda how=how: hora.reduce_scatter(x[: 1000 * size], out=x[500:1500], **how))
        refused(
            lambda how=how: hora.alltoall(x[: 1000 * size], out=x[: 1000 * size], **how),
            "the result lies in memory of the input",
        )
        refused(
            lambda how=how: hora.alltoall(x[: 1000 * size], out=x[500 : 500 + 1000 * size], **how),
            "the result lies in memory",
        )
    refused(lambda: hora.allreduce([x[:1000]], out=[x[500:1500]]))
    assert (x == before).all()
    # On one rank alone, as these have a root: the others' arrays are apart.
    if rank == 0:
        refused(lambda: hora.reduce(x[:1000], out=x[500:1500], root=0))
        refused(lambda: hora.gather(x[:1000], out=x[500 : 500 + 1000 * size], root=0))
        refused(lambda: hora.scatter(x[: 1000 * size], out=x[500:1500], root=0))
    # What lies side by side, and in place, is fine; so is a name that was refused.
    assert (hora.allreduce(x[:1000], out=x[1000:2000]) == before[:1000] * size).all()
    x[:] = before
    for how in ({}, {"async_": True}, {"name": "n", "named": True}):
        y = np.ones(10)
        got = hora.allreduce(y, out=y, **how)
        assert (got.wait() if "async_" in how else got)[0] == size
        z = np.zeros(10)
        refused(lambda how=how, z=z: hora.allreduce(z[:6], out=z[3:9], **how))
    mine = np.zeros(4 * size)
    mine[4 * rank : 4 * rank + 4] = rank + 1
    hora.allgather(mine[4 * rank : 4 * rank + 4], out=mine)
    assert (mine.reshape(size, 4) == np.arange(1, size + 1)[:, None]).all()
    parts = np.ones(4 * size)
    hora.reduce_scatter(parts, out=parts[4 * rank : 4 * rank + 4])
    assert (parts[4 * rank : 4 * rank + 4] == size).all()
    assert hora.allreduce(1) == size


def test_results_over_inputs(ranks):
    ranks(2, work_single)


def work_grouped():
    hora.init()
    size = hora.size()
    x, y = np.ones(4000), np.ones(4000)
    for how in ({}, {"name": "g", "named": True}):
        refused(lambda how=how: hora.allreduce([x, x], out=[x, x], **how), r"numbers 1 and 2 of 2")
        refused(lambda how=how: hora.allreduce([x[:2000], x[1000:3000]], out=[x[:2000], x[1000:3000]], **how))
        refused(lambda how=how: hora.allreduce([x[:100], y[:100]], out=[y[50:150], np.zeros(100)], **how))
        refused(lambda how=how: hora.allreduce([y[:100], x[:100]], out=[np.zeros(100), y[99:199]], **how))
        many = [x[i : i + 10] for i in range(0, 1000, 10)]
        hora.allreduce(many, out=many, **how)
        refused(
            lambda how=how, many=many: hora.allreduce([*many, x[5:15]], out=[*many, np.zeros(10)], **how),
            r"1 and 101 of 101|2 and 101 of 101",
        )
        assert (x[:1000] == size).all() and (x[1000:] == 1).all()
        x[:] = 1
        a, b = hora.allreduce([x, x], **how)  # the same is read twice, and not written
        assert a[0] == b[0] == size
        c = [np.full(3, hora.rank() + 1.0)] * 2
        hora.broadcast(c, root=1, out=c, **how)  # tied parameters are one memory
        assert (c[0] == 2).all()


def test_grouped_calls(ranks):
    ranks(2, work_grouped)


def work_torch():
    import horovod.torch as hvd
    import torch
    import torch.distributed as dist
    from torch import nn

    hvd.init()
    t = torch.arange(100.0)
    with pytest.raises(ValueError, match="numbers 1 and 2 of 2"):
        hvd.grouped_allreduce_([t[:60], t[40:]], op=hvd.Sum)
    import os

    dist.init_process_group(
        "hora", store=dist.FileStore(os.environ["HORA_SECRET_FILE"] + ".s"), rank=hvd.rank(), world_size=hvd.size()
    )
    with pytest.raises(ValueError, match="overlap"):
        dist.all_gather_into_tensor(t[10:60], t[20:45])
    with pytest.raises(ValueError, match="overlap"):
        dist.reduce_scatter_tensor(t[10:35], t[:50])
    with pytest.raises(ValueError, match="the result lies in memory of the input"):
        dist.all_to_all_single(t, t)
    with pytest.raises(ValueError, match="overlap"):
        dist.all_reduce_coalesced([t[:60], t[40:]])
    dist.all_reduce(t)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    assert t[1].item() == 2


def test_torch(ranks):
    ranks(2, work_torch, warm=True)


def work_names():
    """Rank 0 alone asks again and again, before any named group is there, and in each life anew."""
    import horovod.torch as hvd
    import torch

    for life in range(2):
        hvd.init()
        hora.barrier()
        if hora.rank() == 0:
            h = hvd.allreduce_async(torch.ones(3), name="d", op=hvd.Sum)
            again = [
                lambda: hvd.allreduce_async(torch.ones(3), name="d"),
                lambda: hvd.allreduce_async_(torch.ones(3), name="d"),
                lambda: hora.allreduce(np.ones(3), name="allreduce.d", named=True),
                lambda: hora.allreduce([np.ones(3)] * 2, name=["x", "x"], named=True),
                lambda: hora.allgather(np.ones(3), name="allreduce.d", named=True, async_=True),
            ]  # fmt: skip
            for call in again * 2:
                with pytest.raises(ValueError, match="Duplicate tensor name"):
                    call()
        else:
            time.sleep(0.3)
            h = hvd.allreduce_async(torch.ones(3), name="d", op=hvd.Sum)
        assert (hvd.synchronize(h) == 2).all()
        h = hvd.allreduce_async(torch.ones(3), name="d", op=hvd.Sum)  # the name is free again
        assert (hvd.synchronize(h) == 2).all(), life
        hvd.shutdown()


def test_first_names(ranks):
    ranks(2, work_names, warm=True)
