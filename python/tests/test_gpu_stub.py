"""The GPU path without a GPU: libraries with the names and functions of CUDA's driver and NCCL, built here, whose
streams are threads and whose device memory is host memory. Tensors and streams are stand-ins with an address each.

What this shows: the order of calls, that every hand-over between streams is there (a missing one gives wrong sums,
since the stand-ins' work is late on purpose), results, errors and ends. What it cannot show is that real hardware
agrees.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

STUBS = Path(__file__).with_name("gpu_stub")
SUM, AVERAGE, MAX, XOR, FLOAT32, INT32, INT64 = 0, 1, 4, 7, 12, 7, 9
ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL, GATHER, SCATTER, SEND, RECV = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    11,
)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """A folder with libcuda.so.1 and libnccl.so.2."""
    folder = tmp_path_factory.mktemp("gpu")
    for source, so in (("cuda.c", "libcuda.so.1"), ("nccl.c", "libnccl.so.2")):
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-O1",
            "-pthread",
            f"-Wl,-soname,{so}",
            "-o",
            folder / so,
            STUBS / source,
            "-ldl",
        ]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture
def gpu_ranks(job, stubs, tmp_path):
    """gpu_ranks(n, work, share=False, **env) runs work on n ranks; their ends and their logs of calls."""

    def go(n, work, share=False, timeout=90.0, links="", **env):
        given = {
            "STUB_DIR": str(tmp_path), "STUBS": str(stubs), "STUB_LOGS": str(tmp_path / "calls"),
            "STUB_SHARE": "1" if share else "",
            "STUB_NO_NCCL": "",
        }  # fmt: skip
        ends = job(n, work, env=given | env, links=links).wait(timeout)
        logs = []
        for r in range(n):
            path = tmp_path / f"calls.{r}"
            logs.append(path.read_text().splitlines() if path.exists() else [])
        return ends, logs

    return go


def good(ends):
    bad = [f"--- rank {r} ended with {e.code}\n{e.out}\n{e.err}" for r, e in enumerate(ends) if e.code]
    assert not bad, "\n".join(bad)


# -- on the ranks


class Tensor:
    """A stand-in: float32 (or another type of ctypes) at an address."""

    def __init__(self, n, kind=ctypes.c_float, values=()):
        self.raw = (kind * max(1, n))(*values)
        self.n = n

    def ptr(self):
        return ctypes.addressof(self.raw)

    def list(self):
        return list(self.raw)[: self.n]


class Stream:
    """A stand-in for torch.cuda.Stream: a number."""

    def __init__(self, cuda):
        self.cuda, self.cuda_stream = cuda, cuda.stub_stream()

    def fill(self, t, value, ms=20):
        self.cuda.stub_fill(self.cuda_stream, t.ptr(), t.n, value, ms)

    def sync(self):
        self.cuda.stub_sync(self.cuda_stream)

    @property
    def number(self):
        return self.cuda.stub_number(self.cuda_stream)


def begin(**how):
    """Join, load the stand-in libraries, make the GPU group: rank, size, Gpu, the CUDA library."""
    import hora
    from hora._gpu import Gpu

    rank = int(os.environ["HORA_RANK"])
    os.environ["STUB_LOG"] = f"{os.environ['STUB_LOGS']}.{rank}"
    os.environ["STUB_BUS"] = "0000:01:00.0" if os.environ["STUB_SHARE"] else f"0000:0{rank + 1}:00.0"
    for name in ("STUB_LOG", "STUB_BUS"):
        ctypes.CDLL(None).setenv(name.encode(), os.environ[name].encode(), 1)
    stubs = os.environ["STUBS"]
    cuda = ctypes.CDLL(f"{stubs}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    cuda.stub_stream.restype = ctypes.c_void_p
    cuda.stub_fill.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float, ctypes.c_int)
    cuda.stub_sync.argtypes = cuda.stub_number.argtypes = (ctypes.c_void_p,)
    hora.init()
    nccl = "/nowhere/libnccl.so.2" if os.environ["STUB_NO_NCCL"] else f"{stubs}/libnccl.so.2"
    gpu = Gpu(hora.world(), 0, nccl=nccl, cuda=f"{stubs}/libcuda.so.1", **how)
    return rank, hora.size(), gpu, cuda


def call(kind, send, recv, count, recv_count=None, **more):
    from hora.group import Call

    given = {
        "dtype": FLOAT32,
        "send": send.ptr() if send else 0,
        "recv": recv.ptr() if recv else 0,
        "recv_count": recv_count,
    }
    return Call(kind, count=count, **(given | more))


def finish(gpu, ticket, stream):
    """What torch's users do: wait() orders the stream, the host looks much later."""
    gpu.follow(ticket, stream.cuda_stream)
    stream.sync()


