"""Horovod's elastic script with a kill in the middle.

    horovodrun -np 2 --min-np 2 --max-np 2 --reset-limit 3 python examples/31-horovod-elastic/train.py
    hora run -np 2 --min-np 1 --restarts 3 python examples/31-horovod-elastic/train.py

As Horovod's own example has it: the optimizer is wrapped once, TorchState holds what must not be lost, ElasticSampler
knows which samples of the epoch have been seen, and every tenth batch is committed. In the second epoch a rank is
killed in the middle of a step: the other goes back to the last commit, and a new process takes the place and gets the
state. With --min-np 1 the other does not wait for it. The script kills once: it leaves a file behind that says so.
"""

import argparse
import os
import signal
import tempfile

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--batches-per-commit", type=int, default=10)
parser.add_argument("--kill", type=int, default=1, help="the rank that is killed")
parser.add_argument("--killed", help="the file that says so; one a job by default")


def digits(n, seed):
    prototypes = torch.rand(10, 64, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=g)
    return torch.utils.data.TensorDataset(prototypes[y] - 0.5 + 0.3 * torch.randn(n, 64, generator=g), y)


def die_once(rank, file):
    """As if this rank's machine had failed."""
    if hvd.rank() == rank and not os.path.exists(file):
        open(file, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state, args, file):
    print(f"rank {hvd.rank()} of {hvd.size()} at epoch {state.epoch}, batch {state.batch}", flush=True)
    while state.epoch < args.epochs:
        loader = torch.utils.data.DataLoader(state.sampler.dataset, batch_size=args.batch_size, sampler=state.sampler)
        for i, (data, target) in enumerate(loader):
            if state.epoch == 1 and state.batch == 25:
                die_once(args.kill, file)
            state.optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(state.model(data), dim=1), target)
            loss.backward()
            state.optimizer.step()
            state.sampler.record_batch(i, args.batch_size)
            state.batch += 1
            if state.batch % args.batches_per_commit == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.sampler.set_epoch(state.epoch)
        state.commit()


def main(args):
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    dataset, test_set = digits(2048, 1), digits(512, 2)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=hvd.elastic.ElasticSampler(dataset), epoch=0, batch=0
    )

    def on_state_reset():  # the number of ranks may have changed: so has the batch of all together
        for group in state.optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()

    state.register_reset_callbacks([on_state_reset])
    file = args.killed or os.path.join(tempfile.gettempdir(), f"example-31-{os.environ.get('HORA_JOB', '')}")
    train(state, args, file)

    with torch.no_grad():
        x, y = test_set.tensors
        accuracy = hvd.allreduce(model(x).argmax(1).eq(y).float().mean(), name="accuracy").item()
    weights = hvd.allgather(
        torch.cat([p.detach().reshape(-1) for p in model.parameters()]).reshape(1, -1), name="weights"
    )
    if hvd.rank() == 0:
        assert (weights == weights[0]).all(), "the ranks have different weights"
        print(
            f"done: {state.epoch} epochs on {hvd.size()} ranks, accuracy {100 * accuracy:.1f} %, weights equal on all ranks",
            flush=True,
        )
        if os.path.exists(file):
            os.remove(file)


if __name__ == "__main__":
    main(parser.parse_args())
