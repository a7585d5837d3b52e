"""HORA_CHECK_CALLS: ranks compare where they make their calls."""

import importlib
import tempfile

import numpy as np
import pytest

import hora
from hora.group import DTYPES, Call, Kind


def ended(h):
    for one in h if isinstance(h, list) else [h]:
        if isinstance(one, hora.Handle):
            one.wait()


def work_sites():
    hora.init()
    x = np.ones(2)
    for how in ({}, {"async_": True}):
        for _ in range(3):
            h = hora.allreduce(x, hora.SUM, **how)
            assert ((h.wait() if how else h) == hora.size()).all()
    hora.barrier()
    hora.allgather(np.ones(1 + hora.rank()))
    hora.allreduce([x, x])
    assert hora.broadcast_object(hora.rank()) == 0
    for how in ({}, {"async_": True}):
        for y in (x, [x, x]):
            with pytest.raises(
                hora.MismatchError, match=r"test_check_calls\.py:\d+ on rank 0 and .*test_check_calls\.py:\d+ on rank 1"
            ):
                if hora.rank() == 0:
                    ended(hora.allreduce(y, **how))
                else:
                    ended(hora.allreduce(y, **how))
    if hora.rank() == 0:  # of two ranks these are at two places by nature
        hora.send(x, 1)
        hora.allreduce(x, name="n", named=True)
    else:
        hora.recv(np.ones(2), 0)
        hora.allreduce(x, name="n", named=True)
    hora.barrier()


def test_sites(ranks):
    ranks(2, work_sites, env={"HORA_CHECK_CALLS": "1"})


def work_planned():
    hora.init()
    x = np.ones(2, np.float32)
    what = (Kind.ALLREDUCE, hora.SUM, DTYPES["float32"], 0, x.ctypes.data, x.ctypes.data, 2)
    if hora.rank() == 0:
        plan = hora.world().plan(Call(*what, keep=x))
    else:
        plan = hora.world().plan(Call(*what, keep=x))
    with pytest.raises(
        hora.MismatchError, match=r"test_check_calls\.py:\d+ on rank 0 and .*test_check_calls\.py:\d+ on rank 1"
    ):
        plan.run()


def test_plans(ranks):
    ranks(2, work_planned, env={"HORA_CHECK_CALLS": "1"})


def work_torch():
    import torch
    import torch.distributed as dist

    importlib.import_module("hora.torch")
    hora.init()
    store = hora.broadcast_object(tempfile.mktemp())
    dist.init_process_group("hora", rank=hora.rank(), world_size=hora.size(), init_method=f"file://{store}")
    x = torch.ones(2)
    for _ in range(3):
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_reduce(x, async_op=True).wait()
    with pytest.raises(
        dist.DistBackendError, match=r"test_check_calls\.py:\d+ on rank 0 and .*test_check_calls\.py:\d+ on rank 1"
    ):
        if hora.rank() == 0:
            dist.all_reduce(x)
        else:
            dist.all_reduce(x)


def work_horovod():
    import horovod.torch as hvd
    import torch

    hvd.init()
    x = torch.ones(2)
    for _ in range(3):
        hvd.allreduce(x)
        hvd.allreduce_(x, name="n")
        hvd.broadcast(x, 0)
        hvd.synchronize(hvd.allreduce_async_(x))
    with pytest.raises(
        hvd.HorovodInternalError,
        match=r"rank 0 is in .* at test_check_calls\.py:.*rank 1 is in .* at test_check_calls\.py:",
    ):
        if hvd.rank() == 0:
            hvd.allreduce_(x)
        else:
            hvd.allreduce_(x)


@pytest.mark.parametrize("work", [work_torch, work_horovod])
def test_frameworks(ranks, work):
    ranks(2, work, env={"HORA_CHECK_CALLS": "1", "HORA_DEADLOCK_TIMEOUT": "1"})


def work_elsewhere():
    hora.init()
    x = np.ones(2)
    if hora.rank() == 0:
        total = hora.allreduce(x)
    else:
        total = hora.allreduce(x)
    assert (total == 2).all()


def test_off(ranks):
    ranks(2, work_elsewhere)