def one_allreduce():
    rank, size, gpu, cuda = begin()
    s = Stream(cuda)
    assert gpu.path == "nccl", gpu.report
    x = Tensor(1000)
    s.fill(x, rank + 1.0)  # late: NCCL must wait for it
    ticket = gpu.submit([call(ALLREDUCE, x, x, 1000)], s.cuda_stream, keep=x)
    gpu.follow(ticket, s.cuda_stream)
    s.sync()  # all that the stream waits for is there now
    assert x.list() == [size * (size + 1) / 2] * 1000, x.list()[:4]
    assert gpu.wait(ticket)
    gpu.release(ticket)
    print("stream", s.number)
    gpu.close()
    import hora

    hora.shutdown()


def test_allreduce_and_the_order_of_calls(gpu_ranks):
    """The caller's stream → event → ours → NCCL → event → the caller's stream, then everything is given back."""
    ends, logs = gpu_ranks(2, one_allreduce)
    good(ends)
    for rank, log in enumerate(logs):
        theirs = re.search(r"stream (\d+)", ends[rank].out).group(1)
        text = "\n".join(log)
        ours = re.search(r"AllReduce count 1000 type 7 op 0 root 0 on (\d+)$", text, flags=re.M).group(1)
        assert theirs != ours
        assert f"init rank {rank} of 2 size 24 magic cafebeef version 21400 blocking 0" in log
        order = re.search(
            rf"record (\d+) on {theirs}\n{ours} awaits \1\nAllReduce .* on {ours}\nqueue AllReduce on {ours}\n"
            rf"record (\d+) on {ours}\n{theirs} awaits \2$",
            text,
            flags=re.M,
        )
        assert order, text
        assert log[-4:] == ["finalize", "destroy", f"close stream {ours}", "release"], text
        assert not re.search("abort|refused|copy", text)


