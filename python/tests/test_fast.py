"""The extension module and ctypes are two ways to the same thing."""

import array
import inspect
import itertools
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

import hora
from hora import _abi, comm
from hora.group import Call

WITHOUT = "import sys; sys.modules['hora._fast'] = None"


def test_it_is_there():
    assert _abi._fast is not None, "the tree and the wheels have hora/_fast.abi3.so (tools/wheel/build.py makes it)"
    assert type(hora.allreduce).__name__ == "builtin_function_or_method"


def test_it_looks_like_the_function_it_stands_before(ranks):
    said = {repr(ranks(1, work_signature, before=before)) for before in ("", WITHOUT)}
    assert len(said) == 1, said


def work_signature():
    s = inspect.signature(hora.allreduce)
    print(
        [(p.name, p.kind.name, str(p.default).split(".")[-1].lower()) for p in s.parameters.values() if p.name != "op"]
    )
    print(inspect.getdoc(hora.allreduce), hora.allreduce.__name__, hora.allreduce.__module__)
    assert pickle.loads(pickle.dumps(hora.allreduce)) is hora.allreduce is comm.allreduce


def arrays(rank: int):
    """One of each kind that is reduced in place, and what it holds afterwards on two ranks."""
    for letter in "bBhHiIlLqQefd?FD":
        yield np.full((2, 3), rank + 1, dtype=letter)
    yield np.full((), rank + 1.0)
    yield np.full((0, 4), rank + 1.0)
    yield np.full((1,) * 9, rank + 1.0)
    yield np.full(5, rank + 1.0)[1:4]
    yield array.array("f", [rank + 1.0] * 4)
    yield bytearray([rank + 1] * 4)
    yield memoryview(bytearray([rank + 1] * 4))
    import torch

    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
    ):
        yield torch.full((2, 3), rank + 1, dtype=dtype)
    yield torch.nn.Parameter(torch.full((3,), rank + 1.0))
    yield torch.full((4, 4), rank + 1.0)[1:3]
    yield torch.full((1, 3), rank + 1.0).t()


def values(x) -> list:
    x = x.detach().resolve_conj().resolve_neg().to(dtype=x.dtype) if hasattr(x, "detach") else x
    return np.asarray(x.tolist() if hasattr(x, "tolist") else x).ravel().tolist()


def work_in_place():
    hora.init()
    ops = [hora.SUM, hora.MAX, "sum", "AVERAGE", hora.PRODUCT]
    for op in ops:
        for x in arrays(hora.rank()):
            for _ in range(2):  # the second time goes the short way
                try:
                    assert hora.allreduce(x, op, out=x) is x
                    print(type(x).__name__, values(x))
                except hora.HoraError as e:
                    print(type(e).__name__, str(e)[:60])
    for x in arrays(hora.rank()):
        assert hora.allreduce(x, out=x) is x
        print(values(x))


def test_both_ways_give_the_same(ranks):
    said = [ranks(2, work_in_place, before=before, warm=True) for before in ("", WITHOUT)]
    assert said[0] == said[1] and said[0][0] == said[0][1]
    assert "[3.0, 3.0, 3.0, 3.0]" in said[0][0]


def refused(kind, call, says):
    with pytest.raises(kind, match=says):
        call()


def work_bad_input():
    x, y = np.ones(3), np.ones(4)
    refused(hora.NotInitializedError, lambda: hora.allreduce(x, out=x), r"call hora\.init\(\) first")
    hora.init()
    for a in (x, y):
        hora.allreduce(a, out=a)
    r, n = hora.rank(), hora.size()
    a = (x, y)[r]
    before = a.copy()
    refused(hora.MismatchError, lambda: hora.allreduce(a, out=a), "Mismatched")
    assert (a == before).all()
    refused(hora.ArgumentError, lambda: hora.allreduce(x, "median", out=x), "is no operator")
    refused(hora.ArgumentError, lambda: hora.allreduce(x, [], out=x), "is no operator")
    x.flags.writeable = False
    refused(hora.ArgumentError, lambda: hora.allreduce(x, out=x), "read-only")
    z = np.ones((4, 4))
    refused(hora.ArgumentError, lambda: hora.allreduce(z.T, out=z.T), "not contiguous")
    t = z.T
    refused(hora.ArgumentError, lambda: hora.allreduce(t, out=t), "not contiguous")
    refused(hora.ArgumentError, lambda: hora.allreduce(x, hora.XOR, out=np.ones(3)), "bitwise")
    refused(TypeError, lambda: hora.allreduce(), "x")
    refused(TypeError, lambda: hora.allreduce(y, into=y), "into")
    text = np.array(["text"])
    refused(hora.ArgumentError, lambda: hora.allreduce(text, out=text), "element type")
    foreign = np.ones(3, dtype=">f8")
    refused(hora.ArgumentError, lambda: hora.allreduce(foreign, out=foreign), "element type")
    pid = os.fork()
    if pid == 0:
        try:
            hora.allreduce(y, out=y)
        except hora.ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    # Ctrl-C in a wait: what was left goes on, and the next call works
    hora.barrier()
    y[:] = 1
    if r == 1:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            hora.allreduce(y, out=y)
    else:
        time.sleep(0.6)
        hora.allreduce(y, out=y)
    one = np.ones(2)
    assert hora.allreduce(one, out=one)[0] == n and y[0] == n
    hora.shutdown()
    refused(hora.NotInitializedError, lambda: hora.allreduce(y, out=y), r"call hora\.init\(\) first")
    hora.init()
    assert hora.allreduce(one, out=one)[0] == n * n
    # many threads
    groups = [np.full(100, i + 1.0) for i in range(4)]
    turn = itertools.count()
    for g in groups:
        t = threading.Thread(target=lambda g=g: (next(turn), hora.allreduce(g, out=g)))
        t.start()
        t.join()
    assert [g[0] for g in groups] == [n * (i + 1.0) for i in range(4)]


@pytest.mark.parametrize("before", ["", WITHOUT], ids=["short", "ctypes"])
def test_bad_input(ranks, before):
    ranks(2, work_bad_input, before=before)


def work_raw():
    """The raw calls, with wrong arguments: an exception, never a crash."""
    hora.init()
    fast = _abi._fast
    for call in (
        lambda: fast.run(0, b"short", None, True), lambda: fast.run("0", b"x" * 500, None, True), lambda: fast.run(0),
        lambda: fast.submit(0, b"x" * 500, 99, None, False), lambda: fast.own(1, (), None),
        lambda: fast.own(len, 1, None),
        lambda: fast.start("x", None), lambda: fast.wait(1), lambda: fast.wait(-1, 0), lambda: fast.bind(1),
        lambda: fast.shortcut(1), lambda: fast.release(2**70),
    ):  # fmt: skip
        with pytest.raises((TypeError, OverflowError, ValueError)):
            call()
    assert fast.run(0, b"\0" * 500, None, True) == -1 and fast.submit(0, b"\0" * 5000, 20, None, False) is None
    assert fast.start(1 << 40, None) == -1 and fast.wait(1 << 40, 1) == -1
    x = np.ones((20, 3))
    tickets = hora.world().submit_many([Call(1, dtype=13, send=r.ctypes.data, recv=r.ctypes.data, count=3) for r in x])
    assert len(set(tickets)) == 20
    for t in tickets:
        hora.world().wait(t)
        hora.world().release(t)
    assert (x == hora.size()).all()


def test_raw_calls(ranks):
    ranks(2, work_raw)
