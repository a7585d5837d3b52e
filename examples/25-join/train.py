"""Ranks with different numbers of batches: `join` lets the others finish.

    hora run -np 2 python examples/25-join/train.py

Rank r has 20 + 10·r batches. A rank that has run out calls hora.join(): it gives zeros to the others' gradients until
all have run out, so nobody waits for a batch that never comes. Every rank then knows who came last.
"""

import torch
from torch import nn

import hora
import hora.torch

hora.init()
torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = hora.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05))
g = torch.Generator().manual_seed(hora.rank())
truth = torch.arange(16.0).reshape(1, 16) / 16

batches = 20 + 10 * hora.rank()
for _ in range(batches):
    x = torch.randn(32, 16, generator=g)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), x @ truth.t())
    loss.backward()
    optimizer.step()
last = hora.join()
print(f"rank {hora.rank()}: {batches} batches, loss {loss.item():.4f}; rank {last} came last")
# The ranks that joined early missed the last steps: send them the result.
hora.torch.broadcast_parameters(model.state_dict(), root_rank=last)
hora.shutdown()
