"""Ranks that wait for each other in different calls: told and ended where nothing can free them, left alone
elsewhere."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest

import hora

SOON = {"HORA_DEADLOCK_TIMEOUT": "1"}


def told(call, *says):
    """The call ends with a sentence that says all this."""
    with pytest.raises(RuntimeError) as e:
        call()
    text = str(e.value)
    assert "wait for each other and can never go on" in text, text
    for s in says:
        assert s in text, text


def one(group=None, **how):
    return hora.allreduce(np.ones(2), group=group, **how)


def named(name, times):
    for _ in range(times):
        one(name=name, named=True)


def work_batches():
    hora.init(named=True)
    r = hora.rank()
    cure = "hora.join() after the loop, or give all as many with hora.keras.shard or DistributedSampler(drop_last=True)"

    def train():
        named("g", 5 + r)
        one(name="loss")

    told(train, "rank 1 is in its 6th allreduce g", "rank 0 has left after 5", "rank 0 is in allreduce loss", cure)


def work_sets():
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    one(a), one(b)
    first, then = (a, b) if hora.rank() == 0 else (b, a)
    told(
        lambda: (one(first), one(then)),
        "rank 0 is in allreduce (call 2 of group a)",
        "rank 1 is in allreduce (call 2 of group b)",
    )


def work_join():
    hora.init(named=True)
    named("g", 3)
    told(lambda: one() if hora.rank() else hora.join(), "rank 0 is in join", "rank 1 is in allreduce")


def work_ring():
    hora.init()
    r, n = hora.rank(), hora.size()
    one()
    told(lambda: hora.recv(np.ones(2), (r - 1) % n), "rank 0 is in recv from rank 2", "and rank 2 has not sent")


def work_send():
    hora.init()
    big = np.ones(1 << 20)
    one()
    told(
        lambda: one() if hora.rank() else hora.send(big, 1),
        "rank 0 is in send to rank 1",
        "which rank 1 does not receive",
    )


def work_mixed():
    hora.init(named=True)
    r = hora.rank()
    pair = hora.Group([0, 1], tag="pair") if r < 2 else None
    named("w", 2)
    calls = [lambda: one(pair), lambda: hora.recv(np.ones(2), 2), lambda: named("z", 1), one]
    told(calls[r], "ranks 0-3", "group pair", "recv from rank 2", "allreduce z")


def work_threads():
    """Two threads of both ranks in two groups: all four wait."""
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    if hora.rank() == 0:
        other = threading.Thread(target=lambda: told(lambda: one(b)))
        other.start()
        told(lambda: one(a))
        other.join()
    else:
        told(one)


def work_horovod():
    import horovod.torch as hvd
    import torch

    hvd.init()
    x = torch.ones(2)

    def train():
        for _ in range(3 + hvd.rank()):
            hvd.allreduce(x, name="g")
        hvd.allreduce(x, name="loss")

    told(train, "rank 1 is in its 4th allreduce allreduce.g", "rank 0 is in allreduce allreduce.loss", "drop_last=True")


@pytest.mark.parametrize("links", ["", "tcp"])
@pytest.mark.parametrize(
    "n, work",
    [(2, work_batches), (2, work_sets), (2, work_join), (3, work_ring), (2, work_send), (4, work_mixed)],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_what_can_never_end_is_told(ranks, n, work, links):
    ranks(n, work, env=SOON, links=links)


def test_horovods_names(ranks):
    ranks(2, work_horovod, env=SOON)


def work_two_threads():
    """Each rank waits in one group for long while another thread of the other computes, and comes."""
    hora.init()
    r = hora.rank()
    groups = [hora.Group([0, 1], tag=t) for t in "ab"]

    def turns(i):
        for _ in range(2):
            time.sleep(2.0 if i == r else 0)
            assert one(groups[i])[0] == 2

    threads = [threading.Thread(target=turns, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def work_crosswise_in_the_background():
    """What is submitted and not waited for is no wait, and has come."""
    hora.init()
    r = hora.rank()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    first, then = (a, b) if r == 0 else (b, a)
    begun = one(first, async_=True)
    time.sleep(2.5 * r)
    assert one(then)[0] == 2
    assert begun.wait()[0] == 2


def work_slow():
    """One rank computes for long, with a thread that has never called hora."""
    hora.init(named=True)
    r = hora.rank()
    if r == 0:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            pass
    named("g", 2)
    if r == 1:
        time.sleep(2.5)  # writes a checkpoint
    assert one()[0] == 2


def work_looks_now_and_then():
    """A wait with a bound is no wait for ever: the thread goes on."""
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    first, then = (a, b) if hora.rank() == 0 else (b, a)
    begun = one(first, async_=True)
    with contextlib.suppress(hora.DeadlineError):
        begun.wait(2.5)
    other = one(then, async_=True)
    assert begun.wait()[0] == 2 and other.wait()[0] == 2


@pytest.mark.parametrize(
    "work",
    [work_two_threads, work_crosswise_in_the_background, work_slow, work_looks_now_and_then],
    ids=lambda v: v.__name__,
)
def test_what_may_end_is_left_alone(ranks, work):
    ranks(2, work, env=SOON)


def work_stopped(turns):
    hora.init(named=True)
    for _ in range(turns):
        named("g", 1)
        one()
        print("turn", flush=True)
        time.sleep(0.05)


def test_a_stopped_rank_is_left_alone(job):
    j = job(2, work_stopped, args=(40,), env=SOON)
    time.sleep(1.2)
    os.kill(j.processes[1].pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(j.processes[1].pid, signal.SIGCONT)
    for ended in j.wait():
        assert ended.code == 0, ended


def work_hidden_thread():
    """A thread that waits elsewhere, and has called hora, may free the others: nothing is proved."""
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    one(a), one(b)
    if hora.rank() == 0:

        def later():
            time.sleep(3)
            one(b)

        other = threading.Thread(target=lambda: (hora.barrier(group=a), later()))
        other.start()
        time.sleep(0.3)
        one(a)
        other.join()
    else:
        hora.barrier(group=a)
        one(b)
        one(a)


def test_a_thread_elsewhere_may_free_them(ranks):
    ranks(2, work_hidden_thread, env=SOON)


def work_stranger():
    """A thread that has never called hora frees the others, as late as it likes."""
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    if hora.rank() == 0:

        def later():
            time.sleep(3)
            assert one(b)[0] == 2

        other = threading.Thread(target=later, name="loader")
        other.start()
        assert one(a)[0] == 2
        other.join()
    else:
        assert one(b)[0] == 2
        assert one(a)[0] == 2


class Enough(Exception):
    pass


def work_handler():
    """A timer's handler ends the wait, and the program makes the call that the other waits for."""
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    if hora.rank() == 0:

        def enough(*_):
            raise Enough

        signal.signal(signal.SIGALRM, enough)
        signal.setitimer(signal.ITIMER_REAL, 3)
        with pytest.raises(Enough):
            one(a)
        assert one(b)[0] == 2
    else:
        assert one(b)[0] == 2
        assert one(a)[0] == 2


