"""Mixtures: exact shares, weights that change at a step, states for any number of ranks, and the example."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hora.dataset
from hora.errors import ArgumentError, HoraError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def two(arrow, tmp_path_factory):
    """Folders web and code with ids and ragged tokens."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("mix")
    for name, n, low in (("web", 1500, 0), ("code", 400, 100)):
        (folder / name).mkdir()
        tokens = [list(range(low, low + 1 + i % 7)) for i in range(n)]
        pq.write_table(pa.table({"id": np.arange(n), "tokens": tokens}), folder / name / "0.parquet", row_group_size=50)
    return folder


def mixed(two, web=0.7, code=0.3, **how):
    sources = {"web": (str(two / "web"), web), "code": (str(two / "code"), code)}
    return hora.dataset.mix(
        sources, **({"columns": ["id"], "origin": "from", "global_batch": 100, "rows": 2000, "seed": 4} | how)
    )


def rows(batches):
    return [(int(f), int(i)) for b in batches for f, i in zip(b["from"], b["id"], strict=True)]


def test_shares_are_exact(two):
    loader = mixed(two)
    assert loader.rows == 2000 and len(loader) == 20 and "web (weight 0.7): " in loader.mixing
    assert [f["name"] for f in loader.fields] == ["id", "from"]
    all_ = rows(loader)
    assert len(all_) == 2000 and sum(f for f, _ in all_[:1000]) == 300 == sum(f for f, _ in all_[1000:])
    web = [i for f, i in all_ if f == 0]
    assert len(web) == 1400 == len(set(web))
    code = [i for f, i in all_ if f == 1]
    assert sorted({code.count(i) for i in range(400)}) == [1, 2]  # once, and some again
    assert rows(mixed(two)) == all_ != rows(mixed(two, seed=5))
    again = [rows(mixed(two, rank=r, size=3, global_batch=100)) for r in range(3)]
    assert (
        sorted(row for part in again for row in part) == sorted(all_)
        and max(map(len, again)) - min(map(len, again)) <= 20
    )
    assert [len(mixed(two, rank=r, size=3, global_batch=700)) for r in range(3)] == [3, 3, 3]
    few = [mixed(two, rank=r, size=3, global_batch=2, rows=7) for r in range(3)]
    assert [len(part) for part in few] == [len(list(part)) for part in few] == [4, 3, 0]
    assert mixed(two, rows=None).rows == 1333  # then code has been seen once


def test_weights_change_at_a_step(two):
    loader = mixed(two)
    got = []
    for batch in loader:
        got += rows([batch])
        if loader.position == 1000:
            state = json.loads(json.dumps(loader.state_dict()))
            loader.set_weights({"code": 0.7})
            assert loader.weights == {"web": 0.7, "code": 0.7}
    assert len(got) == 2000 and [sum(f for f, _ in got[a : a + 1000]) for a in (0, 1000)] == [300, 500]
    web = [i for f, i in got if f == 0]
    assert len(web) == 1200 == len(set(web))
    later = loader.state_dict()
    assert len(json.dumps(later)) < 400 and later["pos"] == 2000 and later["began"] == 1000
    other = mixed(two, rank=0, size=1, global_batch=250)
    other.load_state_dict(state)
    assert other.position == 1000 and other.weights == {"web": 0.7, "code": 0.3}
    other.set_weights({"web": 1, "code": 1})
    assert sorted(rows(other)) == sorted(got[1000:])
    ahead = mixed(two, transform=lambda b: b)  # batches that were worked on ahead are those of the old weights
    got2 = []
    for batch in ahead:
        got2 += rows([batch])
        if ahead.position == 1000:
            ahead.set_weights({"code": 0.7})
    assert got2 == got


def test_epochs_go_on(two):
    loader = mixed(two, rows=1000, last="wrap", global_batch=300)
    first = rows(loader)
    assert len(first) == 1200 and (loader.epoch, loader.position) == (1, 200)
    second = rows(loader)
    whole = rows(mixed(two, rows=2100, global_batch=300))
    assert sorted(first + second) == sorted(whole)
    loader.set_epoch(0)
    assert rows(loader) == first


def test_a_rank_without_rows_stands_where_the_others_do(two):
    few = [mixed(two, rows=101, last="wrap", batch=None, global_batch=2, rank=r, size=3) for r in range(3)]
    for _ in range(3):
        for loader in few:
            list(loader)
        assert all(loader.state_dict() == few[0].state_dict() for loader in few), [(x.epoch, x.position) for x in few]
    assert (few[0].epoch, few[0].position) == (3, 1)


def test_what_is_wrong_is_said(two):
    for how, says in (
        ({"web": -1}, "the weight of 'web' is -1"),
        ({"web": 0, "code": 0}, "all weights are 0"),
        ({"code": 1e-6}, "less than one in 1000 of the whole"),
        ({"last": "pad"}, 'use "short", "drop" or "wrap"'),
        ({"rows": 0}, "one row or more"),
        ({"origin": "id"}, "an array of that name"),
        ({"columns": ["none"]}, 'the mixture\'s member "web": open .*there is no column "none"'),
    ):
        with pytest.raises(HoraError, match=says):
            mixed(two, **how)
    with pytest.raises(ArgumentError, match=r"give a name with \(source, weight\)"):
        hora.dataset.mix({"web": str(two / "web")}, batch=1)
    loader = mixed(two)
    with pytest.raises(ArgumentError, match="no member 'books'; there are: web, code"):
        loader.set_weights({"books": 1})
    with pytest.raises(ArgumentError, match="of data alone"):
        loader.load_state_dict(hora.dataset.open(str(two / "web"), batch=1).state_dict())
    with pytest.raises(HoraError, match="a mixture|fingerprint|no fingerprint"):
        hora.dataset.open(str(two / "web"), batch=1).load_state_dict(loader.state_dict())


def test_other_data_are_told_by_name(arrow, tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def put(name, rows):
        pq.write_table(pa.table({"id": np.arange(rows)}), tmp_path / "data" / name)

    (tmp_path / "data").mkdir()
    for name, n in (("a.parquet", 10), ("b.parquet", 20), ("c.parquet", 30)):
        put(name, n)
    state = hora.dataset.open(tmp_path / "data", batch=1).state_dict()
    mixture = hora.dataset.mix({"one": (tmp_path / "data", 1)}, batch=1).state_dict()
    (tmp_path / "data/a.parquet").unlink()
    put("b.parquet", 21)
    put("d.parquet", 1)
    for opened, saved in (
        (hora.dataset.open(tmp_path / "data", batch=1), state),
        (hora.dataset.mix({"one": (tmp_path / "data", 1)}, batch=1), mixture),
    ):
        with pytest.raises(
            HoraError, match=r"1 added \(d.parquet\), 1 removed \(a.parquet\), 1 changed \(b.parquet\); open the files"
        ):
            opened.load_state_dict(saved)
    monkeypatch.setenv("HORA_DATA_CACHE", str(tmp_path / "none"))
    with pytest.raises(HoraError, match="which files differ is not known here"):
        hora.dataset.open(tmp_path / "data", batch=1).load_state_dict(state)


def test_the_example_packs_a_mixture(launcher, two):
    command = [launcher, "run", "-np", "2", "--no-tag", sys.executable, ROOT / "examples/65-mixture/train.py", two]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert out.returncode == 0, out
    assert "code is 600 of the first 2000 documents, 1000 of the next 2000" in out.stdout, out
