"""An elastic training that keeps a diary, a line of JSON for every epoch: `elastic_diary.py PLAN`, what is to happen as
JSON.

It is written as Horovod's users write such programs: rank 0 looks by itself for news of hosts where its plan has some.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import horovod.torch as hvd
import torch

plan = json.loads(sys.argv[1])
STEPS = 10
born = int(os.environ["HOROVOD_RANK"])

hvd.init()
model = torch.nn.Linear(3, 2)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
inputs, wanted = torch.randn(8, 3), torch.randint(2, (8,))


def perhaps_end(state) -> None:
    """The failures of the plan: who was started as one of these ranks ends here."""
    if born not in plan["ends"].get(f"{state.epoch}.{state.batch}", []):
        return
    if plan["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ArithmeticError(f"planned for epoch {state.epoch}")


def await_news(state) -> None:
    """Rank 0's word from the launcher, as soon as the hosts are others than in this epoch."""
    of = plan["hosts"] or [[]]
    if of[min(state.epoch, len(of) - 1)] == of[min(state.epoch + 1, len(of) - 1)]:
        return
    end = time.monotonic() + plan["patience"]
    while state._host_messages.empty():
        if time.monotonic() > end:
            raise TimeoutError("nobody told of other hosts")
        time.sleep(0.05)


@hvd.elastic.run
def train(state) -> None:
    state.lives += 1
    while state.epoch < plan["epochs"]:
        while state.batch < STEPS:
            perhaps_end(state)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), wanted).backward()
            optimizer.step()
            state.batch += 1
            state.commit()
        if hvd.rank() == 0:
            entry = {
                "epoch": state.epoch,
                "born": born,
                "host": os.environ["HOROVOD_HOSTNAME"],
                "size": hvd.size(),
                "lives": state.lives,
            }
            with open(plan["diary"], "a") as diary:
                diary.write(json.dumps(entry) + "\n")
            await_news(state)
        time.sleep(plan["pause"])
        state.epoch += 1
        state.batch = 0
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0, lives=0))
