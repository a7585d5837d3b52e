"""Every form of a collective beside the plain one, names, what was built, and what programs ask in odd places."""

from __future__ import annotations

import inspect
import os
import warnings

import pytest
import torch


def names_of_a_cycle(hvd):
    """An asynchronous call's name is refused on every rank while nobody knows that the call before has ended, though it
    has."""
    from horovod.torch import _handles

    _handles.CYCLE = 60.0
    calls = [
        (f, (torch.ones(2) if "grouped" not in f.__name__ else [torch.ones(2)], *more))
        for f, *more in (
            (hvd.allreduce_async,), (hvd.allreduce_async_,), (hvd.grouped_allreduce_async,),
            (hvd.grouped_allreduce_async_,), (hvd.allgather_async,),
            (hvd.grouped_allgather_async,), (hvd.broadcast_async, 0), (hvd.broadcast_async_, 0), (hvd.alltoall_async,),
            (hvd.reducescatter_async,),
            (hvd.grouped_reducescatter_async,),
        )
    ]  # fmt: skip
    for f, args in calls:
        first = f(*args, name=f.__name__)
        hvd.barrier()  # after it the first is through on every rank, or nearly so
        for _ in range(10):
            with pytest.raises(ValueError, match="Duplicate tensor name"):
                f(*args, name=f.__name__)
        hvd.synchronize(first)
        second = f(*args, name=f.__name__)
        while not hvd.poll(second):
            pass
        hvd.synchronize(f(*args, name=f.__name__))
        hvd.synchronize(second)
    assert not _handles._taken
    assert (
        hvd.allreduce(torch.ones(2), op=hvd.Sum) == hvd.size()
    ).all()  # names that count calls are the same on all ranks


