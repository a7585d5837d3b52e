"""HORA_CHECK_CALLS: ranks compare where they make their calls."""

import numpy as np
import pytest

import hora


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
            with pytest.raises(hora.MismatchError, match=r"test_check_calls\.py:\d+ on rank 0 and .*test_check_calls\.py:\d+ on rank 1"):
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