@pytest.mark.parametrize(
    "work, says",
    [
        (work_stranger, "rank 0 has a thread loader that has not called hora so far and"),
        (work_handler, "rank 0 has a handler of SIGALRM, which"),
    ],
)
def test_what_is_not_proved_is_told_only(job, work, says):
    ends = job(2, work, env=SOON).wait()
    assert all(e.code == 0 for e in ends), ends
    said = ends[0].err
    assert (
        f"nothing is ended for 2m0s, since {says} may yet free them" in said
        and "ranks 0-1 wait for each other: rank 0 is in" in said
    ), said
    assert said.count("nothing is ended") == 1, said


def work_idle():
    """A thread that has never called hora, and never will: the ranks are not left alone for ever."""
    hora.init()
    a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
    over = threading.Event()
    threading.Thread(target=over.wait, name="loader").start()
    mine = a if hora.rank() == 0 else b
    told(lambda: one(mine), "rank 0 is in allreduce", "rank 1 is in allreduce", "it has been so for 6s")
    over.set()
    assert hora.allreduce(np.ones(2))[0] == 2


def test_what_nobody_frees_ends(job):
    began = time.monotonic()
    ends = job(2, work_idle, env={"HORA_DEADLOCK_TIMEOUT": "0.05"}).wait()
    assert all(e.code == 0 for e in ends), ends
    assert ends[0].err.count("nothing is ended for 6s") == 1, ends[0].err
    assert time.monotonic() - began > 6
