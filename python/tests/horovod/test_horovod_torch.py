"""horovod.torch against plain sums: collectives, their gradients, process sets, and the errors of the surface."""

from __future__ import annotations

import os
import re

import pytest
import torch

import hora


def init(**how):
    import horovod.torch as hvd

    hvd.init(**how)
    return hvd, hvd.rank(), hvd.size()


def moved():
    return sum(v for k, v in hora.counters().items() if "bytes" in k)


def work_collectives():
    hvd, r, n = init()
    before = moved()
    every = range(1, n + 1)
    for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16):
        x = torch.full((3, 2), r + 1).to(dtype)
        total = torch.full((3, 2), sum(every)).to(dtype)
        assert torch.equal(hvd.allreduce(x, op=hvd.Sum), total)
        assert torch.equal(hvd.allreduce(x, average=False), total)
        assert torch.equal(
            hvd.synchronize(hvd.allreduce_async(x, op=hvd.Max, name="m")), torch.full((3, 2), n).to(dtype)
        )
        assert torch.equal(hvd.allreduce(x, op=hvd.Min), torch.ones(3, 2).to(dtype))
        y = x.clone()
        assert hvd.allreduce_(y, op=hvd.Sum, name="in place") is y and torch.equal(y, total)
        y = x.clone()
        assert hvd.synchronize(hvd.allreduce_async_(y, op=hvd.Sum)) is y and torch.equal(y, total)
        assert torch.equal(hvd.broadcast(x, n - 1), torch.full((3, 2), n).to(dtype))
        rows = torch.full((r + 1, 2), r).to(dtype)
        assert torch.equal(hvd.allgather(rows), torch.cat([torch.full((i + 1, 2), i).to(dtype) for i in range(n)]))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.bool):
        x = torch.ones(2, dtype=dtype)
        assert torch.equal(hvd.broadcast(x, 0), x) and hvd.allgather(x).shape == (2 * n,)
    x = torch.arange(4.0) + r
    torch.testing.assert_close(hvd.allreduce(x), torch.arange(4.0) + (n - 1) / 2)
    torch.testing.assert_close(hvd.allreduce(x, compression=hvd.Compression.fp16), torch.arange(4.0) + (n - 1) / 2)
    torch.testing.assert_close(
        hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
        2 * (n * torch.arange(4.0) + n * (n - 1) / 2),
    )
    _a, b = hvd.grouped_allreduce([x, torch.ones(2)], op=hvd.Sum, name="g")
    assert b.tolist() == [n, n]
    assert [t.shape[0] for t in hvd.grouped_allgather([torch.ones(r + 1), torch.ones(2, 3)])] == [sum(every), 2 * n]
    big = torch.arange(2.0 * n + 1).reshape(-1, 1)
    mine = hvd.reducescatter(big, op=hvd.Sum)
    rows = [(2 * n + 1) // n + (1 if i < (2 * n + 1) % n else 0) for i in range(n)]
    torch.testing.assert_close(mine, n * big[sum(rows[:r]) : sum(rows[: r + 1])])
    assert [t.shape[0] for t in hvd.grouped_reducescatter([big, torch.ones(n)])] == [rows[r], 1]
    splits = torch.arange(1, n + 1, dtype=torch.int32)
    out, received = hvd.alltoall(torch.full((sum(every),), float(r)), splits)
    assert received.tolist() == [r + 1] * n and received.dtype == torch.int32
    assert out.tolist() == [float(i) for i in range(n) for _ in range(r + 1)]
    assert hvd.alltoall(torch.arange(n)).tolist() == [r] * n
    assert hvd.allgather_object({"r": r}) == [{"r": i} for i in range(n)]
    assert hvd.broadcast_object([1, {"a": "b"}] if r == 0 else None, root_rank=0) == [1, {"a": "b"}]
    sparse = torch.sparse_coo_tensor([[0, r + 1]], [1.0, 2.0], (n + 1,), check_invariants=False)
    got = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)().to_dense()
    assert got.tolist() == [n] + [2.0] * n
    assert hvd.synchronize(12345678) is None and hvd.poll(12345678)
    hvd.barrier()
    # Handles in different orders on the ranks.
    names = [f"order.{i}" for i in range(20)]
    numbered = list(enumerate(names))
    mine = numbered if r == 0 else numbered[::-1]
    handles = {k: hvd.allreduce_async(torch.full((5,), float(i)), name=k, op=hvd.Sum) for i, k in mine}
    for i, k in enumerate(names):
        assert hvd.synchronize(handles[k]).tolist() == [n * i] * 5
    gathers = {
        k: hvd.allgather_async(torch.full((r + 1,), i), name=k)
        for i, k in (enumerate(names) if r else reversed(list(enumerate(names))))
    }
    for i, k in sorted(enumerate(names), key=lambda p: p[0] * (1 if r else -1)):
        assert hvd.synchronize(gathers[k]).tolist() == [i] * sum(every)
    assert moved() > before

    # gradients
    def grad(f, *shape):
        x = torch.ones(*shape, requires_grad=True)
        f(x).sum().backward()
        return x.grad.flatten().tolist()

    assert grad(lambda x: hvd.allreduce(x, op=hvd.Sum), 3) == [n] * 3
    assert grad(hvd.allreduce, 3) == [1.0] * 3
    assert grad(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1], 2) == [2 * n] * 2
    assert grad(hvd.allgather, r + 1, 2) == [1.0] * 2 * (r + 1)
    assert grad(lambda x: hvd.broadcast(x, 1), 3) == ([1.0] * 3 if r == 1 else [0.0] * 3)
    assert grad(lambda x: hvd.alltoall(x), n) == [1.0] * n
    assert grad(lambda x: hvd.alltoall(x, splits=[1] * n)[0], n + 1) == [1.0] * n + [0.0]
    assert grad(lambda x: hvd.reducescatter(x, op=hvd.Sum), n) == [n] * n
    assert grad(hvd.reducescatter, n) == [1.0] * n
    assert hvd.join() in range(n)


