"""Exceptions that a signal handler raises in the middle of a call: the operation goes on, and keeps its memory."""

import signal
import time

import numpy as np
import pytest

import hora

WITHOUT = "import sys; sys.modules['hora._fast'] = None"


class Interrupted(Exception):
    """What the handlers here raise."""


def interrupt(*_):
    raise Interrupted


def work_goes_on(how: str):
    """Rank 0 gives up waiting where rank 1 is late, and goes on with the next turn."""
    hora.init()
    signal.signal(signal.SIGALRM, interrupt)
    hora.allreduce(np.zeros(1), name="first", named=True)
    hora.barrier()
    rank, size, turns, given_up = hora.rank(), 50_000, 60, 0
    kept = {}
    for turn in range(turns):
        x = np.full(size, float(turn + rank))
        call = {
            "named": {"name": f"turn {turn}", "named": True}, "same name": {"name": "turn", "named": True},
            "ordered": {}, "grouped": {}, "in place": {"out": x},
        }[how]  # fmt: skip
        if rank == 1 and turn % 3 == 2:
            time.sleep(0.06)
        if rank == 0 and (
            how != "same name" or turn % 3
        ):  # a call of that name begins when the one before has ended: that one is waited for
            signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            y = hora.allreduce([x], **call)[0] if how == "grouped" else hora.allreduce(x, **call)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert (y == 2 * turn + 1).all(), f"turn {turn}: {np.unique(y)}"
        except Interrupted:
            given_up += 1
            if how == "in place":
                kept[turn] = x
        x = y = None
    signal.setitimer(signal.ITIMER_REAL, 0)
    hora.barrier()
    assert all((x == 2 * turn + 1).all() for turn, x in kept.items())
    assert rank == 1 or given_up > 5, given_up
    hora.allreduce(np.zeros(1))
    from hora import _lib

    end = time.monotonic() + 10
    while _lib.orphans or _lib.in_flight:  # what has ended is given back
        _lib.reap()
        assert time.monotonic() < end, (_lib.orphans, list(_lib.in_flight))


@pytest.mark.parametrize("before", ["", WITHOUT], ids=["short", "ctypes"])
@pytest.mark.parametrize("how", ["named", "same name", "ordered", "grouped", "in place"])
def test_a_call_that_was_given_up(ranks, how, before):
    ranks(2, work_goes_on, args=(how,), before=before)