def work_forms():
    """Asynchronous, in place, grouped: all give what allreduce, allgather and the others give."""
    import horovod.torch as hvd

    hvd.init()
    r, n = hvd.rank(), hvd.size()
    x, y = torch.arange(4.0) + r, torch.full((2, 2), float(r))
    sums = [torch.arange(4.0) * n + n * (n - 1) / 2, torch.full((2, 2), n * (n - 1) / 2)]

    def equal(got, want):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)

    means = [s / n for s in sums]
    for group, want in (({"op": hvd.Sum}, sums), ({"average": False}, sums), ({}, means), ({"average": True}, means)):
        equal(hvd.grouped_allreduce([x, y], **group), want)
        equal(hvd.synchronize(hvd.grouped_allreduce_async([x, y], **group)), want)
        for call in (hvd.grouped_allreduce_, lambda *a, **k: hvd.synchronize(hvd.grouped_allreduce_async_(*a, **k))):
            mine = [x.clone(), y.clone()]
            got = call(mine, **group)
            equal(mine, want)
            assert all(a is b for a, b in zip(got, mine, strict=True))
    equal(hvd.grouped_allreduce([x, y], compression=hvd.Compression.fp16), means)
    equal(hvd.grouped_allreduce([x, y], op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), [2 * s for s in sums])
    equal([hvd.allreduce(torch.full((2,), 2), op=hvd.Product)], [torch.full((2,), 2**n)])
    equal([hvd.allreduce(torch.tensor([r, 1]))], [torch.tensor([n * (n - 1) // 2 // n, 1])])  # cut off, as integers are

    rows = torch.full((r + 1, 2), float(r))
    all_rows = torch.cat([torch.full((i + 1, 2), float(i)) for i in range(n)])
    equal(
        hvd.synchronize(hvd.grouped_allgather_async([rows, x])),
        [all_rows, torch.cat([torch.arange(4.0) + i for i in range(n)])],
    )
    share, whole = [2 * n // n] * n, torch.arange(2.0 * n)
    equal([hvd.reducescatter(whole)], [whole[2 * r : 2 * r + share[r]]])
    equal(
        [hvd.synchronize(hvd.reducescatter_async(whole, op=hvd.Sum, prescale_factor=0.5))],
        [whole[2 * r : 2 * r + 2] * n / 2],
    )
    equal([hvd.reducescatter(whole, compression=hvd.Compression.fp16)], [whole[2 * r : 2 * r + 2]])
    many = hvd.grouped_reducescatter([whole, whole[:n]], op=hvd.Sum, postscale_factor=2.0)
    equal(many, [whole[2 * r : 2 * r + 2] * 2 * n, whole[r : r + 1] * 2 * n])
    equal(hvd.synchronize(hvd.grouped_reducescatter_async([whole])), [whole[2 * r : 2 * r + 2]])

    z = x.clone()
    assert hvd.broadcast_(z, n - 1) is z and torch.equal(z, torch.arange(4.0) + n - 1)
    z = x.clone()
    assert (
        hvd.synchronize(hvd.broadcast_async_(z, 0)) is z
        and torch.equal(z, torch.arange(4.0))
        and torch.equal(x, torch.arange(4.0) + r)
    )
    out, received = hvd.synchronize(hvd.alltoall_async(torch.full((n, 3), r), torch.ones(n, dtype=torch.int32)))
    assert out[:, 0].tolist() == list(range(n)) and received.tolist() == [1] * n
    sparse = torch.sparse_coo_tensor([[0, r + 1]], [1.0, 2.0], (n + 1,), check_invariants=False)
    assert hvd.sparse_allreduce_async(sparse, "mean", hvd.Average)().to_dense().tolist() == [1.0] + [2.0 / n] * n
    # Nothing at all, and rows of nothing: the shape is that of torch.cat.
    assert hvd.allreduce(torch.empty(0)).shape == (0,) and hvd.allgather(torch.empty(0, 3)).shape == (0, 3)
    assert hvd.allgather(torch.ones(r, 2)).shape == (n * (n - 1) // 2, 2) and hvd.allgather(
        torch.ones(r + 1, 0)
    ).shape == (3, 0)
    out, received = hvd.alltoall(torch.ones(3, 0), torch.tensor([1, 2], dtype=torch.int32))
    assert out.shape == (2 * (r + 1), 0) and received.tolist() == [r + 1] * 2

    # Gradients: this rank's rows of a gradient that differs from row to row; those of the grouped forms.
    a = torch.ones(r + 1, requires_grad=True)
    (hvd.allgather(a) * torch.arange(3.0)).sum().backward()
    assert a.grad.tolist() == [[0.0], [1.0, 2.0]][r]
    a, b = torch.ones(2, requires_grad=True), torch.ones(r + 1, 2, requires_grad=True)
    one, two = hvd.grouped_allgather([a, b])
    (one.sum() + 3 * two.sum()).backward()
    assert a.grad.tolist() == [1.0] * 2 and b.grad.flatten().tolist() == [3.0] * 2 * (r + 1)
    for op, of_one in ((hvd.Sum, n), (hvd.Average, 1)):
        a, b = torch.ones(n, requires_grad=True), torch.ones(2 * n, requires_grad=True)
        one, two = hvd.grouped_reducescatter([a, b], op=op)
        (one.sum() + 3 * two.sum()).backward()
        assert a.grad.tolist() == [of_one] * n and b.grad.tolist() == [3.0 * of_one] * 2 * n
    with pytest.raises(ValueError, match="several devices"):
        hvd.grouped_allreduce([x, torch.ones(1, device="meta")])

    # Objects, of a set too; the root counts in the whole job.
    every = hvd.global_process_set
    assert hvd.broadcast_object({"r": r}, root_rank=1, name="state", process_set=every) == {"r": 1}
    model = torch.nn.Linear(2, 1)
    for params in (
        model.state_dict(),
        list(model.parameters()),
        list(model.named_parameters()),
        model.named_parameters(),
    ):
        torch.nn.init.constant_(model.weight, float(r))
        hvd.broadcast_parameters(params, root_rank=1)
        assert model.weight.tolist() == [[1.0, 1.0]]
    for wrong in (5, "weights", model):
        with pytest.raises(ValueError, match="invalid params of type"):
            hvd.broadcast_parameters(wrong, root_rank=0)
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)
    adam = torch.optim.Adam(model.parameters(), lr=0.1 * (r + 1))
    if r == 0:
        model(torch.ones(1, 2)).sum().backward()
        adam.step()
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    assert adam.param_groups[0]["lr"] == 0.1 and [s["step"].item() for s in adam.state.values()] == [1, 1]
    # One that is fresh everywhere gets its state, and gradients of zero; the parameters stay where they are.
    for make in (
        lambda params: torch.optim.Adam(params, lr=0.1, weight_decay=0.1),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda params: hvd.DistributedOptimizer(torch.optim.Adam(params, lr=0.1, weight_decay=0.1)),
    ):
        model = torch.nn.Linear(2, 1)
        model.bias.requires_grad_(False)
        values = [p.detach().clone() for p in model.parameters()]
        fresh = make(model.parameters())
        hvd.broadcast_optimizer_state(fresh, root_rank=0)
        assert model.weight.grad.tolist() == [[0, 0]] and model.bias.grad is None
        assert list(fresh.state) == [model.weight] and all(
            torch.equal(p, v) for p, v in zip(model.parameters(), values, strict=True)
        )
    rows = torch.nn.Embedding(4, 2, sparse=True)
    for fresh in (torch.optim.SGD(rows.parameters(), lr=0.1), torch.optim.SparseAdam(rows.parameters())):
        hvd.broadcast_optimizer_state(fresh, 0, rows)
        assert rows.weight.grad.is_sparse and not rows.weight.grad.to_dense().any()
    names_of_a_cycle(hvd)


def work_sparse_adam():
    """With sparse_as_dense a gradient that was sparse is sparse again after the sum, also where a rank had none."""
    import horovod.torch as hvd

    import hora.torch

    hvd.init()
    r = hvd.rank()
    for overlap in (False, True):
        torch.manual_seed(1)
        rows, twin = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Embedding(10, 3, sparse=True)
        twin.load_state_dict(rows.state_dict())
        opt = torch.optim.SparseAdam(list(rows.parameters()), lr=0.1)
        if overlap:
            opt = hora.torch.DistributedOptimizer(opt, sparse_as_dense=True, overlap=True)
        else:
            opt = hvd.DistributedOptimizer(opt, rows.named_parameters(), sparse_as_dense=True)
        plain = torch.optim.SparseAdam(list(twin.parameters()), lr=0.1)
        used = [([1, 2], None), ([2], [3]), ([5, 5, 1], [1])]
        for of_rank in used:
            opt.zero_grad()
            plain.zero_grad()
            if of_rank[r] is not None:
                rows(torch.tensor(of_rank[r])).square().sum().backward()
            for some in of_rank:
                if some is not None:
                    (twin(torch.tensor(some)).square().sum() / 2).backward()
            opt.step()
            plain.step()
            assert rows.weight.grad.is_sparse
            torch.testing.assert_close(rows.weight.grad.to_dense(), twin.weight.grad.to_dense())
            torch.testing.assert_close(rows.weight, twin.weight)


def test_sparse_adam(ranks):
    ranks(2, work_sparse_adam, timeout=60)


def test_forms(ranks):
    ranks(2, work_forms, timeout=90)


def work_names():
    """A call without a name has its number for one, and the count begins again after shutdown."""
    import horovod.torch as hvd

    for _ in range(2):
        hvd.init()
        r = hvd.rank()
        for kind, call in (
            ("allreduce", lambda: hvd.allreduce(torch.ones(1))),
            ("grouped_allreduce", lambda: hvd.grouped_allreduce([torch.ones(1)] * 2)),
            ("allgather", lambda: hvd.allgather(torch.ones(1))),
            ("broadcast", lambda: hvd.broadcast(torch.ones(1), 0)),
            ("alltoall", lambda: hvd.alltoall(torch.ones(2))),
            ("reducescatter", lambda: hvd.reducescatter(torch.ones(2))),
        ):
            before = hvd.allreduce_async(torch.ones(1))
            hvd.synchronize(before)
            # Rank 1 says the name that rank 0's call has by itself, and brings another shape.
            if r == 0:
                with pytest.raises(
                    hvd.HorovodInternalError, match=rf"{kind}\.noname\.{before + 1}{'_1of2' * (kind[0] == 'g')}[^0-9_]"
                ) as error:
                    call()
                assert "Mismatched" in str(error.value)
            else:
                name, odd = f"noname.{before + 1}", torch.ones(4, 4)
                with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
                    if kind == "grouped_allreduce":
                        hvd.grouped_allreduce([odd, odd], name=name)
                    elif kind == "broadcast":
                        hvd.broadcast(odd, 0, name=name)
                    else:
                        getattr(hvd, kind)(odd.to(torch.float64), name=name)
        first = hvd.allreduce_async(torch.ones(1))
        hvd.synchronize(first)
        hvd.shutdown()
    hvd.init()
    assert hvd.allreduce_async(torch.ones(1), name="first") == 1
    assert hvd.synchronize(1).item() == 1 and hvd.synchronize(1) is None


def test_names(ranks):
    ranks(2, work_names, timeout=90)


ASKED = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


def work_questions():
    import horovod.torch as hvd
    from torch.utils.data import DataLoader

    everything = [getattr(hvd, name) for name in ASKED]
    needs = [
        *everything,
        hvd.is_homogeneous,
        hvd.mpi_threads_supported,
        hvd.global_process_set.rank,
        hvd.global_process_set.size,
    ]

    def refused():
        for ask in [*needs, hvd.stop_timeline, lambda: hvd.add_process_set([0]), lambda: hvd.allgather_object(1)]:
            with pytest.raises(ValueError, match=r"has not been initialized; use hvd.init\(\)."):
                ask()
        assert not hvd.is_initialized()

    refused()
    # A start that fails is none, whatever the ranks want differently.
    for sets in ([[0], [0]], [[0, 1], [1, 0]], [[0], [2]], [[0], []]):
        with pytest.raises(ValueError, match=r"already exists|the job has ranks 0 to 1"):
            hvd.init(process_sets=[hvd.ProcessSet(s) for s in sets])
        refused()
    with pytest.raises(ValueError, match="not the whole job of 2 ranks"):
        hvd.init(comm=[0])
    refused()
    hvd.init(comm=[0, 1])
    hvd.init()  # nothing happens
    r = hvd.rank()
    assert [ask() for ask in everything] == [r, 2, r, 2, 0, 1]
    assert (
        hvd.is_homogeneous() is True and hvd.mpi_threads_supported() is True and hvd.gloo_built() and hvd.gloo_enabled()
    )
    none = ("mpi_enabled", "mpi_built", "nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built")
    assert not any(getattr(hvd, name)() for name in none) and type(hvd.nccl_built()) is int

    class Place(torch.utils.data.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            whole = hvd.global_process_set
            assert hvd.is_initialized() and (whole.rank(), whole.size()) == (r, 2)
            return torch.tensor([ask() for ask in everything])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        assert [b[0].tolist() for b in DataLoader(Place(), num_workers=1, multiprocessing_context="fork")] == [
            [r, 2, r, 2, 0, 1]
        ] * 3
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(RuntimeError, match="only supports Sum and Average") as error:
            hvd.reducescatter(torch.ones(2), op=op)
        assert isinstance(error.value, ValueError) and not isinstance(error.value, hvd.HorovodInternalError)
    hvd.shutdown()
    hvd.shutdown()
    refused()
    hvd.init(process_sets="dynamic")
    first, second = hvd.add_process_set([0]), hvd.add_process_set(hvd.ProcessSet([1]))
    assert hvd.remove_process_set(first) and second.process_set_id == 2
    assert hvd.add_process_set([0]).process_set_id == 1, "a number is free again"


def test_questions(ranks):
    ranks(2, work_questions, timeout=90)


def work_start_fails():
    import horovod.torch as hvd

    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"start timeline: open /no/where: .*; give a path that rank 0 can write"
        ) as error:
            hvd.init()
        assert isinstance(error.value, hvd.HorovodInternalError) and not hvd.is_initialized()
    del os.environ["HOROVOD_TIMELINE"]
    hvd.init()
    assert hvd.allreduce(torch.ones(1)).item() == 1


def test_a_start_that_fails_is_a_value_error(ranks):
    ranks(1, work_start_fails, env={"HOROVOD_TIMELINE": "/no/where"})


def test_rank_and_size_of_any_launcher(monkeypatch):
    from horovod.runner.common.util.env import get_env_rank_and_size

    for rank, size in (
        ("HOROVOD_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ):
        with monkeypatch.context() as env:
            env.setenv(rank, "2")
            with pytest.raises(RuntimeError, match=f"{rank}=2 but {size}=None"):
                get_env_rank_and_size()
            env.setenv(size, "5")
            assert get_env_rank_and_size() == (2, 5)


def test_exceptions_and_caches(monkeypatch):
    from horovod.common import exceptions, util

    assert issubclass(exceptions.HorovodInternalError, RuntimeError) and issubclass(
        exceptions.HostsUpdatedInterrupt, RuntimeError
    )
    assert (
        exceptions.HostsUpdatedInterrupt(True).skip_sync is True
        and exceptions.HostsUpdatedInterrupt().skip_sync is False
    )
    mismatch = exceptions.HorovodVersionMismatchError("torch", "2.0", "2.1")
    assert isinstance(mismatch, ImportError) and all(word in str(mismatch) for word in ("torch", "2.0", "2.1"))
    there = util.gpu_available("torch")
    assert there is torch.cuda.is_available() and util.gpu_available("mxnet") is False
    monkeypatch.setattr(torch.cuda, "is_available", lambda: not there)
    assert util.gpu_available("torch") is there, "asked once"

    asked = []

    @util._cache
    def total(*numbers, start=0):
        """A sum."""
        asked.append(numbers)
        return sum(numbers, start)

    assert [total(1, 2), total(1, 2), total(2, 1), total(1, 2, start=4), total(1, 2, start=4)] == [3, 3, 3, 7, 7]
    assert asked == [(1, 2), (2, 1), (1, 2)] and total.__doc__ == "A sum."
    assert util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__) is None


def test_arguments_of_the_rest():
    """The order and the defaults that scripts rely on, of what test_horovod_surface.py leaves out."""
    import horovod
    import horovod.torch as hvd
    from horovod.data import AsyncDataLoaderMixin

    def of(f):
        return [
            p.name if p.default is p.empty or p.name == "process_set" else f"{p.name}={p.default!r}"
            for p in inspect.signature(f).parameters.values()
        ]

    scale = ["prescale_factor=1.0", "postscale_factor=1.0", "process_set"]
    for f in (hvd.allreduce_async, hvd.allreduce_, hvd.allreduce_async_):
        assert of(f) == ["tensor", "average=None", "name=None", "op=None", *scale]
    for f in (hvd.grouped_allreduce_async, hvd.grouped_allreduce_, hvd.grouped_allreduce_async_):
        assert of(f) == ["tensors", "average=None", "name=None", "op=None", *scale]
    assert [a.partition("=")[0] for a in of(hvd.grouped_allreduce)] == [
        "tensors", "average", "name", "compression", "op", "prescale_factor", "postscale_factor", "process_set",
    ]  # fmt: skip
    assert of(hvd.allgather) == of(hvd.allgather_async) == ["tensor", "name=None", "process_set"]
    assert of(hvd.sparse_allreduce_async) == ["tensor", "name", "op", "process_set"]
    assert of(hvd.broadcast_) == of(hvd.broadcast_async_) == ["tensor", "root_rank", "name=None", "process_set"]
    assert of(hvd.reducescatter_async) == ["tensor", "name=None", "op=0", "process_set", *scale[:2]]
    assert of(hvd.join) == ["device=-1"] and of(hvd.barrier) == ["process_set"]
    assert of(hvd.init) == ["comm=None", "process_sets=None"] and of(hvd.start_timeline) == [
        "file_path",
        "mark_cycles=False",
    ]
    assert of(hvd.broadcast_parameters) == ["params", "root_rank"]
    assert of(hvd.broadcast_optimizer_state) == ["optimizer", "root_rank", "model=None"]
    assert of(hvd.broadcast_object) == ["obj", "root_rank=0", "name=None", "process_set"]
    assert of(hvd.allgather_object)[:2] == ["obj", "name=None"]
    assert of(hvd.elastic.ElasticSampler) == ["dataset", "shuffle=True", "seed=0"]
    assert of(AsyncDataLoaderMixin)[:2] == ["async_loader_queue_size=64", "debug_data_loader=False"]
    optimizer = of(hvd.DistributedOptimizer)
    assert optimizer[3] == "backward_passes_per_step=1" and optimizer[5:9] == [
        "gradient_predivide_factor=1.0", "num_groups=0", "groups=None", "sparse_as_dense=False",
    ]  # fmt: skip
    run = [a.partition("=")[0] for a in of(horovod.run)]
    assert (
        run[:11]
        == "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile".split()
    )