def every_operation():
    """Each kind, with equal and unequal counts, on small and on chunked tensors; the host computes what must come."""
    wanted = os.environ["WANT_PATH"]
    rank, size, gpu, cuda = begin(chunk=4096)
    assert gpu.path == wanted, gpu.report
    s = Stream(cuda)

    def values(r, n, first=0):
        return [float((r + 1) * 1000 + (first + i) % 97) for i in range(n)]

    def summed(n):
        return [sum(column) for column in zip(*(values(r, n) for r in range(size)), strict=True)]

    def go(*calls, keep=None):
        ticket = gpu.submit(list(calls), s.cuda_stream, keep)
        finish(gpu, ticket, s)
        assert gpu.wait(ticket, 10)
        gpu.release(ticket)

    for n in (1, 5, 3000):
        total = summed(n)
        x = Tensor(n, values=values(rank, n))
        go(call(ALLREDUCE, x, x, n))
        assert x.list() == total
        x, y = Tensor(n, values=values(rank, n)), Tensor(n)
        go(call(ALLREDUCE, x, y, n, op=AVERAGE, prescale=0.5))
        assert y.list() == pytest.approx([v / size / 2 for v in total]) and x.list() == values(rank, n)
        x, y = Tensor(n, values=values(rank, n)), Tensor(n)
        go(call(REDUCE, x, y if rank == 1 else None, n, root=1, op=MAX))
        assert y.list() == (values(size - 1, n) if rank == 1 else [0.0] * n)
        x = Tensor(n, values=values(rank, n))
        go(call(BROADCAST, x, x, n, root=1))
        assert x.list() == values(1, n)
        x, y = Tensor(n, values=values(rank, n)), Tensor(n * size)
        go(call(ALLGATHER, x, y, n, n * size))
        assert y.list() == [v for r in range(size) for v in values(r, n)]
        counts = [n + 2 * r for r in range(size)]
        x, y = Tensor(counts[rank], values=values(rank, counts[rank])), Tensor(sum(counts))
        go(call(ALLGATHER, x, y, counts[rank], sum(counts), recv_counts=counts))
        assert y.list() == [v for r in range(size) for v in values(r, counts[r])]
        x, y = Tensor(n * size, values=values(rank, n * size)), Tensor(n)
        go(call(REDUCE_SCATTER, x, y, n * size, n))
        whole = summed(n * size)
        assert y.list() == whole[rank * n : rank * n + n]
        x, y = Tensor(sum(counts), values=values(rank, sum(counts))), Tensor(counts[rank])
        go(call(REDUCE_SCATTER, x, y, sum(counts), counts[rank], recv_counts=counts))
        whole = summed(sum(counts))
        at = sum(counts[:rank])
        assert y.list() == whole[at : at + counts[rank]]
        x, y = Tensor(n * size, values=values(rank, n * size)), Tensor(n * size)
        go(call(ALLTOALL, x, y, n * size, n * size))
        assert y.list() == [v for r in range(size) for v in values(r, n * size)[rank * n : rank * n + n]]
        give, take = [n + rank + to for to in range(size)], [n + r + rank for r in range(size)]
        x, y = Tensor(sum(give), values=values(rank, sum(give))), Tensor(sum(take))
        go(call(ALLTOALL, x, y, sum(give), sum(take), send_counts=give, recv_counts=take))
        expect = []
        for r in range(size):
            begin_at = sum(n + r + to for to in range(rank))
            expect += values(r, begin_at + take[r])[begin_at:]
        assert y.list() == expect
        x, y = Tensor(n, values=values(rank, n)), Tensor(n * size)
        go(call(GATHER, x, y if rank == 0 else None, n, n * size if rank == 0 else 0, root=0))
        assert rank or y.list() == [v for r in range(size) for v in values(r, n)]
        x, y = Tensor(n * size, values=values(rank, n * size)), Tensor(n)
        go(call(SCATTER, x if rank == 1 else None, y, n * size if rank == 1 else 0, n, root=1))
        assert y.list() == values(1, n * size)[rank * n : rank * n + n]
        right, left = (rank + 1) % size, (rank - 1) % size
        x, y = Tensor(n, values=values(rank, n)), Tensor(n)
        go(call(SEND, x, None, n, 0, root=right), call(RECV, None, y, 0, n, root=left))
        assert y.list() == values(left, n)

    # What NCCL cannot do passes through host memory, whatever the path.
    x = Tensor(10, ctypes.c_int32, [5 + rank] * 10)
    go(call(ALLREDUCE, x, x, 10, dtype=INT32, op=XOR))
    expect = 0
    for r in range(size):
        expect ^= 5 + r
    assert x.list() == [expect] * 10
    # Several in flight, each on late input, from two streams; one submission with several operations.
    other, ts, tickets = Stream(cuda), [Tensor(2000) for _ in range(6)], []
    for i, t in enumerate(ts):
        stream = (s, other)[i % 2]
        stream.fill(t, 1.0 + i + rank, ms=5)
        tickets.append((gpu.submit([call(ALLREDUCE, t, t, 2000)], stream.cuda_stream, t), stream))
    for ticket, stream in tickets:
        gpu.follow(ticket, stream.cuda_stream)
    s.sync()
    other.sync()
    for i, t in enumerate(ts):
        assert t.list() == [size * (1.0 + i) + size * (size - 1) / 2] * 2000, (i, t.list()[:3])
    x, y = Tensor(7, values=[1.0] * 7), Tensor(5000, values=[2.0] * 5000)
    go(call(ALLREDUCE, x, x, 7), call(ALLREDUCE, y, y, 5000))
    assert x.list() == [size] * 7 and y.list() == [2.0 * size] * 5000
    for ticket, _ in tickets:
        assert gpu.wait(ticket, 5)
        gpu.release(ticket)


@pytest.mark.parametrize("links", ["", "tcp"])
@pytest.mark.parametrize("path", ["nccl", "staged", "shared"])
def test_every_operation(gpu_ranks, path, links):
    if path == "nccl" and links:
        pytest.skip("takes long")
    ends, logs = gpu_ranks(
        3, every_operation, share=path == "shared", links=links, WANT_PATH="nccl" if path == "nccl" else "staged",
        HORA_GPU_PATH="staged" if path == "staged" else "",
    )  # fmt: skip
    good(ends)
    copies = [line for log in logs for line in log if line.startswith("copy")]
    assert copies and not any("pageable" in line for line in copies)
    if path == "nccl":
        assert all("scaled 0.166667 type 7 bits aaab" in log for log in logs), logs[0]
        assert all(any(line.startswith("drop 5") for line in log) for log in logs)
        assert not any("two at once" in line or "refused" in line for log in logs for line in log)
    warned = [("share the GPU at 0000:01:00.0" in e.err) for e in ends]
    assert warned == ([True, False, False] if path == "shared" else [False] * 3)


