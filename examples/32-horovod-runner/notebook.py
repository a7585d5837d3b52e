"""HorovodRunner from a notebook, on this machine.

    python examples/32-horovod-runner/notebook.py

The cells of a notebook, one after the other: a training function that imports what it needs, a first look in the
notebook's own process (np=-1), then two local processes (np=-2). What rank 0 returns comes back.
"""

# %%
from sparkdl import HorovodRunner


def train(steps, lr=0.1):
    import horovod.torch as hvd
    import torch
    from torch import nn

    hvd.init()
    torch.manual_seed(0)
    truth = torch.arange(8.0).reshape(1, 8) / 8
    model = nn.Linear(8, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=lr), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    g = torch.Generator().manual_seed(hvd.rank())
    for _ in range(steps):
        x = torch.randn(32, 8, generator=g)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x @ truth.t())
        loss.backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach())
    return {"ranks": hvd.size(), "loss": loss.item(), "equal": bool((weights == weights[0]).all())}


# %% a first look, here
if __name__ == "__main__":
    print("here:", HorovodRunner(np=-1).run(train, steps=20))

# %% two processes
if __name__ == "__main__":
    result = HorovodRunner(np=-2).run(train, steps=100)
    print("np=-2:", result)
    assert result["ranks"] == 2 and result["equal"] and result["loss"] < 1e-3
    print("two processes agree")
