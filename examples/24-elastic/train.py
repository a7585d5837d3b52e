"""Training that goes on after a process was killed.

    hora run -np 2 --restarts 3 python examples/24-elastic/train.py

What must not be lost stands in a State: the model, the optimizer, the step. Every tenth step is committed. At step 35
rank 1 is killed, as if its machine had failed: the others hear of it at once, go back to step 30, a new process takes
the place, gets the state from them, and training ends as if nothing had happened: the final weights are equal on all
ranks. (The kill happens only once: it leaves a file behind that says so.)
"""

import os
import signal
import sys
import tempfile

import torch
from torch import nn

import hora
import hora.elastic
import hora.torch

STEPS = 60
KILLED = (
    sys.argv[1]
    if len(sys.argv) > 1
    else os.path.join(tempfile.gettempdir(), f"example-24-{os.environ.get('HORA_JOB', '')}")
)

hora.init()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
state = hora.torch.TorchState(model=model, optimizer=optimizer, step=0)


@hora.elastic.run
def train(state):
    print(f"rank {hora.rank()} of {hora.size()} at step {state.step}", flush=True)
    optimizer = hora.torch.DistributedOptimizer(state.optimizer, state.model.named_parameters())
    while state.step < STEPS:
        g = torch.Generator().manual_seed(1000 * state.step + hora.rank())
        x = torch.randn(32, 8, generator=g)
        if state.step == 35 and hora.rank() == 1 and not os.path.exists(KILLED):
            open(KILLED, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(state.model(x), x.sum(1, keepdim=True).sin())
        loss.backward()
        optimizer.step()
        state.step += 1
        if state.step % 10 == 0:
            state.commit()
    return float(loss.detach())


loss = train(state)
weights = hora.allgather(torch.cat([p.detach().reshape(-1) for p in state.model.parameters()])).view(hora.size(), -1)
if hora.rank() == 0:
    assert (weights == weights[0]).all()
    print(f"done: step {state.step}, loss {loss:.4f}, weights equal on {hora.size()} ranks")
    if os.path.exists(KILLED):
        os.remove(KILLED)
