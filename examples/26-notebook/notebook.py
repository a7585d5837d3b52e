"""Training on several processes from a notebook.

    python examples/26-notebook/notebook.py

Cells of a notebook, one after the other. `hora.run` starts processes on this machine, calls a function of the
notebook in each, and gives back what each returned: here the trained weights, so that the next cell can go on with
them. What the function reads, the notebook's own variables too, travels with it.
"""

# %%
import torch
from torch import nn

import hora

SLOPES = torch.tensor([[1.0, -2.0, 3.0, 0.5]])


def train(steps):
    import hora.torch

    hora.init()
    torch.manual_seed(hora.rank())
    model = nn.Linear(4, 1)
    optimizer = hora.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    hora.torch.broadcast_parameters(model.state_dict(), root_rank=0)
    for _ in range(steps):
        x = torch.randn(32, 4)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x @ SLOPES.t())
        loss.backward()
        optimizer.step()
    return {"rank": hora.rank(), "weight": model.weight.detach(), "loss": loss.item()}


# %% two processes, and what each of them returned
if __name__ == "__main__":
    results = hora.run(train, args=(100,), np=2)
    print("losses:", [round(r["loss"], 6) for r in results])

# %% go on with the weights here
if __name__ == "__main__":
    assert [r["rank"] for r in results] == [0, 1]
    assert torch.equal(results[0]["weight"], results[1]["weight"])
    assert torch.allclose(results[0]["weight"], SLOPES, atol=1e-2)
    print("both processes found", [round(w, 2) for w in results[0]["weight"].flatten().tolist()])
