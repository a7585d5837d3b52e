"""Samplers of datasets with a length, and rows of packed lists."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hora.dataset


def test_every_history_takes_every_item_once():
    """Ranks, batches and restarts of any number: the order is one, and steps are equal."""
    rng = random.Random(2)
    for _ in range(40):
        rows, seed = rng.randint(1, 400), rng.randint(-5, 5)
        (whole,) = list(hora.dataset.sampler(rows, batch=rows, seed=seed, rank=0, size=1))
        assert sorted(whole) == list(range(rows))
        state, taken = None, []
        while state is None or state["pos"] < rows:
            size, batch, stop = rng.randint(1, 5), rng.randint(1, 60), rng.randint(1, 6)
            parts, states = [], []
            for rank in range(size):
                s = hora.dataset.sampler(rows, global_batch=batch, seed=seed, rank=rank, size=size)
                if state:
                    s.load_state_dict(state)
                at = s.position if state else 0
                expected, got = len(s), []
                for part in s:
                    got.append(part)
                    if s.position >= at + stop * batch:
                        break
                else:
                    assert len(got) == expected
                parts.append([i for p in got for i in p])
                states.append(min(rows, at + stop * batch))
            state = {"v": 1, "rows": rows, "seed": seed & ((1 << 64) - 1), "epoch": 0, "pos": max(states)}
            taken += [i for p in parts for i in p]
        assert sorted(taken) == list(range(rows))


def test_ends_epochs_and_loaders():
    import torch

    s = hora.dataset.sampler(10, batch=4, seed=1, rank=0, size=1)
    first, second = list(s), list(s)
    assert [len(p) for p in first] == [4, 4, 2] and s.epoch == 1 and first != second
    s.set_epoch(0)
    assert list(s) == first
    assert [len(p) for p in hora.dataset.sampler(10, batch=4, last="drop", rank=0, size=1)] == [4, 4]
    assert [len(p) for p in hora.dataset.sampler(10, batch=4, last="pad", rank=1, size=2)] == [4, 4]
    assert list(hora.dataset.sampler(3, batch=2, shuffle=False, rank=0, size=1)) == [[0, 1], [2]]
    s = hora.dataset.sampler(range(100), batch=10, rank=0, size=1)
    loader = torch.utils.data.DataLoader(torch.arange(100), batch_sampler=s, num_workers=1, prefetch_factor=4)
    seen = []
    for n, batch in enumerate(s.over(loader), 1):
        assert s.state_dict()["pos"] == 10 * n
        seen += batch.tolist()
        if n == 3:
            break
    other = hora.dataset.sampler(range(100), batch=10, rank=0, size=1)
    other.load_state_dict(s.state_dict())
    assert len(other) == 7 and sorted(seen + [i for p in other for i in p]) == list(range(100))
    for how, says in [
        ({}, "give batch="),
        ({"batch": 0}, "give batch="),
        ({"batch": 1, "last": "x"}, "last='x'"),
        ({"batch": 1, "rank": 0}, "together"),
    ]:
        with pytest.raises(hora.ArgumentError, match=says):
            hora.dataset.sampler(3, **how)
    with pytest.raises(hora.ArgumentError, match="of a dataset with 100 items and this one has 3"):
        hora.dataset.sampler(3, batch=1, rank=0, size=1).load_state_dict(other.state_dict())


def test_a_state_has_its_order():
    """What was shuffled goes on shuffled, however the sampler was made: in another order rows would come twice, and
    others never."""
    whole = hora.dataset.sampler(100, batch=10, seed=np.int64(3), rank=0, size=1)
    first = next(iter(whole))
    other = hora.dataset.sampler(100, batch=10, shuffle=False, rank=0, size=1)
    other.load_state_dict(whole.state_dict())
    assert sorted(first + [i for part in other for i in part]) == list(range(100))
    with pytest.raises(hora.ArgumentError, match="it has no 'epoch'"):
        other.load_state_dict({"v": 1, "rows": 100, "pos": 3, "seed": 1})


def test_packed_rows(arrow, tmp_path):
    import pyarrow as pa

    rng = np.random.default_rng(1)
    lists = [rng.integers(1, 1000, n).tolist() for n in rng.integers(0, 90, 300)]
    hora.dataset.write(pa.table({"tokens": pa.array(lists, pa.list_(pa.int32()))}), tmp_path / "t.parquet")
    loader = hora.dataset.open(
        tmp_path / "t.parquet",
        columns=["tokens"],
        ragged=["tokens"],
        batch=50,
        shuffle=False,
        transform=hora.dataset.pack("tokens", 64, pad=-1),
    )
    back: list[list[int]] = []
    for batch in loader:
        assert batch["tokens"].shape[1] == 64 and batch["tokens"].dtype == np.int32
        tokens, document, position = (batch[n].reshape(-1) for n in ("tokens", "tokens.document", "tokens.position"))
        assert (tokens[document == 0] == -1).all() and (document[:-64] > 0).all()
        for d in range(1, 51):
            back.append(tokens[document == d].tolist())
            assert position[document == d].tolist() == list(range(len(back[-1])))
    assert back == lists
    with pytest.raises(hora.HoraError, match="no column of lists"):
        list(hora.dataset.open({"x": np.arange(4)}, batch=2, transform=hora.dataset.pack("x", 4)))
