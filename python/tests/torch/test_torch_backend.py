"""torch.distributed with backend "hora": every verb against gloo."""

from __future__ import annotations

import datetime
import os
import time

import pytest
import torch
import torch.distributed as dist
import training

# Methods of torch's Backend class that hora leaves to torch, and why. A new release that adds a method fails the
# walk below until somebody has decided about it.
LEFT_TO_TORCH = {
    "Options": "the class of options",
    "bound_device_id": "a device that torch notes for itself",
    "eager_connect_single_device": "accelerators only",
    "_end_time_estimate": "refused: _supports_time_estimate is False",
    "_start_time_estimate": "refused: _supports_time_estimate is False",
    "_end_coalescing": "C++ calls end_coalescing",
    "_start_coalescing": "C++ calls start_coalescing",
    "_enable_collectives_timing": "refused: no device timers for host memory",
    "_get_backend_name": "calls getBackendName",
    "_pybind11_conduit_v1_": "pybind11's own",
    "_register_on_completion_hook": "refused by torch: supports_completion_hooks is False",
    "_set_group_uid": "a name that torch notes for itself",
    "get_reconfigure_handle": "refused: supports_reconfigure is False",
    "mem_allocator": "accelerators only",
    "memory_stats": "accelerators only",
    "merge": "refused by torch with a sentence",
    "new_window": "refused: supports_window is False",
    "reconfigure": "refused: supports_reconfigure is False",
    "register_abort_hook": "refused: supports_abort_hooks is False",
    "resume": "accelerators only",
    "setUsePgForSymmMemRendezvous": "accelerators only",
    "shrink": "refused: supports_shrinking is False",
    "suspend": "accelerators only",
    "unregister_abort_hook": "refused: supports_abort_hooks is False",
    "allocate_tensor": "refused: supports_tensor_alloc answers False",
}


def test_every_method_of_backend_is_decided_about():
    from torch._C._distributed_c10d import Backend

    from hora.torch.backend import HoraBackend

    own = set()
    for cls in HoraBackend.__mro__:
        if cls.__module__.startswith("hora"):
            own |= set(vars(cls))
    undecided = [n for n in dir(Backend) if not (n.startswith("__") or n in own or n in LEFT_TO_TORCH)]
    assert not undecided, f"torch {torch.__version__}: decide about {undecided}: override them or list them as refused"
    gone = [n for n in LEFT_TO_TORCH if n in own]
    assert not gone, f"listed as left to torch, but defined: {gone}"


def start():
    """The default group with backend hora, and a gloo group to compare with."""
    return *training.start(), dist.new_group(backend="gloo")


