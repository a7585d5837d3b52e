"""An ordinary DistributedDataParallel script with one word changed.

    hora run -np 2 python examples/20-ddp/train.py
    torchrun --nproc-per-node 2 examples/20-ddp/train.py
    torchrun --nproc-per-node 2 examples/20-ddp/train.py gloo

A model learns which of ten hidden prototypes a noisy vector came from. Every rank sees its own half of the data;
DDP averages the gradients through the backend named on the command line, "hora" when nothing is said. At the end
rank 0 prints the loss, the accuracy and a checksum that is the same on every rank and for every backend.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    import hora.torch  # noqa: F401  torch before 2.15 does not find the backend by itself
except ImportError:
    pass

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "hora"
STEPS, BATCH, CLASSES, FEATURES = 150, 64, 10, 64


def data(seed, n):
    prototypes = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    return prototypes[y] + 1.5 * torch.randn(n, FEATURES, generator=g), y


def main():
    dist.init_process_group(BACKEND)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = data(seed=2, n=STEPS * BATCH * size)
    x, y = x[rank::size], y[rank::size]

    start = time.perf_counter()
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - start

    dist.all_reduce(mean := loss.detach().clone())
    check = torch.cat([p.detach().double().reshape(-1) for p in model.parameters()]).sum()
    checks = [torch.zeros_like(check) for _ in range(size)]
    dist.all_gather(checks, check)
    assert all(c == checks[0] for c in checks), "the ranks' weights differ"
    if rank == 0:
        tx, ty = data(seed=3, n=2000)
        accuracy = (model.module(tx).argmax(1) == ty).double().mean()
        print(
            f"{BACKEND}: {size} ranks, {STEPS} steps in {seconds:.2f} s, loss {mean.item() / size:.4f}, "
            f"accuracy {accuracy:.3f}, checksum {check.item():.6f}"
        )
    dist.destroy_process_group()


main()
