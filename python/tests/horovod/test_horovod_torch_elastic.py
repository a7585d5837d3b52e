"""hvd.elastic.run: state comes back after a failed collective, and is sent after hosts have changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[3] / "examples/31-horovod-elastic/train.py"


def work_elastic():
    import horovod.torch as hvd
    from horovod.common.exceptions import HostsUpdatedInterrupt
    from horovod.runner.elastic.worker import HostUpdateResult, notification_manager

    hvd.init()
    r = hvd.rank()
    torch.manual_seed(r)
    model = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = hvd.elastic.ElasticSampler(list(range(40)), shuffle=False)
    state = hvd.elastic.TorchState(model=model, optimizer=opt, sampler=sampler, batch=0)
    resets, lives = [], []
    state.register_reset_callbacks([lambda: resets.append(state.batch)])

    @hvd.elastic.run
    def train(state):
        lives.append(state.batch)
        wrapped = hvd.DistributedOptimizer(state.optimizer, named_parameters=state.model.named_parameters())
        while state.batch < 6:
            wrapped.zero_grad()
            state.model(torch.ones(1, 2)).sum().backward()
            wrapped.step()
            state.batch += 1
            if state.batch == 2:
                state.sampler.record_batch(0, 4)
                state.commit()
            if state.batch == 3 and len(lives) == 1:
                hvd.allreduce(torch.ones(3 + r))  # ranks differ: an error on all of them
            if state.batch == 4 and len(lives) == 2 and r == 0:
                notification_manager.handle_hosts_updated(time.time(), HostUpdateResult.added)
            if state.batch == 5:
                state.commit()
        return state.batch

    assert train(state) == 6
    # 0: the start; 2: what was committed before the failed allreduce; 5: where the hosts changed.
    assert lives == [0, 2, 5] and resets == [2, 5], (lives, resets)
    assert sampler.processed_num == 4 * hvd.size() and len(sampler) == (40 - 4 * hvd.size()) // hvd.size()
    weights = hvd.allgather(model.weight.detach())
    assert all(torch.equal(w, weights[0]) for w in weights)
    # Only removals: nobody needs the state.
    state.on_hosts_updated(time.time() + 1, HostUpdateResult.removed)
    try:
        state.check_host_updates()
    except HostsUpdatedInterrupt as update:
        assert update.skip_sync
    else:
        raise AssertionError("a change of hosts went unnoticed")
    state.check_host_updates()


def test_elastic_run(ranks):
    ranks(2, work_elastic, timeout=90)


def _script(launcher, tmp_path, *options: str, kill: int) -> str:
    """What examples/31 prints when that rank is killed in the second epoch."""
    command = [launcher, *options, sys.executable, SCRIPT, "--kill", str(kill), "--killed", tmp_path / "killed"]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def test_a_killed_rank_is_replaced(launcher, tmp_path):
    out = _script(
        launcher, tmp_path, "horovodrun", "-np", "2", "--min-np", "2", "--max-np", "2", "--reset-limit", "3", kill=1
    )
    assert len(re.findall(r"rank \d of 2 at epoch 1, batch 20", out)) == 2, out
    assert "done: 4 epochs on 2 ranks" in out, out


def test_who_replaces_rank_zero_gets_the_state_too(launcher, tmp_path):
    """It has rank 0, whose state Horovod spreads, and nothing but its first values."""
    out = _script(
        launcher, tmp_path, "run", "-np", "2", "--restarts", "3", "--report", str(tmp_path / "report.json"), kill=0
    )
    assert len(re.findall(r"rank \d of 2 at epoch 1, batch 20", out)) == 2, out
    assert "done: 4 epochs on 2 ranks" in out, out
    cost = json.loads((tmp_path / "report.json").read_text())["epochs"][1]["recovery"]
    assert cost["seconds"] > 0 and cost["steps"] >= 0, cost


def test_a_survivor_goes_on_alone(launcher, tmp_path):
    """The optimizer that was wrapped for two ranks works for one, and whoever comes too late does no harm."""
    out = _script(launcher, tmp_path, "run", "-np", "2", "--min-np", "1", "--restarts", "1", kill=1)
    assert "rank 0 of 1 at epoch 1, batch 20" in out and "done: 4 epochs on" in out, out


HOSTS = Path(__file__).with_name("lives_on_hosts.py")


def _on_hosts(launcher, tmp_path, hosts: str, *words: str, options: tuple[str, ...]) -> str:
    """What lives_on_hosts.py prints where the hosts are those in a file."""
    (tmp_path / "hosts").write_text(hosts)
    command = [
        launcher,
        "horovodrun",
        *options,
        "--host-discovery-script",
        f"cat {tmp_path}/hosts",
        sys.executable,
        HOSTS,
        *words,
    ]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_a_failed_worker_takes_its_host_away_at_once(launcher, tmp_path):
    """The other worker there takes no part in the next epoch: two lives, of four and of two ranks."""
    out = _on_hosts(launcher, tmp_path, "localhost:2\n127.0.0.1:2\n", "lose", options=("-np", "4", "--min-np", "2"))
    lives = sorted(re.findall(r"life (\d): started as (\d), rank (\d) of (\d), step (\d)", out))
    assert lives == [
        *(("1", str(r), str(r), "4", "0") for r in range(4)),
        ("2", "2", "0", "2", "3"),
        ("2", "3", "1", "2", "3"),
    ], out


def test_host_messages_come_by_themselves(launcher, tmp_path):
    """Of a host that comes, and of its own that goes."""
    out = _on_hosts(
        launcher,
        tmp_path,
        "localhost:1\n",
        "poll",
        str(tmp_path / "hosts"),
        options=("-np", "1", "--min-np", "1", "--max-np", "2"),
    )
    assert "step 2: heard True" in out and "step 4: heard True" in out, out
    lives = sorted(re.findall(r"life (\d): started as (\d), rank (\d) of (\d), step (\d)", out))
    assert lives == [
        ("1", "0", "0", "1", "0"),
        ("2", "0", "0", "2", "2"),
        ("2", "1", "1", "2", "2"),
        ("3", "1", "0", "1", "4"),
    ], out


def alone():
    import horovod.torch as hvd

    if not hvd.is_initialized():
        hvd.init()
    return hvd


def test_half_a_state_is_no_state(monkeypatch):
    hvd = alone()
    from horovod.torch.elastic import state as states

    model = torch.nn.Linear(2, 1)
    first = model.weight.detach().clone()
    state = hvd.elastic.TorchState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), batch=0)

    def received(handler):
        with torch.no_grad():
            handler.value.weight.fill_(7)

    def breaks(handler):
        raise hvd.HorovodInternalError("lost rank 0")

    monkeypatch.setattr(states._ModelHandler, "sync", received)
    monkeypatch.setattr(states._OptimizerHandler, "sync", breaks)
    with pytest.raises(hvd.HorovodInternalError):
        state.sync()
    state.restore()
    assert torch.equal(model.weight, first)


def test_a_restored_optimizer_does_not_work_on_what_was_saved():
    hvd = alone()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)

    def step():
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return model.weight.detach().clone()

    step()
    state.save()
    after = []
    for _ in range(2):
        state.restore()
        step()
        after.append(step())
    assert torch.equal(after[0], after[1])


def test_what_never_works_is_not_tried_for_ever():
    hvd = alone()
    tried = []

    @hvd.elastic.run
    def train(state):
        tried.append(1)
        raise hvd.HorovodInternalError("Mismatched data types: as ever")

    with pytest.raises(
        hvd.HorovodInternalError, match="attempts in a row failed before anything was committed: Mismatched data types"
    ):
        train(hvd.elastic.TorchState(batch=0))
    assert 2 <= len(tried) <= 40


def work_raises():
    import horovod.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("the data end here")
    with pytest.raises(hvd.HorovodInternalError) as error:
        hvd.allreduce(torch.ones(3), name="a")
    print(error.value)


def test_an_exception_is_a_loss_and_no_farewell(job):
    ends = job(2, work_raises).wait(90)
    assert ends[0].code == 0 and "lost rank 1" in ends[0].out, (ends[0].out, ends[0].err)


def work_wraps_again():
    import hora
    import hora.torch

    hora.init()
    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = [hora.torch.DistributedOptimizer(inner)]
    hora.shutdown()
    for name in [n for n in os.environ if n.startswith("HORA_") and n != "HORA_LIBRARY"]:
        del os.environ[name]
    hora.init()
    wrapped.append(hora.torch.DistributedOptimizer(inner))
    for _ in range(3):
        wrapped[1].zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        wrapped[1].step()


def test_the_last_one_wraps_again(ranks):
    """In a world of one nothing is reduced, and what was wrapped for more ranks counts no longer."""
    ranks(2, work_wraps_again, timeout=90)