def work_verbs():
    r, n, gloo = start()
    assert dist.get_backend() == "hora"
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.float16):
        x = (torch.arange(12) % 5 + r).to(dtype).reshape(3, 4)

        def both(f, *tensors):
            """f on copies of the tensors over hora and over gloo; all results must be equal."""
            ours, theirs = [t.clone() for t in tensors], [t.clone() for t in tensors]
            f(None, *ours)
            f(gloo, *theirs)
            for a, b in zip(ours, theirs, strict=True):
                torch.testing.assert_close(a, b)

        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
            both(lambda g, t, op=op: dist.all_reduce(t, op, group=g), x)
        both(lambda g, t: dist.all_reduce(t, async_op=True, group=g).wait(), x)
        for root in range(n):
            both(lambda g, t, root=root: dist.broadcast(t, root, group=g), x)
        out = torch.zeros(n * 3, 4, dtype=dtype)
        both(lambda g, o, t: dist.all_gather_into_tensor(o, t, group=g), out, x)
        both(lambda g, t, *o: dist.all_gather(list(o), t, group=g), x, *out.chunk(n))
        wide = torch.cat([x + i for i in range(n)])
        both(lambda g, o, t: dist.reduce_scatter_tensor(o, t, group=g), torch.zeros_like(x), wide)
        both(lambda g, o, *t: dist.reduce_scatter(o, list(t), group=g), torch.zeros_like(x), *wide.chunk(n))
        both(lambda g, o, t: dist.all_to_all_single(o, t, group=g), torch.zeros_like(wide), wide)
        both(
            lambda g, o, *t: dist.scatter(o, list(t) if r == 1 else None, 1, group=g),
            torch.zeros_like(x),
            *wide.chunk(n),
        )
        both(lambda g, t, *o: dist.gather(t, list(o) if r == 1 else None, 1, group=g), x, *out.chunk(n))
    average = torch.full((5,), float(r))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    torch.testing.assert_close(average, torch.full((5,), (n - 1) / 2))
    reduced = torch.full((5,), float(r + 1))
    dist.reduce(reduced, 1)
    assert r != 1 or reduced.tolist() == [n * (n + 1) / 2] * 5
    uneven = torch.arange(sum(range(1, n + 1)), dtype=torch.float32) + 100 * r
    got = torch.zeros((r + 1) * n)
    dist.all_to_all_single(got, uneven, [r + 1] * n, list(range(1, n + 1)))
    want = torch.cat([torch.arange(r * (r + 1) // 2, (r + 1) * (r + 2) // 2) + 100.0 * p for p in range(n)])
    torch.testing.assert_close(got, want)
    strided = torch.arange(12.0).reshape(3, 4).t()
    dist.all_reduce(strided)
    torch.testing.assert_close(strided, n * torch.arange(12.0).reshape(3, 4).t())
    sparse = torch.sparse_coo_tensor([[0, r + 1]], [1.0, 2.0], (n + 1,), check_invariants=False)
    dist.all_reduce(sparse)
    torch.testing.assert_close(sparse.to_dense(), torch.tensor([float(n), *([2.0] * n)]))
    with dist._coalescing_manager():
        a, b = torch.ones(3), torch.ones(4)
        dist.all_reduce(a)
        dist.all_reduce(b)
    assert a.tolist() == [n] * 3 and b.tolist() == [n] * 4
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": r})
    assert objects == [{"rank": i} for i in range(n)]
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    future.wait()
    assert future.value()[0].tolist() == [n, n]
    assert training.moved() > 0
    dist.destroy_process_group()


@pytest.mark.parametrize("n", [2, 3])
def test_verbs_agree_with_gloo(ranks, n):
    ranks(n, work_verbs, timeout=120)


def work_seldom_verbs():
    """Lists of unequal parts, several at once, bits and factors: results that gloo has no counterpart for."""
    r, n = training.start()
    parts = [torch.zeros(r + p + 1) for p in range(n)]
    dist.all_to_all(parts, [torch.full((r + p + 1,), 10.0 * r + p) for p in range(n)])
    assert [t.tolist() for t in parts] == [[10.0 * p + r] * (r + p + 1) for p in range(n)]
    dist.all_gather(parts := [torch.zeros(p + 1) for p in range(n)], torch.full((r + 1,), float(r)))
    assert [t.tolist() for t in parts] == [[float(p)] * (p + 1) for p in range(n)]
    dist.reduce_scatter(mine := torch.zeros(r + 1), [torch.full((p + 1,), float(p + r)) for p in range(n)])
    assert mine.tolist() == [float(n * r + n * (n - 1) // 2)] * (r + 1)
    two, one = torch.zeros(2 * n), torch.zeros(n)
    with dist._coalescing_manager(async_ops=True) as several:
        dist.all_gather_into_tensor(two, torch.full((2,), float(r)))
        dist.all_gather_into_tensor(one, torch.full((1,), float(-r)))
    several.wait()
    assert two.tolist() == [float(p) for p in range(n) for _ in range(2)] and one.tolist() == [
        float(-p) for p in range(n)
    ]
    a, b = torch.zeros(2), torch.zeros(1)
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(a, torch.arange(2.0 * n))
        dist.reduce_scatter_tensor(b, torch.arange(1.0 * n))
    assert a.tolist() == [n * 2.0 * r, n * (2.0 * r + 1)] and b.tolist() == [float(n * r)]
    for op, want in (
        (dist.ReduceOp.BAND, 8),
        (dist.ReduceOp.BOR, 8 | (1 << n) - 1),
        (dist.ReduceOp.BXOR, 8 * (n % 2) | (1 << n) - 1),
    ):
        dist.all_reduce(x := torch.tensor([8 | 1 << r]), op)
        assert x.item() == want, op
    dist.all_reduce(x := torch.ones(3), dist._make_nccl_premul_sum(0.5))
    assert x.tolist() == [n / 2] * 3
    got = [None]
    dist.scatter_object_list(got, [{"for": p} for p in range(n)] if r == 1 else None, src=1)
    assert got == [{"for": r}]
    if r == 0:
        dist.send_object_list(["a", 1], 1)
    elif r == 1:
        dist.recv_object_list(both := [None, None], 0)
        assert both == ["a", 1]
    dist.destroy_process_group()


@pytest.mark.parametrize("n", [2, 3])
def test_seldom_verbs(ranks, n):
    ranks(n, work_seldom_verbs, timeout=60)


def work_messages_and_groups():
    r, n, _ = start()
    if r == 0:
        dist.send(torch.arange(3.0), 1)
        seen = [dist.recv(t := torch.zeros(1)) for _ in range(n - 1)]
        assert sorted(seen) == list(range(1, n)), seen
        assert t.item() in range(1, n)
    else:
        if r == 1:
            dist.recv(got := torch.zeros(3), 0)
            assert got.tolist() == [0, 1, 2]
        dist.send(torch.tensor([float(r)]), 0)
    dist.barrier()  # else rank 0's receive from any rank may take what follows
    # Both directions at once, larger than any buffer on the way, unbatched and batched.
    big = torch.full((1 << 20,), float(r))
    after, before = (r + 1) % n, (r - 1) % n
    sent, received = dist.isend(big, after), dist.irecv(got := torch.empty_like(big), before)
    received.wait()
    sent.wait()
    assert got[0] == got[-1] == before
    ops = [dist.P2POp(dist.irecv, got, after), dist.P2POp(dist.isend, big, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got[0] == got[-1] == after
    # An asynchronous collective may be waited for after a message that the others need first.
    total = torch.ones(4)
    if r == 0:
        work = dist.all_reduce(total, async_op=True)
        dist.send(torch.zeros(1), 1)
        work.wait()
    else:
        if r == 1:
            dist.recv(torch.zeros(1), 0)
        dist.all_reduce(total)
    assert total.tolist() == [n] * 4
    # Groups count their own ranks; torch translates.
    pair = dist.new_group([n - 1, 0])
    if r in (0, n - 1):
        x = torch.tensor([float(r)])
        dist.broadcast(x, n - 1, group=pair)
        assert x.item() == n - 1
    again = dist.new_group(list(range(n)))
    dist.all_reduce(x := torch.ones(1), group=again)
    assert x.item() == n
    part = dist.split_group(split_ranks=[[0, 1], *[[i] for i in range(2, n)]])
    dist.all_reduce(x := torch.ones(1), group=part)
    assert x.item() == (2 if r < 2 else 1)
    dist.barrier()
    dist.destroy_process_group()
    # And again, in the same process.
    start()
    dist.all_reduce(x := torch.ones(1))
    assert x.item() == n
    dist.destroy_process_group()


@pytest.mark.parametrize("n", [2, 3])
def test_messages_and_groups(ranks, n):
    ranks(n, work_messages_and_groups, timeout=120)


def work_polled():
    """What start() returns can be polled, and waited for with a timeout, whether it ended at once or later."""
    r, n = training.start()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    soon, long = datetime.timedelta(seconds=0.05), datetime.timedelta(seconds=30)
    verbs = (
        (lambda t: dist.all_reduce(t, async_op=True), n),
        (lambda t: dist.broadcast(t, 0, async_op=True), 1),
        (lambda t: dist.reduce(t, 0, async_op=True), 1 if r else n),
    )
    for patience in (0.0, 0.002, 5.0):  # 5.0: it ends while it is begun
        backend._patience = patience
        backend._packed.clear()
        for begin, want in verbs:
            t = torch.ones(3)
            if r and patience < 1:
                dist.recv(torch.ones(1), 0)
            work = begin(t)
            if r == 0 and patience < 1:
                if want == n:  # the others have not begun
                    assert not work.is_completed()
                    with pytest.raises(RuntimeError, match="not finished within the timeout of"):
                        work.wait(soon)
                dist.send(torch.ones(1), 1)
            until = time.monotonic() + 30
            while not work.is_completed():
                assert time.monotonic() < until, "is_completed never says so"
            assert work.wait(long) and work.wait() and work.get_future().done()
            assert t.tolist() == [want] * 3
    work = dist.barrier(async_op=True)
    assert work.wait(long) and work.is_completed()
    if r == 0:  # what fails has ended too
        work = dist.irecv(torch.ones(1), 1)
        backend.abort()
        while not work.is_completed():
            pass
        with pytest.raises(dist.DistBackendError, match="was aborted"):
            work.wait()
    os._exit(0)


def test_work_is_polled(ranks):
    ranks(2, work_polled, timeout=60)


def work_faults():
    r, n, _ = start()
    # Another shape on one rank: every rank gets one sentence, and work goes on.
    try:
        dist.all_reduce(torch.ones(3 + r))
    except dist.DistBackendError as error:
        text = str(error)
    else:
        raise AssertionError("a mismatch went unnoticed")
    assert "rank" in text and "3" in text and "4" in text, text
    dist.all_reduce(x := torch.ones(2))
    assert x.tolist() == [n, n]
    # monitored_barrier says who is missing.
    if r == 0:
        with pytest.raises(RuntimeError, match=r"Rank 1 failed to pass monitoredBarrier in 500 ms"):
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.5))
    dist.all_reduce(x)
    dist.monitored_barrier()
    # Wrong arguments are this rank's own error.
    with pytest.raises((ValueError, TypeError)):
        dist.all_reduce(torch.empty(3, dtype=torch.float8_e4m3fnuz))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(ValueError, match="5 elements"):
        backend.all_gather_single(torch.zeros(5), torch.zeros(3))
    # The end of a rank ends the others' waits with a name.
    if r == n - 1:
        os.kill(os.getpid(), 9)
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(2))
    except dist.DistBackendError as error:
        assert f"rank {n - 1}" in str(error), error
    else:
        raise AssertionError("a lost rank went unnoticed")
    assert time.monotonic() - began < 5
    os._exit(7)


def test_faults(job):
    ends = job(2, work_faults).wait(90)
    assert ends[0].code == 7, ends[0].err
    assert ends[1].code == -9, ends[1].err


def work_monitored():
    """A monitored barrier ends on every rank within its timeout, says so, and leaves nothing behind."""
    r, n = training.start()
    within = {"timeout": datetime.timedelta(seconds=0.5)}
    reached = rf"Rank {r} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: .* timeout"
    for every in (False, True):
        began = time.monotonic()
        with pytest.raises(RuntimeError, match=reached if r else "Rank 0 timed out in monitoredBarrier after 0 ms"):
            dist.monitored_barrier(timeout=datetime.timedelta(0), wait_all_ranks=every)
        assert time.monotonic() - began < 3, "a timeout of nothing took time"
        dist.barrier()
        dist.monitored_barrier(wait_all_ranks=every)
        if r != 1:  # rank 1 does not come
            began = time.monotonic()
            with pytest.raises(
                RuntimeError, match=reached if r else r"Ranks? 1 failed to pass monitoredBarrier in 500 ms"
            ):
                dist.monitored_barrier(wait_all_ranks=every, **within)
            assert time.monotonic() - began < 3
        dist.barrier()
    if r:  # rank 0 does not come
        with pytest.raises(RuntimeError, match=reached):
            dist.monitored_barrier(**within)
    dist.barrier()
    late = dist.new_group(**within)
    if r:
        with pytest.raises(
            dist.DistBackendError,
            match=r"rank 0 has not come within the timeout of|gave up waiting for rank 0 after its timeout of",
        ):
            dist.barrier(late)
    dist.barrier()
    os._exit(0)


def test_monitored_barrier(ranks):
    ranks(3, work_monitored, timeout=90)


def work_device_map(other):
    """A device's tensors go to its own backend, in sub-groups too; the map needs no entry of ours to be alone."""
    _, n = training.start(f"cpu:hora,cuda:{other}")
    before = training.moved()
    for group in (None, dist.new_group()):
        dist.all_reduce(x := torch.ones(1000), group=group)
        assert x.tolist() == [n] * 1000
    assert training.moved() > before
    if torch.cuda.is_available():
        dist.all_reduce(x := torch.ones(3, device=torch.device("cuda", dist.get_rank())))
        assert x.tolist() == [n] * 3
    dist.destroy_process_group()


def test_device_map(ranks):
    ranks(2, work_device_map, args=("gloo",), timeout=90)


def test_device_map_with_nccl(ranks):
    """torch makes its NCCL group on a machine with a GPU only."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    ranks(2, work_device_map, args=("nccl",), timeout=90)


def test_entry_point_and_refusals():
    import hora.torch

    assert "hora" in dist.Backend.backend_list
    hora.torch.register()  # again: harmless
    with pytest.raises(TypeError, match="not a DistributedDataParallel"):
        hora.torch.accelerate(torch.nn.Linear(2, 2))