@pytest.mark.parametrize("n", [2, 3])
def test_collectives(ranks, n):
    ranks(n, work_collectives, timeout=120)


def work_errors():
    hvd, r, n = init()
    from horovod.torch.mpi_ops import synchronize

    def fails(words, call):
        """Every rank gets HorovodInternalError with these first words, and the job goes on."""
        with pytest.raises(hvd.HorovodInternalError) as error:
            call()
        assert str(error.value).startswith(words), str(error.value)
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == n

    odd = r == 1
    ones = torch.ones
    fails("Mismatched data types:", lambda: hvd.allreduce(ones(3).double() if odd else ones(3), name="types"))
    fails("Mismatched ALLREDUCE tensor shapes:", lambda: hvd.allreduce(ones(4 if odd else 3), name="shapes"))
    fails("Mismatched ALLREDUCE tensor shapes:", lambda: hvd.allreduce(ones(3, 2) if odd else ones(2, 3), name="ranks"))
    fails(
        "Mismatched prescale and/or postscale factors:",
        lambda: hvd.allreduce(ones(3), name="scale", prescale_factor=2.0 if odd else 1.0),
    )
    fails("Mismatched reduction operation:", lambda: hvd.allreduce(ones(3), name="op", op=hvd.Max if odd else hvd.Sum))
    fails("Mismatched BROADCAST root ranks:", lambda: hvd.broadcast(ones(3), 1 if odd else 0, name="root"))
    fails("Mismatched BROADCAST tensor shapes:", lambda: hvd.broadcast(ones(4 if odd else 3), 0, name="bshape"))
    fails("Mismatched ALLGATHER tensor shapes:", lambda: hvd.allgather(ones(2, 4 if odd else 3), name="gshape"))
    fails("Mismatched ALLREDUCE tensor shapes:", lambda: hvd.allreduce_(ones(4 if odd else 3), name="long" * 40))
    # Two differences in one call: the first is named, in the order types, operations, shapes, factors, operators,
    # roots.
    fails("Mismatched data types:", lambda: hvd.allreduce(ones(4).double() if odd else ones(3), name="two.1"))
    fails(
        "Mismatched ALLREDUCE tensor shapes:",
        lambda: hvd.allreduce(ones(4 if odd else 3), name="two.4", prescale_factor=2.0 + odd),
    )
    fails(
        "Mismatched prescale and/or postscale factors:",
        lambda: hvd.allreduce(ones(3), name="two.5", prescale_factor=2.0 + odd, op=hvd.Max if odd else hvd.Sum),
    )
    fails("Mismatched BROADCAST tensor shapes:", lambda: hvd.broadcast(ones(4 if odd else 3), r, name="two.6"))
    # A tensor without rows.
    one = torch.tensor(1.0, requires_grad=True)
    fails("Rank zero tried to gather a rank-zero tensor", lambda: hvd.allgather(one.detach()))
    fails("Rank zero tried to gather a rank-zero tensor", lambda: hvd.allgather(one))
    fails("Rank zero tried to gather a rank-zero tensor", lambda: hvd.grouped_allgather([ones(2), one]))
    fails("Rank zero tried to reducescatter a rank-zero tensor", lambda: hvd.reducescatter(one.detach()))
    fails("Rank zero tried to reducescatter a rank-zero tensor", lambda: hvd.reducescatter(one))
    fails(
        "Mismatched ALLGATHER tensor shapes:", lambda: hvd.allgather(one.detach() if odd else ones(3), name="rowless")
    )
    fails(
        "Mismatched REDUCESCATTER tensor shapes:",
        lambda: hvd.reducescatter(one.detach() if odd else ones(3), name="rowless"),
    )
    # This rank's own mistakes: ValueError, and nothing is sent.
    for words, call in (
        ("The op parameter supersedes average", lambda: hvd.allreduce(ones(2), average=True, op=hvd.Sum)),
        ("Tensor is required to be contiguous", lambda: hvd.allreduce(ones(3, 2).t())),
        ("Tensor type", lambda: hvd.allreduce(ones(2).to(torch.float8_e4m3fnuz))),
        ("invalid root rank", lambda: hvd.broadcast(ones(2), n)),
        ("32-bit integer", lambda: hvd.alltoall(ones(n), torch.ones(n))),
        ("Sum of splits", lambda: hvd.alltoall(ones(n), torch.full((n,), 2, dtype=torch.int32))),
        ("Number of entries in splits", lambda: hvd.alltoall(ones(n), torch.ones(n + 1, dtype=torch.int32))),
        ("not divisible", lambda: hvd.alltoall(ones(n + 1))),
        ("Sum and Average", lambda: hvd.reducescatter(ones(n), op=hvd.Max)),
        ("rank-zero", lambda: hvd.alltoall(torch.tensor(1.0))),
        ("dynamic process sets are off", lambda: hvd.add_process_set([0])),
        ("does not exist", lambda: hvd.allreduce(ones(2), process_set=hvd.ProcessSet([0]))),
        ("HOROVOD_TIMELINE=DYNAMIC", lambda: hvd.start_timeline("x.json")),
    ):
        with pytest.raises(ValueError, match=words) as error:
            call()
        assert not isinstance(error.value, hvd.HorovodInternalError)
    first = hvd.allreduce_async(ones(2), name="twice") if r == 0 else None
    if r == 0:
        with pytest.raises(ValueError, match=r"same name|twice"):
            hvd.allreduce_async(ones(2), name="twice")
    hvd.barrier()  # or rank 1 could bring its own before rank 0 has tried again
    if r != 0:
        first = hvd.allreduce_async(ones(2), name="twice")
    synchronize(first)
    hvd.shutdown()
    for call in (hvd.rank, hvd.size, lambda: hvd.allreduce(ones(2)), hvd.join, hvd.barrier):
        with pytest.raises(ValueError, match=r"has not been initialized; use hvd.init\(\)."):
            call()
    hvd.init()
    assert hvd.allreduce(ones(1), op=hvd.Sum).item() == n


