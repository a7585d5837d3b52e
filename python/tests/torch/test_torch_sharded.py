"""What torch builds on a process group, on backend "hora": sharded optimizers and models, tensor parallel, checkpoints, compile."""

from __future__ import annotations

import itertools
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

_starts = itertools.count()


def start():
    import hora.torch  # noqa: F401

    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    store = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.store{next(_starts)}", n)
    dist.init_process_group("hora", store=store, rank=r, world_size=n)
    return r, n


def moved():
    """Bytes that hora has moved in any group of torch's, over any link."""
    from hora.torch.backend import _alive

    return sum(v for b in _alive for k, v in b.group.counters().items() if "bytes" in k)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def batches(n, steps=5):
    g = torch.Generator().manual_seed(1)
    return torch.randn(steps, 4 * n, 8, generator=g), torch.randint(0, 4, (steps, 4 * n), generator=g)


def train(model, opt, r, n):
    for x, y in zip(*batches(n), strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(x[r::n]), y[r::n]).backward()
        opt.step()


def joined(n):
    model = network()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y in zip(*batches(n), strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        opt.step()
    return model


def close(parameters, reference):
    for a, b in zip(parameters, reference.parameters(), strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=2e-4)


def work_sharded():
    r, n = start()
    reference = joined(n)
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel as Ddp

    before = moved()
    model = Ddp(network())
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01), r, n)
    close(model.module.parameters(), reference)
    assert moved() > before

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (n,))
    before = moved()
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, opt, r, n)
    close([p.full_tensor() for p in model.parameters()], reference)
    assert moved() > before

    # a sharded checkpoint, saved and loaded
    import torch.distributed.checkpoint as checkpoint

    where = [tempfile.mkdtemp() if r == 0 else None]
    dist.broadcast_object_list(where, 0)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=where[0])
    again = network()
    for p in again.parameters():
        p.data.zero_()
    fully_shard(again, mesh=mesh)
    state = {"model": again.state_dict()}
    checkpoint.load(state, checkpoint_id=where[0])
    again.load_state_dict(state["model"])
    close([p.full_tensor() for p in again.parameters()], reference)

    # tensor parallel
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    before = moved()
    whole = network()
    split = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.ones(3, 8)
    torch.testing.assert_close(split(x), whole(x))
    assert moved() > before

    # functional collectives, also compiled
    import torch.distributed._functional_collectives as funcol

    def f(t):
        return funcol.all_reduce(t, "sum", dist.group.WORLD) + funcol.all_gather_tensor(t, 0, dist.group.WORLD).sum()

    expected = torch.full((4,), float(n)) + 4 * n
    torch.testing.assert_close(f(torch.ones(4)), expected)
    torch.testing.assert_close(torch.compile(f, backend="aot_eager")(torch.ones(4)), expected)
    dist.destroy_process_group()


def test_sharded_training(ranks):
    ranks(2, work_sharded, timeout=150)


def work_compiled():
    r, n = start()
    model = torch.compile(nn.parallel.DistributedDataParallel(network()), backend=os.environ["HORA_TEST_COMPILER"])
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    before = moved()
    train(model, opt, r, n)
    close(model.parameters(), joined(n))
    assert moved() > before
    dist.destroy_process_group()


def test_compiled_ddp(ranks):
    compiler = "inductor" if os.environ.get("HORA_SOAK") else "aot_eager"
    ranks(2, work_compiled, timeout=300 if os.environ.get("HORA_SOAK") else 150, env={"HORA_TEST_COMPILER": compiler})


def work_rpc():
    r, n = start()
    import torch.distributed.rpc as rpc

    port = int(os.environ["HORA_ADDR"].rsplit(":", 1)[1])
    where = f"file://{os.environ['HORA_SECRET_FILE']}.rpc{port}"
    rpc.init_rpc(f"worker{r}", rank=r, world_size=n, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=where))
    assert rpc.rpc_sync(f"worker{(r + 1) % n}", torch.add, (torch.ones(2), 1)).tolist() == [2, 2]
    dist.all_reduce(x := torch.ones(1))
    assert x.item() == n
    rpc.shutdown()
    dist.destroy_process_group()


def test_rpc_beside_it(ranks):
    ranks(2, work_rpc, timeout=90)