def long_staged():
    rank, size, gpu, cuda = begin(chunk=4096)
    s = Stream(cuda)
    x = Tensor(8192)
    s.fill(x, 1.0)
    finish(gpu, gpu.submit([call(ALLREDUCE, x, x, 8192)], s.cuda_stream, x), s)
    assert x.list() == [2.0] * 8192


def test_staging_overlaps(gpu_ranks):
    """The copy down of chunk k+1 is asked for before chunk k goes up; down and up have streams of their own."""
    ends, logs = gpu_ranks(2, long_staged, share=True)
    good(ends)
    for log in logs:
        copies = [re.match(r"copy (down|up) 4096 on (\d+)", line).groups() for line in log if line.startswith("copy")]
        ways = [way for way, _ in copies]
        assert ways.count("down") == ways.count("up") == 8
        assert ways == ["down", "down"] + ["up", "down"] * 6 + ["up", "up"]
        assert len({stream for _, stream in copies}) == 2


def fails_with(kind, text, **how):
    """Run one allreduce and expect an error."""
    import hora

    try:
        rank, size, gpu, cuda = begin(**how)
        s = Stream(cuda)
        x = Tensor(100, values=[1.0] * 100)
        ticket = gpu.submit([call(ALLREDUCE, x, x, 100, name="grad", timeout=0.5)], s.cuda_stream, x)
        start = time.monotonic()
        told = None
        try:
            gpu.follow(ticket, s.cuda_stream, 10)
        except hora.HoraError as e:
            told = e  # whichever of the two comes first is told; the other may find the ticket gone
        gpu.wait(ticket, 10)
        if told:
            raise told
    except hora.HoraError as e:
        assert type(e).__name__ == kind and re.search(text, str(e)), repr(e)
        print("said", e)
        try:
            gpu.submit([call(ALLREDUCE, x, x, 100)], s.cuda_stream, x)
        except hora.HoraError as again:
            print("again", again)
        except UnboundLocalError:
            pass
        return
    raise AssertionError(f"no error after {time.monotonic() - start:.1f} s")


def hang():
    fails_with(
        "DeadlineError",
        "allreduce grad on GPU 0: the other ranks .* had not come within its timeout, and the NCCL group was aborted",
    )


def test_hang_is_aborted(gpu_ranks):
    ends, logs = gpu_ranks(2, hang, STUB_NCCL_HANG="1")
    good(ends)
    assert all(log.count("abort") == 1 and "destroy" not in log for log in logs)
    assert all("again allreduce grad" in e.out for e in ends)


def refused():
    fails_with("HoraError", r"allreduce: NCCL says internal error \(3\): stub is told to fail; set NCCL_DEBUG=INFO")


def test_refused_call(gpu_ranks):
    ends, logs = gpu_ranks(2, refused, STUB_NCCL_FAIL="AllReduce")
    good(ends)
    assert all(log.count("abort") == 1 for log in logs)


def remote():
    fails_with("HoraError", r"NCCL says remote process exited or there was a network error \(6\)")


def test_asynchronous_fault(gpu_ranks):
    ends, logs = gpu_ranks(2, remote, STUB_NCCL_ASYNC="1", STUB_NCCL_HANG="1")
    good(ends)
    assert all(log.count("abort") == 1 for log in logs)


def copy_fails():
    fails_with("HoraError", r"copy tensor of GPU 0: unspecified launch failure \(CUDA error 719\)", path="staged")


def test_copy_fails(gpu_ranks):
    ends, _ = gpu_ranks(2, copy_fails, STUB_CUDA_FAIL="cuMemcpyAsync")
    good(ends)


def wanted_nccl():
    fails_with(
        "ArgumentError",
        "NCCL was asked for and cannot be used: ranks 0 and 1 share the GPU at 0000:01:00.0",
        path="nccl",
    )