def test_errors_of_the_surface(ranks):
    ranks(2, work_errors, timeout=90)


SHUT_DOWN = "Horovod has been shut down. This was caused by an exception on one of the ranks"


def work_join_errors():
    hvd, r, n = init()
    x = torch.ones(n)
    wrong = {
        "Broadcast": lambda name: hvd.broadcast(x, 0, name=name),
        "Allgather": lambda name: hvd.allgather(x, name=name),
        "Alltoall": lambda name: hvd.alltoall(x, name=name),
        "Reducescatter": lambda name: hvd.reducescatter(x, name=name),
    }
    if r == 1:
        assert hvd.join() in range(n)
        return
    while hvd.allreduce(x, op=hvd.Sum, name="until").tolist() == [n] * n:
        pass
    for what, call in wrong.items():
        with pytest.raises(hvd.HorovodInternalError) as error:
            call(f"joined.{what}")
        assert str(error.value).startswith(f"{what} is not supported with Join at this time."), str(error.value)
        assert hvd.allreduce(x, op=hvd.Sum, name="on").tolist() == [n - 1] * n
    assert hvd.join() in range(n)


def test_what_a_joined_rank_forbids(ranks):
    ranks(3, work_join_errors, timeout=90)


def work_shut_down():
    """A handle that is pending at shutdown, and one that was known before it."""
    hvd, r, _n = init()
    done = hvd.allreduce_async(torch.ones(3), name="all")
    hvd.synchronize(done)
    alone = hvd.allreduce_async(torch.ones(3), name="alone") if r == 0 else 0
    hvd.shutdown()
    if r == 0:
        with pytest.raises(hvd.HorovodInternalError) as error:
            hvd.synchronize(alone)
        assert str(error.value).startswith(SHUT_DOWN) and f"handle {alone}" in str(error.value)
    assert hvd.synchronize(done) is None
    hvd.init()
    assert hvd.synchronize(alone) is None  # init() forgets, as Horovod's does


