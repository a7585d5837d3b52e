"""One rank of bench/gpu/run.sh: every operation on GPU tensors against what the host computes, then times.

    python check.py --probe       exit code 0 where torch sees a GPU, else a sentence and 3
    python check.py --describe    hardware and versions, as Markdown
    hora run -np N python check.py --path nccl|staged|ipc --place own|shared --out FILE
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from datetime import timedelta

SIZES = (1, 1024, 262144, 16777216)  # elements of float32
ROUNDS = 20


def probe() -> int:
    try:
        import torch
    except ImportError:
        print("check.py: no GPU check: PyTorch is not installed in this Python", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print(f"check.py: no GPU check: torch {torch.__version__} sees no GPU on this machine", file=sys.stderr)
        return 3
    return 0


def describe() -> None:
    import torch

    import hora

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if hasattr(torch.cuda, "nccl") else "?"
    print(f"- GPUs: {len(names)}: {', '.join(names)}\n- torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {nccl}")
    print(f"- hora {hora.__version__}, {os.cpu_count()} cores\n- command: bench/gpu/run.sh")


def own_words(rank: int, n: int, device):
    import torch

    return torch.arange(n, device=device, dtype=torch.float32) % 61 + rank


def check(rank: int, size: int, device) -> None:
    """Results, with input that comes late on another stream."""
    import torch
    import torch.distributed as dist

    def equal(got, want, what):
        if not torch.equal(got.cpu(), want.cpu()):
            raise SystemExit(f"check.py: rank {rank}: {what} is wrong: {got.flatten()[:4].tolist()}, want {want.flatten()[:4].tolist()}")

    for n in (1, 7, 100003, 3000001):
        every = torch.stack([own_words(r, n, device) for r in range(size)])
        busy = torch.cuda.Stream(device)
        x = torch.zeros(n, device=device)
        busy.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(busy):
            torch.cuda._sleep(50_000_000)
            x.copy_(own_words(rank, n, device))
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            equal(x, every.sum(0), f"all_reduce of {n} on a side stream")
        x = own_words(rank, n, device)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        torch.testing.assert_close(x, every.mean(0))
        x = own_words(rank, n, device).half()
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        equal(x, every.half().amax(0), "all_reduce MAX of float16")
        x = own_words(rank, n, device)
        dist.broadcast(x, size - 1)
        equal(x, every[size - 1], "broadcast")
        out = torch.empty(n * size, device=device)
        dist.all_gather_into_tensor(out, own_words(rank, n, device))
        equal(out.view(size, n), every, "all_gather_into_tensor")
        parts = [torch.empty(n, device=device) for _ in range(size)]
        dist.all_gather(parts, own_words(rank, n, device))
        equal(torch.stack(parts), every, "all_gather")
        out = torch.empty(n, device=device)
        dist.reduce_scatter_tensor(out, own_words(rank, n * size, device))
        equal(out, sum(own_words(r, n * size, device) for r in range(size))[rank * n : rank * n + n], "reduce_scatter_tensor")
        out = torch.empty(n * size, device=device)
        dist.all_to_all_single(out, own_words(rank, n * size, device))
        want = torch.cat([own_words(r, n * size, device)[rank * n : rank * n + n] for r in range(size)])
        equal(out, want, "all_to_all_single")
        if size > 1:
            a, b = own_words(rank, n, device), torch.empty(n, device=device)
            ops = [dist.P2POp(dist.isend, a, (rank + 1) % size), dist.P2POp(dist.irecv, b, (rank - 1) % size)]
            for w in dist.batch_isend_irecv(ops):
                w.wait()
            equal(b, every[(rank - 1) % size], "batch_isend_irecv")
    x = torch.full((10,), rank + 5, device=device, dtype=torch.int32)
    dist.all_reduce(x, op=dist.ReduceOp.BXOR)
    want = 0
    for r in range(size):
        want ^= r + 5
    equal(x, torch.full((10,), want, dtype=torch.int32), "all_reduce BXOR")


def train(rank: int, size: int, device) -> None:
    """DDP on the GPU: all ranks end with equal weights, and with those of one process on the joined batch."""
    import torch
    import torch.distributed as dist

    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).to(device)

    one, ddp = model(), torch.nn.parallel.DistributedDataParallel(model(), device_ids=[device.index])
    opts = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (one, ddp)]
    generator = torch.Generator().manual_seed(2)
    for _ in range(30):
        x = torch.randn(32 * size, 64, generator=generator).to(device)
        for m, opt, batch in ((one, opts[0], x), (ddp, opts[1], x[32 * rank : 32 * rank + 32])):
            opt.zero_grad()
            (m(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
            opt.step()
    for a, b in zip(one.parameters(), ddp.module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        first = b.detach().clone()
        dist.broadcast(first, 0)
        if not torch.equal(first, b.detach()):
            raise SystemExit(f"check.py: rank {rank}: weights differ from rank 0's")


def times(size: int, device) -> list[str]:
    import torch
    import torch.distributed as dist

    lines = ["| bytes | median µs (host) | median µs (GPU done) | algbw GB/s |", "| --- | --- | --- | --- |"]
    for n in SIZES:
        x = torch.ones(n, device=device)
        host, done = [], []
        for i in range(ROUNDS + 3):
            x.fill_(1.0)
            torch.cuda.synchronize(device)
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(x)
            called = time.perf_counter()
            torch.cuda.synchronize(device)
            ended = time.perf_counter()
            if i >= 3:
                host.append(called - begin)
                done.append(ended - begin)
            if float(x[-1]) != size:
                raise SystemExit(f"check.py: all_reduce of {n} ones on {size} ranks gave {float(x[-1])}")
        m = statistics.median(done)
        lines.append(f"| {4 * n} | {statistics.median(host) * 1e6:.1f} | {m * 1e6:.1f} | {4 * n / m / 1e9:.2f} |")
    return lines


def ipc(rank: int, device) -> str:
    """Whether one process may map another's GPU memory here, which a later path between ranks on one GPU would use."""
    import torch
    import torch.distributed as dist
    import torch.multiprocessing.reductions as reductions

    names = [None, None]
    try:
        x = torch.full((16,), rank + 1.0, device=device)
        torch.cuda.synchronize(device)
        mine = reductions.reduce_tensor(x)
    except RuntimeError as error:
        mine = error
    dist.all_gather_object(names, mine if not isinstance(mine, Exception) else str(mine))
    other = names[1 - rank]
    text = f"not allowed here: {other}"
    if not isinstance(other, str):
        try:
            rebuild, args = other
            y = rebuild(*args)
            text = "allowed, read back right" if y.tolist() == [2.0 - rank] * 16 else f"allowed, but read {y.tolist()[:2]}"
            del y
        except RuntimeError as error:
            text = f"not allowed here: {error}"
    dist.barrier()
    return text.splitlines()[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--path", choices=["nccl", "staged", "ipc"], default="staged")
    parser.add_argument("--place", choices=["own", "shared"], default="shared")
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    if given.probe:
        sys.exit(probe())
    if given.describe:
        return describe()
    if code := probe():
        sys.exit(code)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    title = f"## np {size}, {given.path}, {given.place} GPU\n"
    import torch
    import torch.distributed as dist

    import hora.torch  # noqa: F401

    lines = [title]
    if given.place == "own" and torch.cuda.device_count() < size:
        lines.append(f"not run: {size} ranks need {size} GPUs, {torch.cuda.device_count()} are here")
    else:
        device = torch.device("cuda", rank if given.place == "own" else 0)
        torch.cuda.set_device(device)
        dist.init_process_group("hora", timeout=timedelta(seconds=120))
        if given.path == "ipc":
            lines.append(f"CUDA IPC between two processes on one GPU: {ipc(rank, device)}")
        else:
            os.environ["HORA_GPU_PATH"] = given.path
            check(rank, size, device)
            train(rank, size, device)
            lines += ["every operation right; DDP equals one process on the joined batch", "", *times(size, device)]
        dist.destroy_process_group()
    if rank == 0 and given.out:
        with open(given.out, "w") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
