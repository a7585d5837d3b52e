"""Fits a line with Horovod and logs to its run, as scripts for Azure Machine Learning do."""

import argparse
import os

import horovod.torch as hvd
import torch
from azureml.core.run import Run

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--quiet", action="store_true")
args = parser.parse_args()

run = Run.get_context()
hvd.init()
assert int(os.environ["OMPI_COMM_WORLD_RANK"]) == hvd.rank() and int(os.environ["OMPI_COMM_WORLD_SIZE"]) == hvd.size()

torch.manual_seed(hvd.rank())
x = torch.rand(200, 1) * 2 - 1
y = 3 * x - 1 + 0.1 * torch.randn(200, 1)
model = torch.nn.Linear(1, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

for epoch in range(args.epochs):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    run.log("loss", loss.item())
    if not args.quiet:
        print(f"epoch {epoch}: {loss.item():.4f}")

if hvd.rank() == 0:
    run.log_row("line", slope=round(model.weight.item(), 1), offset=round(model.bias.item(), 1))
    os.makedirs("outputs", exist_ok=True)
    torch.save(model.state_dict(), "outputs/line.pt")
    print("the line is", round(model.weight.item(), 1), round(model.bias.item(), 1))
run.complete()
