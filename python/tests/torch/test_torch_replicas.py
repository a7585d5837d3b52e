"""Parameters that differ between ranks: a warning at the first step, an error where somebody asks for it."""

import os
import warnings

import pytest
import torch

import hora
import hora.torch


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 200), torch.nn.BatchNorm1d(200), torch.nn.Linear(200, 1))


def wrapped(kind: str, model):
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    if kind == "horovod":
        import horovod.torch as hvd

        hvd.init()
        return hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
    op = hora.ADASUM if kind == "adasum" else hora.AVERAGE
    return hora.torch.DistributedOptimizer(
        sgd, named_parameters=model.named_parameters(), op=op, named=kind != "ordered"
    )


def steps(model, optimizer, n=3):
    """The warnings of some steps, each with other data on each rank."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(n):
            optimizer.zero_grad()
            model(torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * i + hora.rank()))).sum().backward()
            optimizer.step()
    return [str(w.message) for w in caught if "differ at the first step" in str(w.message)]


def work_warns(kind: str):
    hora.init()
    rank = hora.rank()
    model = net(rank)
    said = steps(model, wrapped(kind, model))
    assert len(said) == (rank == 0), said
    if said:
        assert (
            "the parameters of rank 0 and rank 1 differ at the first step" in said[0]
            and "call broadcast_parameters(" in said[0]
        )
    model = net(rank)
    hora.torch.broadcast_parameters(model.state_dict(), root_rank=0)
    model[1].running_mean += rank  # buffers are each rank's own
    optimizer = wrapped(kind, model)
    assert not steps(model, optimizer)
    if kind == "named":  # the same element in another place
        with torch.no_grad():
            model[0].weight[0, 0], model[0].weight[3, 1] = (1.0, 2.0) if rank else (2.0, 1.0)
        assert len(steps(model, wrapped(kind, model), 1)) == (rank == 0)
    hora.shutdown()
    hora.init()
    model = net(rank)
    assert len(steps(model, wrapped(kind, model))) == (rank == 0)  # in another life it is looked at anew


@pytest.mark.parametrize("kind", ["named", "ordered", "adasum", "horovod"])
def test_a_warning(ranks, kind):
    ranks(2, work_warns, args=(kind,))


def work_fails(kind: str):
    hora.init()
    rank = hora.rank()
    os.environ["HORA_CHECK_REPLICAS"] = "3" if rank == 0 else "0"  # what one rank asks for, all do
    model = net()
    optimizer = wrapped(kind, model)
    assert not steps(model, optimizer, 5)
    with torch.no_grad():
        model[2].weight[0, 7] += rank
    steps(model, optimizer, 1)  # the sixth
    failure = Exception if kind == "horovod" else hora.MismatchError
    with pytest.raises(
        failure, match=r"Mismatched replicas: the parameter 2\.weight of rank 0 and of rank 1 differs at step 7 of"
    ):
        steps(model, optimizer, 1)
    assert hora.allreduce(1) == hora.size()
    other = net(rank)
    with pytest.raises(
        failure, match=r"the parameter 0\.weight of rank 0 and of rank 1 differs at step 1 of .*broadcast_parameters"
    ):
        steps(other, wrapped(kind, other))
    os.environ["HORA_CHECK_REPLICAS"] = "often"
    with pytest.raises(ValueError, match="HORA_CHECK_REPLICAS='often' is no number of steps"):
        wrapped(kind, other)


@pytest.mark.parametrize("kind", ["named", "ordered", "adasum", "horovod"])
def test_an_error(ranks, kind):
    ranks(2, work_fails, args=(kind,))


def work_large():
    """Sums stand for a large tensor's words: every single element counts."""
    from hora.torch import _replicas

    hora.init()
    a = torch.nn.Parameter(torch.randn(70_001, dtype=torch.float32))
    b = torch.nn.Parameter(a.detach().clone())

    class Made:
        _group = hora.world()

    assert _replicas._pair(Made, [a]) == _replicas._pair(Made, [b])
    for i in (0, 1, 35_000, 65_535, 65_536, 70_000):
        c = torch.nn.Parameter(a.detach().clone())
        c.data[i] = torch.nextafter(c.data[i], torch.tensor(1e9))
        assert _replicas._pair(Made, [a]) != _replicas._pair(Made, [c]), i
    for dtype in (torch.bfloat16, torch.complex64, torch.int8):
        _replicas._pair(Made, [torch.zeros(5, 3, dtype=dtype)])
    _replicas._pair(Made, [torch.zeros(0), torch.zeros(()), torch.zeros(40, 3000).t()])


def test_large_tensors(ranks):
    ranks(1, work_large)
