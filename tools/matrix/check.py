"""What hora does on the torch of this interpreter: two ranks, one line a feature.

    PYTHONPATH=python python tools/matrix/check.py

A line reads `yes FEATURE`, or `no FEATURE: why`. What must hold on every torch that hora supports ends the program with
1 when it does not.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile

import pair
import torch
import torch.distributed as dist

# What every supported torch must let hora do; the rest depends on what a release lets a Python backend be.
NEEDED = ("all_reduce", "broadcast", "gathers", "reduce_scatter", "send and recv", "sub-groups", "DDP", "hora.torch")


def features(rank: int, size: int):
    """(name, function) of each; a function fails by an exception."""
    import hora
    import hora.torch
    from torch import nn

    def all_reduce():
        dist.all_reduce(x := torch.full((5,), rank + 1.0))
        assert x.tolist() == [3.0] * 5
        work = dist.all_reduce(y := torch.ones(100_000), async_op=True)
        work.wait()
        assert y[-1] == size

    def broadcast():
        dist.broadcast(x := torch.tensor([float(rank)]), 1)
        assert x.item() == 1

    def gathers():
        dist.all_gather(parts := [torch.zeros(2) for _ in range(size)], torch.full((2,), float(rank)))
        assert [p[0].item() for p in parts] == [0, 1]
        dist.all_gather_into_tensor(out := torch.zeros(size * 2), torch.full((2,), float(rank)))
        assert out.tolist() == [0, 0, 1, 1]
        dist.all_gather_object(objects := [None] * size, {"rank": rank})
        assert objects == [{"rank": 0}, {"rank": 1}]

    def reduce_scatter():
        dist.reduce_scatter_tensor(out := torch.zeros(3), torch.ones(3 * size))
        assert out.tolist() == [size] * 3

    def send_recv():
        x = torch.full((3,), float(rank))
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
            assert x.tolist() == [0] * 3

    def from_any():
        x = torch.full((3,), float(rank))
        if rank == 0:
            dist.send(x, 1)
        else:
            assert dist.recv(x) == 0
            assert x.tolist() == [0] * 3

    def sparse():
        x = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, 2.0], (size + 1,), check_invariants=False)
        dist.all_reduce(x)
        assert x.to_dense().tolist() == [size, *[2.0] * size]

    def sub_groups():
        group = dist.new_group([0, 1])
        dist.all_reduce(x := torch.ones(1), group=group)
        assert x.item() == size

    def trained(wrap):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        call, opt = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        g = torch.Generator().manual_seed(1)
        for _ in range(5):
            x, y = torch.randn(8, 8, generator=g), torch.randint(0, 4, (8,), generator=g)
            opt.zero_grad()
            nn.functional.cross_entropy(call(x[rank::size]), y[rank::size]).backward()
            opt.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def agree(wrap):
        gloo = dist.new_group(backend="gloo")
        before = sum(v for k, v in hora.counters().items() if "bytes" in k)
        ours = trained(wrap)
        assert sum(v for k, v in hora.counters().items() if "bytes" in k) > before, "nothing went through hora"
        theirs = trained(lambda m, o: (nn.parallel.DistributedDataParallel(m, process_group=gloo), o))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)

    def ddp():
        agree(lambda m, o: (nn.parallel.DistributedDataParallel(m), o))

    def uneven():
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
        with model.join():
            for _ in range(2 + 2 * rank):
                model(torch.ones(2, 4)).sum().backward()

    def accelerated():
        ddp = nn.parallel.DistributedDataParallel
        agree(lambda m, o: (hora.torch.accelerate(ddp(m, gradient_as_bucket_view=True)), o))

    def optimizer():
        agree(lambda m, o: (m, hora.torch.DistributedOptimizer(o, m.named_parameters())))

    def coalescing():
        with dist._coalescing_manager():
            dist.all_reduce(a := torch.ones(3))
            dist.all_reduce(b := torch.ones(4))
        assert a[0] == b[0] == size

    def monitored():
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))

    def split():
        part = dist.split_group(split_ranks=[[0, 1]])
        dist.all_reduce(x := torch.ones(1), group=part)
        assert x.item() == size

    def fully_sharded():
        from torch.distributed.fsdp import fully_shard

        def wrap(m, _):
            fully_shard(m, mesh=dist.device_mesh.init_device_mesh("cpu", (size,)))
            return m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

        wrap(nn.Linear(4, 4), None)[0](torch.ones(2, 4)).sum().backward()

    return [
        ("all_reduce", all_reduce), ("broadcast", broadcast), ("gathers", gathers), ("reduce_scatter", reduce_scatter),
        ("send and recv", send_recv), ("recv from any rank", from_any), ("sparse all_reduce", sparse),
        ("sub-groups", sub_groups),
        ("DDP", ddp), ("DDP.join", uneven), ("hora.torch", optimizer), ("accelerate", accelerated),
        ("coalescing", coalescing), ("monitored_barrier", monitored), ("split_group", split),
        ("fully_shard", fully_sharded),
    ]  # fmt: skip


def known_without_import() -> bool:
    """Whether torch finds backend hora by its entry point."""
    code = "import torch.distributed as d; d.init_process_group('hora', rank=0, world_size=1, store=d.HashStore()); print('found')"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    return "found" in done.stdout


def rank_main() -> int:
    import hora.torch  # noqa: F401

    rank, size = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    store = dist.FileStore(os.environ["CHECK_STORE"], size)
    dist.init_process_group("hora", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60))
    bad = pair.tell(rank, features(rank, size), NEEDED)
    dist.destroy_process_group()
    return bad


def main() -> int:
    if "CHECK_STORE" in os.environ:
        return rank_main()
    print("torch", torch.__version__)
    with tempfile.TemporaryDirectory() as folder:
        code = pair.run(__file__, folder, CHECK_STORE=os.path.join(folder, "store"))
    print("yes entry point" if known_without_import() else "no entry point: import hora.torch first", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
