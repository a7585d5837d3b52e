"""Every collective on every kind of array, against plain sums."""

import array
import threading

import numpy as np
import pytest

import hora

FLOATS = ["float16", "float32", "float64"]
INTS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def mine(shape, dtype, rank):
    """Small whole numbers, different on each rank, exact in every type."""
    n = int(np.prod(shape, dtype=int))
    return ((np.arange(n) * 7 + rank * 3) % 5).astype(dtype).reshape(shape)


def everyone(shape, dtype):
    return np.stack([mine(shape, dtype, r) for r in range(hora.size())])


def work_numpy():
    hora.init()
    r, n = hora.rank(), hora.size()
    for dtype in [*FLOATS, *INTS, "complex64", "complex128"]:
        for shape in [(), (1,), (0,), (3, 5), (1000,), (70, 1000)]:
            x, every = mine(shape, dtype, r), everyone(shape, dtype)
            before = x.copy()
            got = hora.allreduce(x)
            assert got.dtype == x.dtype and got.shape == x.shape and got is not x
            np.testing.assert_array_equal(got, every.sum(0, dtype=dtype))
            np.testing.assert_array_equal(x, before)
            y = x.copy()
            assert hora.allreduce(y, hora.SUM, out=y) is y
            np.testing.assert_array_equal(y, got)
            np.testing.assert_array_equal(hora.broadcast(x, n - 1), every[n - 1])
            total = hora.reduce(x, n - 1, "sum")
            assert (total is None) == (r != n - 1)
            if total is not None:
                np.testing.assert_array_equal(total, got)
            want = every.reshape(n, *(shape or (1,)))
            np.testing.assert_array_equal(hora.allgather(x), want.reshape(-1, *want.shape[2:]))
        if not dtype.startswith("complex"):
            np.testing.assert_array_equal(hora.allreduce(x, "max"), every.max(0))
            np.testing.assert_array_equal(hora.allreduce(x, hora.MIN), every.min(0))
        np.testing.assert_array_equal(hora.allreduce(x, "product"), every.prod(0, dtype=dtype))
    b = np.array([r == 0, True, False])
    np.testing.assert_array_equal(hora.allreduce(b), [True, True, False])
    np.testing.assert_array_equal(hora.allreduce(b, "product"), [n == 1, True, False])
    k = np.full(4, r + 1, dtype=np.int32)
    np.testing.assert_array_equal(hora.allreduce(k, hora.AVERAGE), np.full(4, sum(range(1, n + 1)) // n))
    np.testing.assert_allclose(
        hora.allreduce(np.full(4, 1.0 + r), prescale=2, postscale=0.5), np.full(4, sum(range(1, n + 1)))
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_numpy(ranks, n):
    ranks(n, work_numpy)


def test_numpy_over_tcp(ranks):
    ranks(2, work_numpy, links="tcp")


def work_parts():
    hora.init()
    r, n = hora.rank(), hora.size()
    # unequal first dimensions
    x = np.full((r + 1, 2), r, dtype=np.float32)
    want = np.concatenate([np.full((i + 1, 2), i, dtype=np.float32) for i in range(n)])
    np.testing.assert_array_equal(hora.allgather(x), want)
    np.testing.assert_array_equal(hora.allgather(x, sizes=[i + 1 for i in range(n)]), want)
    got = hora.gather(x, 0, sizes=[i + 1 for i in range(n)])
    if r == 0:
        np.testing.assert_array_equal(got, want)
    else:
        assert got is None
    part = hora.scatter(want if r == 0 else None, 0, sizes=[i + 1 for i in range(n)], out=np.empty_like(x))
    np.testing.assert_array_equal(part, x)
    even = hora.scatter(np.arange(4.0 * n) if r == 0 else np.empty(4), 0)
    np.testing.assert_array_equal(even, np.arange(4.0 * r, 4.0 * r + 4))
    # reduce-scatter, uneven: the first ranks get one row more
    y = np.arange(2.0 * (2 * n + 1)).reshape(2 * n + 1, 2)
    rows = [2 + (i < 1) for i in range(n)]
    at = sum(rows[:r])
    np.testing.assert_array_equal(hora.reduce_scatter(y), n * y[at : at + rows[r]])
    np.testing.assert_array_equal(hora.reduce_scatter(y[: 2 * n], "average"), y[2 * r : 2 * r + 2])
    # alltoall
    z = np.arange(n) + 10 * r
    np.testing.assert_array_equal(hora.alltoall(z), [10 * i + r for i in range(n)])
    splits = [j + 1 for j in range(n)]
    w = np.concatenate([np.full((j + 1, 3), 10 * r + j) for j in range(n)])
    out, come = hora.alltoall(w, splits)
    assert come == [r + 1] * n
    np.testing.assert_array_equal(out, np.concatenate([np.full((r + 1, 3), 10 * i + r) for i in range(n)]))
    out2, come2 = hora.alltoall(w, splits, recv_splits=come)
    np.testing.assert_array_equal(out2, out)
    assert come2 == come
    # rows without elements are rows
    for shape in ((0,), (3, 0)):
        assert hora.allgather(np.zeros((r + 1, *shape))).shape == (sum(range(1, n + 1)), *shape)
        out, come = hora.alltoall(np.zeros((sum(splits), *shape)), splits)
        assert (out.shape, come) == ((n * (r + 1), *shape), [r + 1] * n)
    # pairs
    if n > 1:
        if r == 0:
            hora.send(np.arange(5), 1, tag=3)
            got, source = hora.recv(np.empty(5, dtype=int), tag=4)
            assert source == 1
            np.testing.assert_array_equal(got, 2 * np.arange(5))
        elif r == 1:
            got = hora.recv(np.empty(5, dtype=int), 0, tag=3)
            hora.send(2 * got, 0, tag=4)
    hora.barrier()
    hora.barrier(async_=True).wait()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_parts(ranks, n):
    ranks(n, work_parts)


def work_kinds_of_arrays():
    import torch

    hora.init()
    r, n = hora.rank(), hora.size()
    total = sum(range(1, n + 1))
    for dtype in [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]:
        t = torch.full((4, 3), r + 1, dtype=dtype)
        s = hora.allreduce(t)
        assert torch.equal(s, torch.full((4, 3), total, dtype=dtype)), dtype
        assert hora.allreduce(t, out=t) is t and torch.equal(t, s)
        g = hora.allgather(torch.full((2,), r, dtype=dtype))
        assert g.tolist() == [i for i in range(n) for _ in range(2)] and g.dtype == dtype
    for dtype in [torch.float8_e4m3fn, torch.float8_e5m2]:
        t = torch.full((4,), float(r + 1)).to(dtype)
        assert hora.allreduce(t).float().tolist() == [float(total)] * 4
    p = torch.nn.Parameter(torch.full((3,), float(r)))
    hora.broadcast(p.data, n - 1, out=p.data)
    assert p.tolist() == [float(n - 1)] * 3
    # numbers
    assert hora.allreduce(r + 1) == total and isinstance(hora.allreduce(1), int)
    assert hora.allreduce(0.5) == 0.5 * n
    assert hora.allreduce(1 + 2j) == n * (1 + 2j)
    assert hora.allreduce(r == 0, hora.OR) is True
    assert hora.allgather(r) == list(range(n))
    assert hora.allreduce(np.float32(1.5)).item() == 1.5 * n
    # buffers
    b = bytearray([r + 1] * 4)
    hora.allreduce(b, out=b)
    assert b == bytearray([total] * 4)
    a = array.array("f", [1.0, 2.0])
    assert list(hora.allreduce(a)) == [1.0 * n, 2.0 * n]
    m = memoryview(array.array("i", [r, r, r, r])).cast("B").cast("i", (2, 2))
    assert hora.allgather(m).tolist() == [[i, i] for i in range(n) for _ in range(2)]

    class Foreign:  # DLPack and nothing else
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **how):
            return self.x.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    np.testing.assert_array_equal(hora.allreduce(Foreign(np.full((2, 2), r + 1.0))), np.full((2, 2), float(total)))
    f = Foreign(torch.ones(3))
    hora.allreduce(f, out=f)
    assert f.x.tolist() == [float(n)] * 3
    # grouped
    x, y = np.full(3, r), torch.full((2,), float(r))
    gx, gy = hora.allreduce([x, y])
    assert gx.tolist() == [total - n] * 3 and gy.tolist() == [float(total - n)] * 2
    h = hora.allreduce([x, y], out=[x, y], async_=True)
    h.wait()
    assert x.tolist() == gx.tolist()


def test_kinds_of_arrays(ranks):
    ranks(2, work_kinds_of_arrays, warm=True)


def work_registered():
    hora.init()
    r, n = hora.rank(), hora.size()
    b = hora.buffer((256, 1024))
    x, t = b.numpy(), b.torch()
    x[:] = r + 1
    assert t[0, 0].item() == r + 1
    hora.allreduce(x, out=x)
    assert (x == sum(range(1, n + 1))).all() and (t.numpy() == x).all()
    hora.allreduce(b, out=b)
    assert (x == n * sum(range(1, n + 1))).all()
    part = x[3:7]
    part[:] = 1
    hora.allreduce(part, out=part)
    assert (part == n).all()
    for given in (
        float,
        int,
        bool,
        "f8",
        "<f4",
        "i2",
        "u1",
        "float",
        "double",
        np.float16,
        np.dtype("u4"),
        "complex",
        np.bool_,
    ):
        assert hora.buffer(2, given).numpy().dtype == np.dtype(given), given
    small = hora.buffer(4, np.int64)
    small.numpy()[:] = r
    assert hora.allreduce(small, "max", out=small) is small
    assert small.numpy().tolist() == [n - 1] * 4
    k = hora.buffer((2, 2), "bfloat16").torch()
    k.fill_(1)
    hora.allreduce(k, out=k)
    assert k.tolist() == [[float(n)] * 2] * 2


def test_registered(ranks):
    ranks(2, work_registered, warm=True)


def work_groups():
    hora.init()
    r, n = hora.rank(), hora.size()
    evens = hora.Group(range(0, n, 2))
    odds = hora.Group(range(1, n, 2))
    here = evens if r % 2 == 0 else odds
    away = odds if r % 2 == 0 else evens
    assert here.included and not away.included and away.rank == -1
    assert here.ranks[here.rank] == r
    assert hora.allreduce(r, group=here) == sum(here.ranks)
    assert hora.broadcast(np.array([r]), 1, group=here)[0] == here.ranks[1]
    with pytest.raises(hora.ArgumentError, match=rf"rank {r} is not in it"):
        hora.allreduce(r, group=away)
    again = hora.Group(here.ranks, tag="again")
    assert hora.allreduce(1, group=again) == len(here.ranks)
    again.close()
    with pytest.raises(hora.HoraError, match="closed"):
        hora.allreduce(1, group=again)
    for bad in ([0, 0], [n], []):
        with pytest.raises(hora.ArgumentError):
            hora.Group(bad)
    assert hora.allreduce(1) == n


def test_groups(ranks):
    ranks(4, work_groups)


def work_async():
    hora.init()
    r, n = hora.rank(), hora.size()
    xs = [np.full(1000 + i, r + i, dtype=np.float32) for i in range(50)]
    hs = [hora.allreduce(x, out=x, async_=True) for x in xs]
    hora.wait_all(hs)
    for i, x in enumerate(xs):
        assert (x == sum(range(n)) + n * i).all()
    # dropped handles: the operation still completes, and its array lives until then
    for i in range(50):
        hora.allreduce(np.full(100_000, float(i)), async_=True)
    h = hora.allgather(np.full(r + 1, r), async_=True)
    assert h.wait().tolist() == [i for i in range(n) for _ in range(i + 1)]
    assert h.done() and h.wait() is h.result
    called = threading.Event()
    h = hora.allreduce(np.ones(3), async_=True)
    h.add_done_callback(lambda done: (hora.allreduce(1, name="from a callback", named=True), called.set()))
    assert called.wait(20)

    import asyncio

    async def both():
        a = hora.allreduce(np.ones(3), async_=True)
        b = hora.allreduce(np.ones(4), async_=True)
        return (await a).sum() + (await b).sum()

    assert asyncio.run(both()) == 7 * n


def test_async(ranks):
    ranks(2, work_async)


def work_named():
    hora.init()
    r, n = hora.rank(), hora.size()
    names = [f"layer{i}" for i in range(20)]
    order = names if r % 2 == 0 else names[::-1]
    for _ in range(5):
        hs = {
            k: hora.allreduce(np.full(10, names.index(k) + r, dtype=np.float32), name=k, named=True, async_=True)
            for k in order
        }
        for i, k in enumerate(names):
            assert (hs[k].wait() == n * i + sum(range(n))).all()
    ga = hora.allgather(np.full(r + 2, r), name="a", named=True, async_=True) if r else None
    gb = hora.allgather(np.full(2 * r + 1, r), name="b", named=True, async_=True)
    ga = ga or hora.allgather(np.full(r + 2, r), name="a", named=True, async_=True)
    assert ga.wait().tolist() == [i for i in range(n) for _ in range(i + 2)]
    assert gb.wait().tolist() == [i for i in range(n) for _ in range(2 * i + 1)]
    grouped = hora.allreduce([np.ones(3), np.ones(5)], name="pair", named=True)
    assert [g.tolist() for g in grouped] == [[float(n)] * 3, [float(n)] * 5]
    # uneven data: rank 0 has more steps, the others join
    for i in range(3 if r == 0 else 1):
        got = hora.allreduce(np.ones(2), name="step", named=True)
        assert got.tolist() == [1.0 * n if i == 0 else 1.0] * 2
    assert hora.join() == 0


def test_named(ranks):
    ranks(2, work_named)


def work_objects():
    hora.init()
    r, n = hora.rank(), hora.size()
    assert hora.broadcast_object({"from": r, "big": "x" * 100_000}, n - 1)["from"] == n - 1
    assert hora.allgather_object(("rank", r)) == [("rank", i) for i in range(n)]
    got = hora.gather_object([r] * r, 0)
    assert got == ([[i] * i for i in range(n)] if r == 0 else None)
    assert hora.broadcast_object(None) is None
    with pytest.raises(hora.ArgumentError, match="cannot be pickled"):
        hora.allgather_object(threading.Lock())


def test_objects(ranks):
    ranks(2, work_objects)


def retyped():
    """An array that changes under its plan: type, shape, layout."""
    hora.init()
    n = hora.size()
    x = np.ones(4, np.float32)
    for _ in range(3):
        x[:] = 1
        hora.allreduce(x, out=x)
        assert x.tolist() == [n] * 4
    x.dtype = np.int32
    x[:] = 7
    hora.allreduce(x, out=x)
    assert x.tolist() == [7 * n] * 4
    x.shape = (2, 2)
    x[:] = 3
    hora.allreduce(x, out=x)
    assert x.tolist() == [[3 * n] * 2] * 2
    x.flags.writeable = False
    try:
        hora.allreduce(x, out=x)
    except hora.ArgumentError as e:
        assert "read-only" in str(e)
    else:
        raise AssertionError("written")


def test_a_repeated_reduction_looks_at_its_array(ranks):
    ranks(2, retyped)
