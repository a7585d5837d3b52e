"""Batches in Python: whose memory they are, where iterating goes on, interrupts and forks, ranks that come and go."""

from __future__ import annotations

import decimal
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import hora.dataset

ROOT = Path(__file__).resolve().parents[3]
ROWS = 3000


@pytest.fixture(scope="session")
def data(arrow, tmp_path_factory):
    """Three files with the columns id, a, b, y and text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("data")
    ids = np.arange(ROWS)
    a, b = np.sin(ids).astype("f4"), np.cos(3 * ids).astype("f4")
    whole = pa.table({"id": ids, "a": a, "b": b, "y": 2 * a - b, "text": [f"row {i}" for i in ids]})
    for i, (begin, end) in enumerate([(0, 1400), (1400, 1410), (1410, ROWS)]):
        pq.write_table(whole[begin:end], folder / f"part-{i}.parquet", row_group_size=100)
    return str(folder)


def opened(data, **how):
    return hora.dataset.open(data, **({"columns": ["id"], "batch": 64, "seed": 5} | how))


def ids(batches) -> list[int]:
    return [i for b in batches for i in b["id"].tolist()]


def test_a_list_of_batches_is_right(data):
    """Every batch keeps its memory as long as it is there, past the end of its loader too; who holds many is told
    once."""
    loader = opened(data, columns=["id", "text"])
    with pytest.warns(ResourceWarning, match=r"17 batches of hora.dataset are held at a time") as told:
        held = list(loader)
    assert len(told) == 1 and len(held) == len(loader) == 47
    del loader
    gc.collect()
    assert sorted(ids(held)) == list(range(ROWS))
    for b in held:
        assert b["id"].ctypes.data % 64 == 0 and b["id"].flags.writeable
        assert b["text"].tolist() == [f"row {i}" for i in b["id"]] == list(b["text"]) == list(np.asarray(b["text"]))
        assert b["text"][-1] == f"row {b['id'][-1]}"


def test_memory_is_used_again(data):
    loader = opened(data)
    places = set()
    for _ in range(4):
        for batch in loader:
            places.add(batch["id"].ctypes.data)
    assert len(places) < 20


def test_order_and_epochs(data):
    loader = opened(data)
    first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == list(range(ROWS)) and first != second and loader.epoch == 1
    loader.set_epoch(0)
    assert ids(loader) == first
    assert ids(opened(data, batch=100))[:100] != first[:100]  # rows of a step are permuted within it
    assert sorted(ids(opened(data, batch=128))[:128]) == sorted(first[:128])  # and the steps are the same rows
    assert ids(opened(data, seed=6)) != first
    assert ids(opened(data, shuffle=False)) == list(range(ROWS))
    assert ids(opened(data, shuffle="full", memory="1MiB")) != first
    parts = [opened(data, batch=32, rank=r, size=2) for r in range(2)]
    for k, pair in enumerate(zip(*parts, strict=True)):
        assert sorted(ids(pair)) == sorted(first[64 * k : 64 * k + 64])


def test_broken_off_and_resumed(data):
    loader = opened(data)
    whole = ids(loader)
    loader = opened(data)
    for n, _ in enumerate(loader):
        if n == 9:
            break
    assert loader.position == 640 and len(json.dumps(loader.state_dict())) < 200
    state = json.loads(json.dumps(loader.state_dict()))
    assert ids(loader) == whole  # without a loaded state iterating begins anew
    other = opened(data, seed=99, memory=12345)
    other.load_state_dict(state)
    assert len(other) == 37 and ids(other) == whole[640:] and other.position == ROWS
    assert other.epoch == 0 and ids(other) != whole and other.epoch == 1
    end = other.state_dict()
    fresh = opened(data)
    fresh.load_state_dict(end)
    fresh.set_epoch(1)  # a loop over epochs that comes by the finished one again
    assert len(fresh) == 0 and ids(fresh) == []
    fresh.set_epoch(2)
    assert len(ids(fresh)) == ROWS
    with pytest.raises(hora.HoraError, match=r"it is of other data .* open the files of that time"):
        opened(os.path.join(data, "part-0.parquet")).load_state_dict(state)
    with pytest.raises(hora.HoraError, match="version 9 and this hora knows 1"):
        other.load_state_dict(state | {"v": 9})


@pytest.mark.parametrize("last", ["short", "drop", "pad", "wrap"])
def test_ends_and_lengths(data, last):
    for size in (1, 3):
        seen, steps = [], []
        for rank in range(size):
            loader = opened(data, batch=None, global_batch=700, last=last, rank=rank, size=size)
            steps.append(len(loader))
            batches = list(loader)
            assert len(batches) == steps[-1]
            seen += [i for b in batches for i in b["id"][: len(b["id"]) - b.padded].tolist()]
        assert len(set(steps)) == 1
        if last in ("short", "pad"):
            assert sorted(seen) == list(range(ROWS))
        else:
            assert len(seen) == {"drop": 2800, "wrap": 3500}[last]
        if last == "wrap":
            assert (loader.epoch, loader.position) == (1, 500)
            assert sum(len(b["id"]) for b in loader) == 4 * (700 * (rank + 1) // size - 700 * rank // size)


def test_a_short_end_may_leave_a_rank_out(data):
    parts = [list(opened(data, batch=None, global_batch=2999, rank=r, size=4)) for r in range(4)]
    assert [len(p) for p in parts] == [1, 1, 1, 2] and sorted(ids(b for p in parts for b in p)) == list(range(ROWS))
    assert [len(opened(data, batch=None, global_batch=2999, rank=r, size=4)) for r in range(4)] == [1, 1, 1, 2]
    for last in ("short", "pad", "wrap"):  # fewer rows in a step than ranks
        few = [
            opened(data, batch=None, global_batch=2, last=last, filter=("id", "<", 7), rank=r, size=3) for r in range(3)
        ]
        assert [len(part) for part in few] == [len(list(part)) for part in few], last


@pytest.mark.parametrize("last", ["short", "drop", "pad", "wrap"])
def test_a_rank_without_rows_stands_where_the_others_do(data, last):
    for rows, step, size in ((7, 2, 3), (7, 3, 3), (1, 4, 4)):  # a rank has none in any step, or none in the last
        how = {"batch": None, "global_batch": step, "last": last, "filter": ("id", "<", rows)}
        few, alone = [opened(data, rank=r, size=size, **how) for r in range(size)], opened(data, **how)
        for epoch in range(3):
            seen, whole = ids(b for loader in few for b in loader), ids(alone)
            assert sorted(seen) == sorted(whole)
            assert [loader.state_dict() for loader in few] == [alone.state_dict()] * size, epoch


def test_torch(data):
    import torch

    loader = opened(data, columns={"x": ["a", "b"], "id": "id", "text": "text"}).torch()
    batch = next(iter(loader))
    assert batch["x"].shape == (64, 2) and batch["x"].dtype == torch.float32 and batch["id"].dtype == torch.int64
    assert (
        np.array_equal(batch["x"][:, 0].numpy(), np.sin(batch["id"].numpy()).astype("f4"))
        and batch["text"][0] == f"row {batch['id'][0]}"
    )
    assert loader.state_dict()["pos"] == 64 and len(loader) == 47


def test_one_iteration_at_a_time(data):
    loader = opened(data)
    first = iter(loader)
    next(first)
    next(iter(loader))
    with pytest.raises(hora.ClosedError, match="another iteration"):
        next(first)


def test_arguments(data):
    for how, says in [
        ({"batch": None}, "give batch="), ({"global_batch": 3}, "give batch="), ({"batch": 0}, "one row or more"),
        ({"last": "x"}, "last='x'"),
        ({"shuffle": "x"}, "shuffle='x'"), ({"memory": "much"}, "memory='much'"), ({"columns": "id"}, "one text"),
        ({"rank": 1}, "together"),
        ({"memory": 0}, "memory=0"), ({"columns": []}, "names none"), ({"threads": 0}, "threads=0"),
        ({"seed": None}, "seed=None"),
        ({"epoch": -1}, "epoch=-1"), ({"batch": 4.0}, "batch=4.0"), ({"rank": 2, "size": 2}, "ranks are 0 to 1"),
        ({"shuffle": [1]}, "shuffle="),
        ({"nulls": {"id": b"x"}}, "nulls="), ({"filter": ("a", "<", float("inf"))}, "compared with inf"),
        ({"ragged": ["x"]}, "not among"),
    ]:  # fmt: skip
        with pytest.raises(hora.ArgumentError, match=says):
            opened(data, **how)
    with pytest.raises(hora.HoraError, match="no storage"):
        opened("s3x://bucket/x")
    with pytest.raises(hora.ArgumentError, match="epoch=-1"):
        opened(data).set_epoch(-1)
    numbers = {
        "seed": np.int64(5),
        "batch": np.int32(64),
        "filter": ("id", ">=", decimal.Decimal(10)),
        "nulls": {"id": np.int64(0)},
    }
    assert len(opened(data, **numbers)) == len(opened(data, filter=("id", ">=", 10))) == 47


def test_who_has_not_joined_is_told(data, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(hora.ArgumentError, match=r"WORLD_SIZE is 2 .* call hora.init\(\)"):
        opened(data)


class Slow:
    """A web server with the files of a folder; it answers from the moment that it is let."""

    def __init__(self, folder: str) -> None:
        import http.server

        go = self.go = threading.Event()

        class Handler(http.server.SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                begin, end = (int(x) for x in self.headers["Range"].removeprefix("bytes=").split("-"))
                path = self.translate_path(self.path)
                size = os.path.getsize(path)
                if end != size - 1:
                    go.wait(60)
                with open(path, "rb") as f:
                    f.seek(begin)
                    part = f.read(end - begin + 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{end}/{size}")
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                self.wfile.write(part)

            def log_message(self, *_):
                pass

            def __init__(self, *args):
                super().__init__(*args, directory=os.path.dirname(folder))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.root, self.path = (
            f"http://127.0.0.1:{self.server.server_port}",
            os.path.basename(folder) + "/part-0.parquet",
        )
        self.url = f"{self.root}/{self.path}"


@pytest.fixture
def slow(data):
    server = Slow(data)
    yield server
    server.go.set()
    server.server.shutdown()


def test_over_http(data, slow, monkeypatch):
    slow.go.set()
    monkeypatch.setenv("HORA_S3_ENDPOINT", slow.root)
    whole = ids(opened(os.path.join(data, "part-0.parquet")))
    assert ids(opened(slow.url)) == whole == ids(opened(f"s3://{slow.path}"))


def test_interrupt(slow):
    """Ctrl-C ends a wait for data that do not come."""
    begin = time.monotonic()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(opened(slow.url)))
    assert time.monotonic() - begin < 3


def test_a_forked_child_is_told(data):
    loader = opened(data)
    batches = iter(loader)
    batch = next(batches)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        said = []
        for call in (lambda: next(batches), lambda: next(iter(loader)), lambda: opened(data)):
            try:
                call()
            except hora.ForkedError:
                said.append("forked")
            except BaseException as e:
                said.append(repr(e))
        os.write(write, json.dumps([said, int(batch["id"].sum())]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        said, total = json.load(f)
    os.waitpid(child, 0)
    assert said == ["forked"] * 3 and total == batch["id"].sum() and len(next(batches)["id"]) == 64


def test_another_rank_count_goes_on_at_the_row(data, launcher, tmp_path):
    """The example: killed with 2 ranks, killed with 3, ended by 1; every row was taken once."""
    ends = []
    for np_, die in ((2, ["9"]), (3, ["25"]), (1, [])):
        command = [
            launcher,
            "run",
            "-np",
            str(np_),
            "--no-tag",
            sys.executable,
            ROOT / "examples/62-resume/train.py",
            data,
            tmp_path,
            *die,
        ]
        ends.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False))
    assert [e.returncode == 0 for e in ends] == [False, False, True], ends
    assert "2 ranks begin at row 0 of 3000" in ends[0].stdout and "3 ranks begin at row 320 of" in ends[1].stdout
    assert "done: 3000 rows, each once" in ends[2].stdout, ends


TRAINER = """
import os, signal, sys, time
import hora, hora.elastic, hora.dataset

