"""bench/torch_bench.py sees what is planted in it: calls that do nothing, a wrong divisor, gradients that are
exchanged."""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

BENCH = Path(__file__).resolve().parents[3] / "bench"
FAULTS = {}  # by name: what it makes of the tensors that a call has left


def fault(f):
    FAULTS[f.__name__] = f
    return f


@fault
def divisor(tensors):
    for t in tensors:
        t.mul_(0.5)


@fault
def swap(tensors):
    """Two gradients of one shape, or a gradient's halves where there is one alone; blocks of a power of two, as data
    are cut."""
    a, b = tensors[:2] if len(tensors) > 1 else tensors[0].split(len(tensors[0]) // 2)
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def start(store):
    sys.path.insert(0, str(BENCH))
    import horovod.torch as hvd
    import torch_bench

    torch.set_num_threads(1)
    dist.init_process_group("hora", init_method=f"file://{store}", rank=int(os.environ["HORA_RANK"]), world_size=2)
    hvd.init()
    return torch_bench, dist.new_group(backend="gloo")


def seen(work) -> bool:
    from checks import Wrong

    try:
        work()
    except Wrong:
        return True
    return False


def work_calls(store):
    bench, gloo = start(store)

    def missed(work):
        return not seen(lambda: bench.measure("planted", work, 3, 1, said.append))

    said = []
    for work in (bench.one_call(4 << 10, gloo), bench.many_calls(3, 4 << 10, gloo)):
        said.clear()
        assert missed(work)
        assert len(said) == len(work) and all(line["us"] > 0 for line in said), said
        for v, (call, tensors, scale) in work.items():
            assert missed({v: work[v]})
            assert not missed({v: (lambda: None, tensors, scale)}), f"a {v} that does nothing went unseen"
            for name, spoil in FAULTS.items():

                def planted(call=call, tensors=tensors, spoil=spoil):
                    call()
                    spoil(tensors)

                assert not missed({v: (planted, tensors, scale)}), f"{name} in {v} went unseen"


def work_training(store):
    bench, gloo = start(store)

    def spoiled(f):
        """Does f to the gradients of two layers of one shape, on all ranks alike: their weights stay equal."""
        return lambda parameters: f([parameters[2].grad, parameters[4].grad])

    def trained(variant, **how):
        t = bench.Trainer("tiny", variant, gloo, **how)
        for _ in range(3):
            t.step()
        return t

    joined, reference = trained("joined"), trained("ddp gloo")
    for v in [v for v in bench.VARIANTS if v not in bench.SILENT]:

        def missed(v=v, **how):
            t = {v: trained(v, **how)}
            return not seen(lambda: bench.check("planted", t, joined))

        assert missed(), f"{v} was called wrong"
        assert not missed(quiet=True), f"{v} without communication went unseen"
        for name, f in FAULTS.items():
            assert not missed(spoil=spoiled(f)), f"{name} in {v} went unseen"
            # Against DDP on gloo alone, where the joined batch's training is what is spoilt.
            both = {"ddp gloo": reference, v: trained(v, spoil=spoiled(f))}
            assert v == "ddp gloo" or seen(lambda both=both, v=v: bench.check("planted", both, both[v])), (
                f"{name} in {v} went unseen beside DDP on gloo"
            )
    said = []
    bench.MODELS["tiny"] = 2
    bench.train("tiny", 2, gloo, said.append)
    assert [line["variant"] for line in said[:-1]] == bench.VARIANTS and said[-1]["kind"] == "goal"
    assert all(bench.text_of(line) for line in said)


@pytest.mark.parametrize("work", [work_calls, work_training])
def test_torch_bench_sees_what_is_planted(ranks, work, tmp_path):
    ranks(2, work, timeout=60, args=(str(tmp_path / "store"),))