def test_nccl_on_a_shared_gpu_is_refused(gpu_ranks):
    ends, _ = gpu_ranks(2, wanted_nccl, share=True)
    good(ends)


def no_nccl():
    _, _, gpu, cuda = begin()
    assert gpu.path == "staged" and "load NCCL /nowhere/libnccl.so.2" in gpu.report["why"], gpu.report
    s, x = Stream(cuda), Tensor(3, values=[1.0] * 3)
    finish(gpu, gpu.submit([call(ALLREDUCE, x, x, 3)], s.cuda_stream, x), s)
    assert x.list() == [2.0] * 3


@pytest.mark.parametrize(
    "env", [{"STUB_NO_NCCL": "1"}, {"STUB_NCCL_VERSION": "21300"}, {"STUB_NCCL_FAIL": "CommInitRankConfig"}]
)
def test_without_nccl_tensors_are_staged(gpu_ranks, env):
    ends, _ = gpu_ranks(2, no_nccl if "STUB_NO_NCCL" in env else other_nccl, **env)
    good(ends)


def other_nccl():
    _, _, gpu, cuda = begin()
    assert gpu.path == "staged" and re.search(
        "it is version 2.13; 2.14 or newer|rank 0: make NCCL group: NCCL says", gpu.report["why"]
    ), gpu.report
    s, x = Stream(cuda), Tensor(3, values=[1.0] * 3)
    finish(gpu, gpu.submit([call(ALLREDUCE, x, x, 3)], s.cuda_stream, x), s)
    assert x.list() == [2.0] * 3


def different_counts():
    import hora

    rank, _, gpu, cuda = begin(path="staged")
    s, x = Stream(cuda), Tensor(10, values=[1.0] * 10)
    ticket = gpu.submit([call(ALLREDUCE, x, x, 10 - rank, name="grad")], s.cuda_stream, x)
    try:
        gpu.wait(ticket, 10)
        raise AssertionError("no error")
    except hora.MismatchError as e:
        assert "grad" in str(e) and "rank 1" in str(e), e
    y = Tensor(4, values=[1.0] * 4)
    finish(gpu, gpu.submit([call(ALLREDUCE, y, y, 4)], s.cuda_stream, y), s)  # and work goes on
    assert y.list() == [2.0] * 4 and x.list() == [1.0] * 10


def test_mismatch_is_one_sentence_and_work_goes_on(gpu_ranks):
    good(gpu_ranks(2, different_counts)[0])


def wrong_calls():
    import hora

    rank, _, gpu, cuda = begin()
    s, x = Stream(cuda), Tensor(10)
    for wrong in (
        call(ALLREDUCE, x, x, 10, 9), call(9, x, x, 1), call(ALLREDUCE, x, x, 10, dtype=99),
        call(BROADCAST, x, x, 10, root=2),
        call(RECV, None, x, 0, 10, root=-1), call(ALLGATHER, x, x, 10, 10), call(ALLTOALL, x, x, 9, 9),
        call(ALLGATHER, x, x, 5, 10, recv_counts=[5, 4]), call(ALLREDUCE, x, x, -1 & 0xFFFFFFFFFFFFFFFF),
    ):  # fmt: skip
        try:
            gpu.submit([wrong], s.cuda_stream)
            raise AssertionError(f"{wrong} was taken")
        except hora.HoraError as e:
            assert type(e).__name__ == "ArgumentError" and "on GPU" in str(e), repr(e)


def test_wrong_calls_are_refused(gpu_ranks):
    ends, logs = gpu_ranks(2, wrong_calls)
    good(ends)
    assert not any("AllReduce" in line for log in logs for line in log)


def peer_dies():
    import hora

    rank, _, gpu, cuda = begin()
    if rank == 1:
        hora.barrier()
        os._exit(3)
    s, x = Stream(cuda), Tensor(10, values=[1.0] * 10)
    ticket = gpu.submit([call(ALLREDUCE, x, x, 10)], s.cuda_stream, x)
    hora.barrier()
    start = time.monotonic()
    try:
        gpu.wait(ticket, 20)
        raise AssertionError("no error")
    except hora.PeerLostError as e:
        assert e.rank == 1, e
    assert time.monotonic() - start < 5


