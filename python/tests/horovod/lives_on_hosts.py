"""An elastic training that says in each life who it is: `lives_on_hosts.py lose` ends the first rank, `… poll FILE`
waits for news of hosts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

what, *rest = sys.argv[1:]
started = int(os.environ["HOROVOD_RANK"])
hvd.init()


def heard(state) -> bool:
    """Whether the launcher has said something, as scripts find out that look for themselves."""
    end = time.monotonic() + 60
    while state._host_messages.empty():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@hvd.elastic.run
def train(state):
    state.lives += 1
    print(f"life {state.lives}: started as {started}, rank {hvd.rank()} of {hvd.size()}, step {state.step}", flush=True)
    while state.step < 6:
        if what == "lose" and state.step == 3 and started == 0:
            raise ArithmeticError("this host is broken")
        hvd.allreduce(torch.ones(1))
        state.step += 1
        if what == "poll" and state.step in (2, 4) and hvd.rank() == 0:
            Path(rest[0]).write_text("localhost:1\n127.0.0.1:1\n" if state.step == 2 else "127.0.0.1:1\n")
            print(f"step {state.step}: heard {heard(state)}", flush=True)
        state.commit()


train(hvd.elastic.TorchState(step=0, lives=0))
