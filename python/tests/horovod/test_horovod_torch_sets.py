"""Process sets of an elastic job: those who stay keep them, those who come get them, and nobody waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("lives_of_sets.py")


def _run(launcher, tmp_path, *options: str, kill: int) -> str:
    command = [launcher, "run", "-np", "3", *options, sys.executable, SCRIPT, str(kill), tmp_path / "killed"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_a_newcomer_gets_the_sets(launcher, tmp_path):
    """As rank 0, whose word counts in the first epoch, and with sets from init() and from a later call."""
    out = _run(launcher, tmp_path, "--restarts", "2", kill=0)
    assert "rank 0 of 3 has its sets after 0 losses" in out, out
    assert all(f"rank {r} of 3 has its sets after 1 losses" in out for r in (1, 2)), out


def test_a_set_with_a_missing_rank_says_so(launcher, tmp_path):
    out = _run(launcher, tmp_path, "--min-np", "2", "--restarts", "0", kill=2)
    assert all(f"rank {r} of 2 has its sets after 1 losses" in out for r in (0, 1)), out


def work_disagree():
    """A newcomer adds what nobody else does: all get a sentence instead of waiting for each other."""
    import horovod.torch as hvd
    from horovod.common import process_sets

    hvd.init(process_sets="dynamic")
    try:
        if hvd.rank() == 0:
            process_sets.meet("train", (0, False))
        else:
            hvd.add_process_set([0])
    except ValueError as error:
        print(error)


def work_again():
    """In a job without a launcher all ranks join anew, and have their sets by the old numbers."""
    import horovod.torch as hvd
    import pytest
    import torch

    first, second = hvd.ProcessSet([0]), hvd.ProcessSet(reversed(range(1, 2)))  # an iterator is asked once
    with pytest.raises(ValueError, match="name one rank twice"):
        hvd.ProcessSet(iter([1, 1]))
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    hvd.init(process_sets=[first, second])
    hvd.remove_process_set(first)
    hvd.mpi_ops._basics.rejoin()
    assert first.included() is None and second.process_set_id == 2 and second.included() == (hvd.rank() == 1)
    other = hvd.ProcessSet([1])
    assert hvd.add_process_set(other).process_set_id == 2 and hvd.add_process_set([1]) is second
    if hvd.rank() == 1:
        for one in (second, other):
            assert hvd.allreduce(torch.ones(1), process_set=one).item() == 1
    assert hvd.remove_process_set(other) and second.process_set_id is None


def work_outside():
    """A rank outside the set steps by itself and keeps nobody waiting; those inside average among themselves."""
    import copy

    import horovod.torch as hvd
    import torch

    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    r = hvd.rank()
    for op, named in ((hvd.Average, True), (hvd.Sum, False)):
        torch.manual_seed(1)
        model, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        twin.load_state_dict(model.state_dict())
        opt = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.5),
            model.named_parameters() if named else None,
            op=op,
            process_set=pair,
        )
        plain = torch.optim.SGD(twin.parameters(), lr=0.5)
        names = ["weight", "bias"] if named else ["parameter.0", "parameter.1"]
        assert [opt._parameter_names[p] for p in model.parameters()] == names and opt.process_set is pair
        for step in range(3):
            opt.zero_grad()
            plain.zero_grad()
            mine = torch.full((1, 3), float(10 * step + r))
            model(mine).sum().backward()
            if pair.included():
                for other in pair.ranks:
                    (
                        twin(torch.full((1, 3), float(10 * step + other))).sum() / (2 if op == hvd.Average else 1)
                    ).backward()
            else:
                twin(mine).sum().backward()
            if step == 1:
                opt.synchronize()
                with opt.skip_synchronize():
                    opt.step()
            else:
                opt.step()
            plain.step()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b)
        again = copy.deepcopy(opt)
        assert again.process_set is pair and set(again._parameter_names.values()) == set(names)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 3


def work_numbers():
    """Calls without a name are matched by number: in a set of one they count as in a set of two."""
    import horovod.torch as hvd
    import torch

    pair, one = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1])
    hvd.init(process_sets=[pair, one])
    mine = pair if pair.included() else one
    x = torch.ones(2, requires_grad=True)
    assert hvd.broadcast_object(hvd.rank(), mine.ranks[0], process_set=mine) == mine.ranks[0]
    assert hvd.allgather_object(hvd.rank(), process_set=mine) == mine.ranks
    hvd.allreduce(x, process_set=mine).sum().backward()
    hvd.grouped_allreduce([x.detach(), x.detach()], process_set=mine)
    hvd.grouped_allgather([x.detach(), x.detach()], process_set=mine)
    hvd.allgather(x, process_set=mine).sum().backward()
    hvd.broadcast(x, mine.ranks[0], process_set=mine).sum().backward()
    hvd.alltoall(torch.ones(mine.size()), process_set=mine)
    hvd.alltoall(torch.ones(mine.size()), torch.ones(mine.size(), dtype=torch.int32), process_set=mine)
    hvd.reducescatter(torch.ones(mine.size()), process_set=mine)
    hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), op=hvd.Average, name="thin", process_set=mine)()
    hvd.barrier(mine)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 3


def test_calls_in_a_set_of_one_count(ranks):
    ranks(3, work_numbers, timeout=60)


def test_an_optimizer_outside_its_set(ranks):
    ranks(3, work_outside, timeout=60)


def test_ranks_that_want_different_things(ranks):
    said = ranks(2, work_disagree, timeout=90)
    assert "rank 0 goes on to train while rank 1 adds a process set" in said[0], said
    assert "rank 1 adds a process set while rank 0 goes on to train" in said[1], said


def test_all_join_anew(ranks):
    ranks(2, work_again, timeout=90)