hora.init()
loader = hora.dataset.open(sys.argv[1], columns=["id"], batch=16, seed=3)
state = hora.elastic.State(loader=loader, taken=[], step=0)

@hora.elastic.run
def train(state):
    print("size", hora.size(), "at", state.loader.position, flush=True)
    for batch in state.loader:
        mine = hora.allgather_object(batch["id"].tolist())
        state.taken = state.taken + [i for ids in mine for i in ids]
        state.step += 1
        if state.step == 13 and hora.rank() == 1 and not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if state.step % 4 == 0:
            state.commit()

train(state)
if hora.rank() == 0:
    print("taken", len(state.taken), "once", sorted(state.taken) == list(range(loader.rows)), flush=True)
"""


@pytest.mark.parametrize("how", [["-np", "2", "--restarts", "2"], ["-np", "3", "--min-np", "2"]])
def test_elastic(data, launcher, tmp_path, how):
    """A loader in an elastic State goes back to the commit with it, and on with whoever is there."""
    program = tmp_path / "train.py"
    program.write_text(TRAINER)
    done = subprocess.run(
        [launcher, "run", *how, "--no-tag", sys.executable, program, data, tmp_path / "killed"], capture_output=True,
        text=True, timeout=150, check=False
    )  # fmt: skip
    assert done.returncode == 0, done
    assert f"at {12 * 16 * int(how[1])}\n" in done.stdout and f"taken {ROWS} once True" in done.stdout, done
