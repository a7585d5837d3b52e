"""Process sets through the loss of a rank, in three ranks: `lives_of_sets.py RANK FILE` kills that rank once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import horovod.torch as hvd
import torch

BATCHES = 4


def die_once(rank: int, file: Path) -> None:
    if hvd.rank() == rank and not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def use(far: hvd.ProcessSet, near: hvd.ProcessSet) -> None:
    """Every set gives its members' sum, or says what is wrong with it."""
    r, n = hvd.rank(), hvd.size()
    assert (far.process_set_id, far.ranks, far.size()) == (1, [0, 2], 2), far
    assert (near.process_set_id, near.ranks, near.size()) == (2, [0, 1], 2), near
    assert near.included() == (r < 2) and near.rank() == (r if r < 2 else None)
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(range(n)), 1: [0, 2], 2: [0, 1]}
    for one in (far, near):
        if one.included() and one.ranks[-1] < n:
            assert hvd.allreduce(torch.tensor([1.0 + r]), op=hvd.Sum, process_set=one).item() == sum(one.ranks) + 2
            continue
        wrong = "does not belong to" if one.ranks[-1] < n else f"goes on with ranks 0 to {n - 1}"
        try:
            hvd.allreduce(torch.ones(1), process_set=one)
        except ValueError as error:
            assert wrong in str(error), error
        else:
            raise AssertionError(f"rank {r} used {one}")


def main(victim: int, file: Path) -> None:
    far = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[far])
    near = hvd.add_process_set([0, 1])
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(inner, op=hvd.Sum, process_set=near) if near.included() else None
    state = hvd.elastic.TorchState(model=model, batch=0)
    again: list[bool] = []
    # As scripts for Horovod have it, whose sets are gone by then.
    state.register_reset_callbacks([lambda: again.append(hvd.add_process_set([0, 1]) is near)])

    @hvd.elastic.run
    def train(state):
        while state.batch < BATCHES:
            if state.batch == 2:
                die_once(victim, file)
            use(far, near)
            if optimizer is not None and hvd.rank() < 2:
                optimizer.zero_grad()
                model(torch.ones(1, 1)).sum().backward()
                optimizer.step()
            state.batch += 1
            state.commit()
        if hvd.rank() < 2:
            assert model.weight.item() == -2.0 * BATCHES, model.weight
        if hvd.size() == 3:
            assert (
                hvd.remove_process_set(near)
                and near.included() is None
                and hvd.add_process_set(near).process_set_id == 2
            )
            use(far, near)

    train(state)
    assert all(again), again
    print(f"rank {hvd.rank()} of {hvd.size()} has its sets after {len(again)} losses", flush=True)


main(int(sys.argv[1]), Path(sys.argv[2]))
