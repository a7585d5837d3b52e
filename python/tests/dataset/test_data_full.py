"""shuffle="full": the ranks of a host decode each row group once, together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hora.dataset

ROWS, GROUPS = 6000, 60

RANK = """
import json, resource, sys, warnings
import hora.dataset

data, rank, size, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
loader = hora.dataset.open(data, batch=64, seed=3, shuffle="full", rank=rank, size=size)
for epoch in range(2):
    print("here", flush=True)
    sys.stdin.readline()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rows = [[i, t, v if v == v else None] for b in loader for i, t, v in zip(b["id"].tolist(), b["text"], b["v"].tolist())]
    print(json.dumps({"rows": rows, "read": loader.why()["blocks_read"], "told": [str(w.message) for w in told]}), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def data(arrow, tmp_path_factory):
    """Numbers, texts and numbers that are null now and then."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("full")
    ids = np.arange(ROWS)
    values = pa.array([None if i % 7 == 0 else i / 2 for i in range(ROWS)])
    pq.write_table(
        pa.table({"id": ids, "text": [f"row {i}" * (i % 4) for i in ids], "v": values}),
        folder / "0.parquet",
        row_group_size=100,
    )
    return str(folder)


def started(data: str, cache: Path, size: int, limit: int = 0) -> list[subprocess.Popen[str]]:
    ranks = []
    for rank in range(size):
        env = os.environ | {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size), "HORA_DATA_CACHE": str(cache)}
        command = [sys.executable, "-c", RANK, data, str(rank), str(size), str(limit)]
        ranks.append(subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    return ranks


def epoch(ranks: list[subprocess.Popen[str]]) -> list[dict]:
    for p in ranks:
        assert p.stdout.readline() == "here\n"
    for p in ranks:
        p.stdin.write("go\n")
        p.stdin.flush()
    return [json.loads(p.stdout.readline()) for p in ranks]


def alone(data: str, n: int, rank: int, size: int) -> list:
    loader = hora.dataset.open(data, batch=64, seed=3, epoch=n, shuffle="full", rank=rank, size=size)
    rows = [
        [i, t, v if v == v else None]
        for b in loader
        for i, t, v in zip(b["id"].tolist(), b["text"], b["v"].tolist(), strict=True)
    ]
    assert loader.why()["blocks_read"] == GROUPS
    return rows


def ended(ranks: list[subprocess.Popen[str]]) -> None:
    for p in ranks:
        p.communicate("end\n", timeout=60)
        assert p.returncode == 0


@pytest.mark.parametrize("size", [2, 3])
def test_each_row_group_is_decoded_once(data, tmp_path, size):
    ranks = started(data, tmp_path, size)
    read = 0
    for n in range(2):
        answers = epoch(ranks)
        for rank, answer in enumerate(answers):
            assert answer["rows"] == alone(data, n, rank, size) and not answer["told"]
        read += sum(a["read"] for a in answers)
        assert not list(tmp_path.glob("hora-full-*"))  # its name is gone as soon as all ranks have it
    assert read / GROUPS == 1.0
    ended(ranks)


def test_a_full_disk_is_told_once(data, tmp_path):
    ranks = started(data, tmp_path, 2, limit=64 << 10)
    for n in range(2):
        for rank, answer in enumerate(epoch(ranks)):
            assert answer["rows"] == alone(data, n, rank, 2)
            assert len(answer["told"]) == (n == 0), answer["told"]
            assert n or "cannot be shared between this host's ranks in " + str(tmp_path) in answer["told"][0]
    ended(ranks)
    assert not list(tmp_path.glob("hora-full-*"))
