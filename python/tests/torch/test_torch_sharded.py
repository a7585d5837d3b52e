"""What torch builds on a process group, on backend "hora" and on gloo: sharded optimizers and models, tensor parallel,
checkpoints, functional collectives; and remote calls beside it."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from training import adam, alone, data, fit, flat, network, on_both, same, sgd, start


def zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    fit(
        model,
        ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01),
        dist.get_rank(),
        dist.get_world_size(),
    )
    return flat(model)


def mesh():
    return dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))


def sharded(model):
    """The model with its layers and itself fully sharded."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    where = mesh()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=where)
    fully_shard(model, mesh=where)
    for m in model.modules():
        if isinstance(m, FSDPModule) and dist.get_backend() == "gloo":
            m.set_force_sum_reduction_for_comms(True)  # gloo has no average
    return model


def whole(model):
    return torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])


def fully_sharded():
    """FSDP2, and its checkpoint saved and loaded."""
    import torch.distributed.checkpoint as checkpoint

    model = sharded(network())
    fit(model, adam(model), dist.get_rank(), dist.get_world_size())
    where = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(where, 0)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=where[0])
    again = network()
    for p in again.parameters():
        p.data.zero_()
    state = {"model": sharded(again).state_dict()}
    checkpoint.load(state, checkpoint_id=where[0])
    again.load_state_dict(state["model"])
    assert torch.equal(whole(again), whole(model))
    return whole(again)


def tensor_parallel():
    """Every rank has all rows of a batch and some columns of the layers."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(network(), mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    opt = sgd(model)
    for x, y in zip(*data(dist.get_world_size()), strict=True):
        opt.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        opt.step()
    ends = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().reshape(-1) for p in ends])


def functional_collectives():
    """Steps of a linear regression that average their gradient themselves; on hora under torch.compile."""
    import torch.distributed._functional_collectives as funcol

    def step(w, x, y):
        gradient = x.t() @ (x @ w - y) / x.shape[0]
        total = funcol.all_reduce(gradient, "sum", dist.group.WORLD)
        rows = funcol.all_gather_tensor(gradient.reshape(1, -1), 0, dist.group.WORLD)
        return w - 0.05 * (total / dist.get_world_size() + 0.1 * rows.mean(0).reshape(w.shape))

    r, n = dist.get_rank(), dist.get_world_size()
    run = torch.compile(step, backend="aot_eager") if dist.get_backend() == "hora" else step
    w = torch.zeros(8, 1)
    for x, _ in zip(*data(n), strict=True):
        w = run(w, x[r::n], x[r::n].sum(1, keepdim=True))
    return w


def work_sharded():
    zero, shards, split, _ = on_both(
        zero_redundancy, fully_sharded, tensor_parallel, functional_collectives, tolerance=2e-4
    )
    same(zero, alone(adam), 2e-4)
    same(shards, alone(adam), 2e-4)
    same(split, alone(sgd), 2e-4)


def test_sharded_training(ranks):
    ranks(2, work_sharded, timeout=150)


def work_rpc():
    r, n = start()
    import torch.distributed.rpc as rpc

    port = int(os.environ["HORA_ADDR"].rsplit(":", 1)[1])
    where = f"file://{os.environ['HORA_SECRET_FILE']}.rpc{port}"
    rpc.init_rpc(
        f"worker{r}", rank=r, world_size=n, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=where)
    )
    assert rpc.rpc_sync(f"worker{(r + 1) % n}", torch.add, (torch.ones(2), 1)).tolist() == [2, 2]
    dist.all_reduce(x := torch.ones(1))
    assert x.item() == n
    rpc.shutdown()
    dist.destroy_process_group()


def test_rpc_beside_it(ranks):
    ranks(2, work_rpc, timeout=90)