def test_synchronize_after_shutdown(ranks):
    ranks(2, work_shut_down, timeout=60)


def work_process_sets():
    import horovod.torch as hvd

    evens, odds = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1])
    assert evens.process_set_id is None and evens.rank() is None and evens.size() is None and evens.included() is None
    hvd.init(process_sets=[evens, odds])
    r, n = hvd.rank(), hvd.size()
    assert (hvd.global_process_set.process_set_id, evens.process_set_id, odds.process_set_id) == (0, 1, 2)
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(range(n)), 1: [0, 2], 2: [1]}
    mine = evens if evens.included() else odds
    total = hvd.allreduce(torch.tensor([float(r)]), op=hvd.Sum, process_set=mine)
    assert total.item() == sum(mine.ranks)
    assert hvd.broadcast(torch.tensor([r]), mine.ranks[-1], process_set=mine).item() == mine.ranks[-1]
    assert hvd.allgather(torch.tensor([r]), process_set=mine).tolist() == mine.ranks
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    opt = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hvd.Sum, process_set=mine)
    before = model.bias.item()
    model(torch.ones(1, 2)).sum().backward()
    opt.step()
    assert abs(before - model.bias.item() - mine.size()) < 1e-6
    other = odds if mine is evens else evens
    with pytest.raises(ValueError, match="does not belong"):
        hvd.allreduce(torch.ones(1), process_set=other)
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    made = hvd.add_process_set([0, 1])
    assert made.process_set_id == 1
    with pytest.raises(ValueError, match="already exists"):
        hvd.add_process_set([1, 0])
    same = torch.ones(1)
    for life in 1, 2:  # a tensor that is known from the set's life before
        if made.included():
            assert hvd.allreduce_(same, op=hvd.Sum, process_set=made).item() == 2**life
        assert hvd.remove_process_set(made) and not hvd.remove_process_set(made)
        with pytest.raises(ValueError, match="does not exist"):
            hvd.allreduce_(same, op=hvd.Sum, process_set=made)
        if life == 1:
            assert hvd.add_process_set(made) is made
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert hvd.add_process_set([0]).process_set_id == 1
    with pytest.raises(ValueError, match="differ between ranks"):
        hvd.add_process_set([r, (r + 1) % n])


def test_process_sets(ranks):
    ranks(3, work_process_sets, timeout=90)


def work_cycles():
    import horovod.torch as hvd

    for i in range(5):
        hvd.init()
        assert hvd.allreduce(torch.full((2,), float(i)), op=hvd.Sum)[0].item() == i * hvd.size()
        hvd.shutdown()
        assert not hvd.is_initialized()


def test_init_after_shutdown(ranks):
    ranks(2, work_cycles, timeout=60)


def work_optimizer():
    hvd, r, _n = init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    opt = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16,
    )
    for _ in range(3):
        opt.zero_grad()
        model(torch.randn(4, 4)).sum().backward()
        opt.step()
    assert type(opt).__name__ == "SGD"
    # A gradient of another shape on one rank is an error of Horovod's class on all.
    other = torch.nn.Linear(3 + (r == 1), 1)
    opt = hvd.DistributedOptimizer(torch.optim.SGD(other.parameters(), lr=0.1))
    other(torch.ones(1, 3 + (r == 1))).sum().backward()
    with pytest.raises(Exception) as error:
        opt.step()
    assert isinstance(error.value, hvd.HorovodInternalError), repr(error.value)
    for wrong in ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, {"groups": -1}, {"groups": "x"}, {"op": 99}):
        with pytest.raises(ValueError):
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **wrong)
    with pytest.raises(ValueError, match="not named"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=other.named_parameters())


def test_optimizer(ranks):
    ranks(2, work_optimizer, timeout=90)


def work_lost():
    hvd, r, _n = init()
    hvd.barrier()
    if r == 1:
        os.kill(os.getpid(), 9)
    with pytest.raises(hvd.HorovodInternalError, match=f"^{re.escape(SHUT_DOWN)}.*rank 1"):
        while True:
            hvd.allreduce(torch.ones(3), name="x")
    os._exit(7)


def test_a_lost_rank_is_named(job):
    ends = job(2, work_lost).wait(60)
    assert [e.code for e in ends] == [7, -9], ends[0].err