def test_a_lost_rank_ends_the_wait(gpu_ranks):
    ends, logs = gpu_ranks(2, peer_dies)
    assert ends[1].code == 3
    assert ends[0].code == 0, ends[0].err
    assert logs[0].count("abort") == 1


def lives():
    import hora

    for _ in range(3):
        _, _, gpu, cuda = begin()
        s, x = Stream(cuda), Tensor(10, values=[1.0] * 10)
        ticket = gpu.submit([call(ALLREDUCE, x, x, 10)], s.cuda_stream, x)
        finish(gpu, ticket, s)
        assert x.list() == [2.0] * 10
        hora.barrier()
        hora.shutdown()  # without close


def test_shutdown_gives_everything_back(gpu_ranks):
    ends, logs = gpu_ranks(2, lives)
    good(ends)
    for log in logs:
        assert log.count("retain") == log.count("release") == 3
        assert log.count("destroy") + log.count("abort") == 3


def torch_backend():
    """torch.distributed with tensors that only say they are on a GPU: routing, streams, copies back, ends."""
    import warnings

    import torch
    import torch.distributed as dist

    import hora.torch  # noqa: F401
    from hora.torch import _gpu, backend

    backend.free_core = lambda: True  # the short way of host tensors is not taken
    rank = int(os.environ["HORA_RANK"])
    stubs = os.environ["STUBS"]
    for name, value in (
        ("STUB_LOG", f"{os.environ['STUB_LOGS']}.{rank}"),
        ("STUB_BUS", "one" if os.environ["STUB_SHARE"] else f"own {rank}"),
    ):
        os.environ[name] = value
        ctypes.CDLL(None).setenv(name.encode(), value.encode(), 1)
    cuda = ctypes.CDLL(f"{stubs}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(f"{stubs}/libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
    cuda.stub_stream.restype = ctypes.c_void_p
    cuda.stub_fill.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float, ctypes.c_int)
    cuda.stub_sync.argtypes = (ctypes.c_void_p,)
    s = Stream(cuda)
    real = _gpu.device_of
    _gpu.device_of = lambda keep: 0 if keep is not None and _any_tensor(keep) and real(keep) is None else None
    _gpu.current_stream = lambda device: s.cuda_stream
    _gpu._future = lambda device: torch.futures.Future()
    _gpu._side_stream = lambda device: warnings.catch_warnings()
    dist.init_process_group("hora", init_method=f"file://{os.environ['STUB_DIR']}/store", rank=rank, world_size=2)
    size = dist.get_world_size()
    x = torch.zeros(1000)
    cuda.stub_fill(s.cuda_stream, x.data_ptr(), 1000, rank + 1.0, 20)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    s.sync()
    assert x.tolist() == [size * (size + 1) / 2] * 1000
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future()
    out = future.wait()
    s.sync()
    assert out[0].tolist() == [float(size)] * 5
    all_of_them = torch.zeros(3 * size)
    dist.all_gather_into_tensor(all_of_them, torch.full((3,), rank + 1.0))
    s.sync()
    assert all_of_them.tolist() == [r + 1.0 for r in range(size) for _ in range(3)]
    right, left = (rank + 1) % size, (rank - 1) % size
    a, b = torch.full((4,), float(rank)), torch.zeros(4)
    for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, a, right), dist.P2POp(dist.irecv, b, left)]):
        w.wait()
    s.sync()
    assert b.tolist() == [float(left)] * 4
    dist.barrier()
    dist.destroy_process_group()


def torch_has_nccl() -> bool:
    import torch

    return torch.distributed.is_nccl_available()


def _any_tensor(x):
    import torch

    return isinstance(x, torch.Tensor) or isinstance(x, (tuple, list)) and any(map(_any_tensor, x))


@pytest.mark.parametrize("share", [False, True])
def test_torch_backend_routes_by_device(gpu_ranks, share):
    ends, logs = gpu_ranks(2, torch_backend, share=share)
    good(ends)
    # A torch that brings its own NCCL has loaded it, and a loaded copy goes before any other: without a GPU that copy
    # refuses, says so once, and the tensors are staged.
    refused = any("NCCL cannot be used" in e.err for e in ends)
    assert refused in (False, torch_has_nccl()) and not (share and refused)
    assert all(any(("copy down" if share or refused else "AllReduce") in line for line in log) for log in logs)
    assert ["share the GPU" in e.err for e in ends] == [share, False]
