"""Rows from a task to its worker, without Spark: what is sent, what is held back, and how either side's end is met."""

from __future__ import annotations

import subprocess
import threading

import pyarrow as pa
import pytest

import hora
from hora.spark import _rows


@pytest.fixture
def agent():
    p = subprocess.Popen(["sleep", "60"])
    yield p
    p.kill()
    p.wait()


def sent(n, each=10):
    for i in range(n):
        yield pa.RecordBatch.from_pydict({"id": list(range(i * each, (i + 1) * each))})


def test_rows_come_in_pieces_of_the_size_asked_for(agent):
    feed = _rows.Feed(sent(25))
    served = threading.Thread(target=feed.serve, args=(agent,))
    served.start()
    pieces = list(_rows._pieces(_rows._received(feed.address), 64))
    served.join(10)
    assert [p.num_rows for p in pieces] == [64, 64, 64, 58]
    assert [v for p in pieces for v in p.column("id").to_pylist()] == list(range(250))


def test_a_slow_worker_holds_its_task_back(agent):
    taken = []

    def source():
        for b in sent(100):
            taken.append(b)
            yield b

    feed = _rows.Feed(source())
    served = threading.Thread(target=feed.serve, args=(agent,))
    served.start()
    pieces = _rows._received(feed.address)
    next(pieces), next(pieces)
    served.join(0.3)
    assert 2 <= len(taken) <= 3 + _rows._AHEAD
    agent.kill()
    served.join(10)
    assert not served.is_alive()


def test_a_failure_of_the_query_is_told_to_the_worker(agent):
    def source():
        yield from sent(1)
        raise ValueError("division by zero")

    feed = _rows.Feed(source())
    failed = []

    def serve():
        try:
            feed.serve(agent)
        except ValueError as e:
            failed.append(e)

    served = threading.Thread(target=serve)
    served.start()
    pieces = _rows._received(feed.address)
    assert next(pieces).num_rows == 10
    with pytest.raises(hora.HoraError, match="Spark failed to compute this rank's rows"):
        next(pieces)
    served.join(10)
    assert failed


def test_batches_asks_for_what_it_needs(monkeypatch):
    with pytest.raises(hora.ArgumentError, match="rows=0 is no number"):
        hora.spark.batches(0)
    with pytest.raises(hora.ArgumentError, match="use 'drop' or 'short'"):
        hora.spark.batches(1, last="wrap")
    monkeypatch.delenv("HORA_SPARK_ROWS", raising=False)
    with pytest.raises(hora.HoraError, match="was given no rows"):
        hora.spark.batches(1)
