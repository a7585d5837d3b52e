"""HORA_TORCH_ARENA: gradients that are reduced where autograd put them. What comes out is the same, bit for bit."""

import os
import random
import threading

import pytest
import torch
from training import start

import hora
import hora.torch
from hora.torch import _arena

SEED = int(os.environ.get("HORA_TEST_SEED", "7"))


def on(mib: str = "1") -> None:
    os.environ["HORA_TORCH_ARENA"] = mib
    hora.init()


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 96, 3).to(memory_format=torch.channels_last), torch.nn.Conv2d(96, 64, 3), torch.nn.Flatten(),
        torch.nn.Linear(64 * 16, 300), torch.nn.ReLU(), torch.nn.Linear(300, 7),
    )  # fmt: skip


def batch(i: int):
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(10 * i + hora.rank()))


def trained(wrap, steps: int = 4, none: bool = True):
    """A model's parameters after some steps, and its wrapper's parts."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, parts = wrap(model, optimizer)
    for i in range(steps):
        optimizer.zero_grad(set_to_none=none)
        model(batch(i)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()], [type(b).__name__ for b in parts()]


def by_optimizer(**more):
    def wrap(model, optimizer):
        optimizer = hora.torch.DistributedOptimizer(optimizer, model.named_parameters(), **more)
        return model, optimizer, lambda: optimizer._buckets

    return wrap


def by_ddp(overlap: bool, as_view: bool):
    def wrap(model, optimizer):
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=as_view)
        hora.torch.accelerate(model, overlap=overlap)
        return model, optimizer, lambda: model.reducer._own.buckets

    return wrap


KINDS = {
    "named": by_optimizer(), "ordered": by_optimizer(named=False), "overlap": by_optimizer(overlap=True),
    "sum": by_optimizer(op=hora.SUM),
    "predivided": by_optimizer(gradient_predivide_factor=2.0), "groups": by_optimizer(num_groups=2),
    "ddp": by_ddp(False, True), "ddp overlapping": by_ddp(True, True),
    "ddp with its own gradients": by_ddp(False, False),
}  # fmt: skip


def work_is_the_same(size: int):
    hora.init()
    start()
    plain = {kind: trained(wrap) for kind, wrap in KINDS.items()}
    assert all("Scattered" not in "".join(parts) for _, parts in plain.values())
    os.environ["HORA_TORCH_ARENA"] = "1"
    for kind, wrap in KINDS.items():
        for none in (True, False):
            weights, parts = trained(wrap, none=none)
            assert sum("Scattered" in part for part in parts) == 2 and len(parts) >= 3, (kind, parts)
            assert all(map(torch.equal, weights, plain[kind][0])), kind
    assert _arena.bytes_in_use() > 0


@pytest.mark.parametrize("size", [2, 3])
def test_the_weights_are_the_same(ranks, size):
    ranks(size, work_is_the_same, args=(size,))


def work_odd_gradients():
    on()
    rank = hora.rank()
    p, q, frozen = (torch.nn.Parameter(torch.ones(200, 200)) for _ in range(3))
    optimizer = hora.torch.DistributedOptimizer(
        torch.optim.SGD([p, q, frozen], lr=1.0), [("p", p), ("q", q), ("frozen", frozen)]
    )

    def reduced(make_p, make_q=lambda: None):
        optimizer.zero_grad()
        p.grad, q.grad, frozen.grad = make_p(), make_q(), torch.ones(200, 200)
        optimizer.synchronize()
        return p.grad, q.grad

    mine = torch.arange(40000.0).view(200, 200) + rank
    mean = torch.arange(40000.0).view(200, 200) + 0.5
    assert torch.equal(reduced(lambda: mine.clone())[0], mean)
    assert torch.equal(reduced(lambda: mine.t().clone().t())[0], mean)  # as another layout on every rank
    assert torch.equal(reduced(lambda: mine.clone() if rank else mine.t().clone().t())[0], mean)  # and on one
    assert torch.equal(reduced(lambda: torch.tensor(1.0 + rank).expand(200, 200))[0], torch.full((200, 200), 1.5))
    other, missing = reduced(lambda: mine.clone(), lambda: mine.clone() if rank else None)
    assert torch.equal(
        missing, (torch.arange(40000.0).view(200, 200) + 1) / 2
    )  # missing on rank 0, which counts as zeros
    frozen.requires_grad_(False)
    optimizer.zero_grad()
    p.grad = mine.clone()
    optimizer.synchronize()
    assert frozen.grad is None and torch.equal(p.grad, mean)
    q.requires_grad_(rank == 0)  # on one rank alone: ranks would drift apart
    optimizer.zero_grad()
    p.grad = mine.clone()
    with pytest.raises(hora.HoraError, match="(?s)rank 0.*rank 1"):
        optimizer.synchronize()


def test_gradients_of_all_kinds(ranks):
    ranks(2, work_odd_gradients)


def work_one_rank_alone():
    hora.init()
    rank = hora.rank()
    os.environ["HORA_TORCH_ARENA"] = "1" if rank else "0"
    weights, parts = trained(by_optimizer())
    assert parts == ["Bucket"], parts
    hora.shutdown()
    os.environ["HORA_TORCH_ARENA"] = "2"  # too late for rank 1, whose arena is open; rank 0's is too small for all
    hora.init()
    again, parts = trained(by_optimizer())
    assert parts.count("Scattered") == 2 and all(map(torch.equal, weights, again))
    filling = [torch.ones(300_000) for _ in range(4)]  # what finds no room lies where it always did
    assert float(sum(t.sum() for t in filling)) == 1_200_000
    again, _ = trained(by_optimizer())
    assert all(map(torch.equal, weights, again))


def test_where_one_rank_has_none_no_rank_uses_it(ranks):
    ranks(2, work_one_rank_alone)


def work_fork():
    on()
    assert _arena.open_arena()
    t = torch.arange(100_000.0)
    before = _arena.bytes_in_use()
    assert before >= 400_000
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        ok = bool(t[99_999] == 99_999) and float(torch.ones(100_000).sum()) == 100_000
        t.zero_()  # its own copy
        del t
        os.write(into, b"y" if ok else b"n")
        os._exit(0)
    assert os.read(out, 1) == b"y"
    os.waitpid(child, 0)
    assert torch.equal(t, torch.arange(100_000.0))
    more = torch.ones(100_000)
    assert _arena.bytes_in_use() >= before + 400_000 and torch.equal(t, torch.arange(100_000.0))
    del t, more
    assert _arena.bytes_in_use() < before
    loader = torch.utils.data.DataLoader(
        torch.arange(400_000.0).view(4, -1), num_workers=2, multiprocessing_context="fork"
    )
    assert [float(x[0, 0]) for x in loader] == [0.0, 100_000.0, 200_000.0, 300_000.0]


def test_a_forked_child_has_copies(ranks):
    ranks(1, work_fork)


def work_by_chance():
    """Threads make, keep and drop tensors whose elements say whose they are."""
    on("24")
    assert _arena.open_arena()
    wrong = []

    def churn(who: int) -> None:
        dice = random.Random(SEED + who)
        held: list[tuple[int, torch.Tensor]] = []
        for turn in range(600):
            if held and dice.random() < 0.5:
                value, t = held.pop(dice.randrange(len(held)))
                if not bool((t == value).all()):
                    wrong.append((who, turn, value))
                continue
            value = who * 1000 + turn
            held.append(
                (
                    value,
                    torch.full(
                        (dice.choice([1, 300, 16_384, 20_000, 70_000, 300_000, 2_000_000]),), value, dtype=torch.int32
                    ),
                )
            )
            if len(held) > 12:
                held.pop(0)
        wrong.extend((who, value) for value, t in held if not bool((t == value).all()))

    threads = [threading.Thread(target=churn, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, (SEED, wrong)
    assert _arena.bytes_in_use() == 0
    whole = torch.ones(24 << 18)  # every part has found its neighbours again
    assert _arena.bytes_in_use() == 24 << 20 and float(whole.sum()) == 24 << 18


def test_tensors_by_chance(ranks):
    print(f"again: HORA_TEST_SEED={SEED} python -m pytest -k test_tensors_by_chance {__file__}")
    ranks(1, work_by_chance)


def work_no_number():
    on("much")
    with pytest.raises(ValueError, match="HORA_TORCH_ARENA='much' is no number; give 1 for 1 GiB a rank"):
        trained(by_optimizer())


def test_what_is_no_number(ranks):
    ranks(2, work_no_number)
