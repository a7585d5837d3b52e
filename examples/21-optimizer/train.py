"""A single-process script made parallel with three lines (marked below).

    hora run -np 2 python examples/21-optimizer/train.py
    python examples/21-optimizer/train.py

The same digits-like task as example 20, without torch.distributed: hora.torch wraps the optimizer, so that each
step uses the gradients of all ranks, and the start is made equal by a broadcast. Run alone it is a world of one.
"""

import torch
from torch import nn

import hora
import hora.torch

STEPS, BATCH, CLASSES, FEATURES = 150, 64, 10, 64

hora.init()  # 1: join the job
torch.manual_seed(hora.rank())
prototypes = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
g = torch.Generator().manual_seed(100 + hora.rank())

model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hora.torch.DistributedOptimizer(optimizer, model.named_parameters())  # 2: gradients of all ranks
hora.torch.broadcast_parameters(model.state_dict(), root_rank=0)  # 3: equal start

for step in range(STEPS):
    y = torch.randint(0, CLASSES, (BATCH,), generator=g)
    x = prototypes[y] + 1.5 * torch.randn(BATCH, FEATURES, generator=g)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        mean = hora.allreduce(loss.detach(), hora.AVERAGE)
        if hora.rank() == 0:
            print(f"step {step + 1}: loss {float(mean):.4f}")
hora.shutdown()
