"""A model whose parameters, gradients and optimizer state are split over the ranks (FSDP2), on CPUs.

    hora run -np 2 python examples/22-fsdp/train.py
    torchrun --nproc-per-node 2 examples/22-fsdp/train.py

When a model no longer fits into one process, `fully_shard` keeps a slice of every parameter on each rank, gathers a
layer's slices just before it is used, and reduces the gradients straight back into slices. Those gathers and
reduce-scatters are hora's here; the script is an ordinary FSDP2 script whose mesh lies on backend "hora".
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hora.torch  # noqa: F401  torch before 2.15 does not find the backend by itself

STEPS, BATCH, WIDTH = 60, 64, 128


def main():
    dist.init_process_group("hora")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU())], nn.Linear(WIDTH, 1))
    whole = sum(p.numel() for p in model.parameters())
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mine = sum(p.to_local().numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    g = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=g)
        y = torch.sin(2 * x[:, :1])
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    ends = torch.stack([losses[0], torch.stack(losses[-10:]).mean()])
    dist.all_reduce(ends, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"{size} ranks, {mine} of {whole} parameters on rank 0, loss {ends[0]:.3f} -> {ends[1]:.3f}")
        assert ends[1] < ends[0] and (size == 1 or mine <= 0.6 * whole)
    dist.destroy_process_group()


main()
