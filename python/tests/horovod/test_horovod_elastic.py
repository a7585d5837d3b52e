"""hvd.elastic.run: state comes back after a failed collective, and is sent after hosts have changed."""

from __future__ import annotations

import time

import torch


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
