"""The line that says how a job stands, on terminals and in notebooks; what it leaves out; timelines and reports on the
driver."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import types
from contextlib import redirect_stderr, redirect_stdout

import pytest

import hora
import hora.spark
from hora.spark import _status, _timeline


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def work(rank, second, operations, inside, host="a"):
    return {
        "rank": rank,
        "host": host,
        "elapsed_ns": second * 10**9,
        "operations": operations,
        "bytes": 0,
        "inside_ns": int(inside * 10**9),
    }


def test_the_line_of_a_terminal():
    to, clock = Terminal(), Clock()
    line = _status.Status(to, 2, clock)
    for rank in (0, 1):
        line.event("started", {"rank": rank})
        line.event("admitted", {"rank": rank})
    line.draw()
    assert to.getvalue() == "", "short jobs never show it"
    clock.now = 12
    line.told(1, 7, {"loss": 9.0})
    line.told(0, 8, {"loss": 0.03125, "note": "nan\x1b[2J"})
    for second in (10, 11):
        line.event("progress", work(0, second, 100 * second, second * 0.5))
        line.event("progress", work(1, second, 100 * second, second * 0.1))
    line.draw()
    text = "hora: 2 of 2 ranks up, 12 s, step 8, loss 0.03125, note nan\\x1b[2J, slowest: rank 1 (others wait 40 %)"
    assert line.text() == text
    with line.aside():
        to.write("[0]<stdout>:hello\n")
    drawn = text[: len(to.getvalue().split("\r")[0])]
    assert to.getvalue() == f"{drawn}\r\x1b[K[0]<stdout>:hello\n{drawn}"
    line.event("exited", {"rank": 1})
    line.dropped(5)
    assert line.text() == "hora: 1 of 2 ranks up, 12 s, step 8, loss 0.03125, note nan\\x1b[2J, 5 lines not shown"
    line.event("opened", {"size": 1})
    assert line.text().startswith("hora: 0 of 1 ranks up")
    line.close()
    assert to.getvalue().endswith("\r\x1b[K")


def test_the_line_of_a_notebook(monkeypatch):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    python = types.ModuleType("IPython")
    python.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    python.display = types.ModuleType("IPython.display")
    python.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", python.display)
    clock = Clock()
    line = _status.Status(io.StringIO(), 1, clock)
    clock.now = 2
    line.draw()
    line.draw()
    line.event("admitted", {"rank": 0})
    line.draw()
    assert shown == ["hora: 0 of 1 ranks up, 2 s", "hora: 1 of 1 ranks up, 2 s"]
    monkeypatch.delitem(sys.modules, "IPython")
    assert not _status.Status(io.StringIO(), 1, clock).shown


def test_a_job_shows_ranks_step_loss_and_who_is_slow(spark):
    def train():
        import time

        import hora

        hora.init()
        end = time.monotonic() + 4
        for step in range(10_000):
            if hora.rank() == 1:
                time.sleep(0.02)
            told = hora.report(step, loss=1 / (step + 1)) if hora.rank() == 0 else True
            if hora.allreduce(float(time.monotonic() > end), hora.MAX, name="x"):
                return told

    to, out = Terminal(), io.StringIO()
    with redirect_stderr(to), redirect_stdout(out):
        assert hora.spark.run(train, np=2) == [True, True]
    lines = re.split(r"\r\x1b\[K|\n", to.getvalue())
    assert any(
        re.match(r"hora: 2 of 2 ranks up, \d+ s, step \d+, loss 0?\.?\d\S*, slowest: rank 1 \(", line) for line in lines
    ), lines
    assert '"loss"' not in out.getvalue() + to.getvalue() and to.getvalue().endswith("\r\x1b[K")


def test_lines_that_are_not_shown_are_counted(spark):
    class Slow(io.StringIO):
        def write(self, text):
            import threading

            threading.Event().wait(0.5)
            return super().write(text)

    def prints():
        for i in range(30_000):
            print("line", i)

    to, said = Slow(), io.StringIO()
    with redirect_stderr(said), redirect_stdout(to):
        hora.spark.run(prints, np=2)
    lost = sum(int(n) for n in re.findall(r"hora: (\d+) lines of output came faster", said.getvalue()))
    assert to.getvalue().count("\n") + lost == 60_000


def piece(begin, *records):
    head = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": begin}}
    return ("[\n" + ",\n".join(json.dumps(r) for r in (head, *records)) + "\n]\n").encode()


def test_timelines_of_two_epochs_are_one():
    first = piece(1000, {"ph": "B", "name": "x", "ts": 5, "pid": 1}, {"ph": "E", "ts": 9, "pid": 1})
    second = piece(1500, {"ph": "B", "name": "x", "ts": 5, "pid": 1}, {"ph": "E", "ts": 6, "pid": 1})
    cut = second[: second.rindex(b'"E"')]
    got = json.loads(_timeline.joined([second, first]))
    assert [(r.get("ts"), r["pid"]) for r in got] == [(None, 0), (5, 1), (9, 1), (505, 2), (506, 2)]
    assert len(json.loads(_timeline.joined([first, cut]))) == 4
    assert _timeline.joined([first]) == first


def test_a_timeline_where_files_only_grow(tmp_path, capsys, monkeypatch):
    path = tmp_path / "timeline.json"
    _timeline.check(str(path))
    assert not path.exists()
    path.write_text("old")
    if subprocess.run(
        ["chattr", "+a", path], capture_output=True
    ).returncode:  # a file system without that: its word is imitated

        def grows(name, mode):
            if mode == "wb":
                raise PermissionError(1, "Operation not permitted", name)
            return open(name, mode)

        monkeypatch.setattr(_timeline, "open", grows, raising=False)
    try:
        _timeline.check(str(path))
        _timeline.keep(str(path), [b"new"])
    finally:
        subprocess.run(["chattr", "-a", path], capture_output=True)
    assert path.read_text() == "old" and (tmp_path / "timeline.json.2").read_text() == "new"
    assert "can only be appended to and has another timeline: this one is" in capsys.readouterr().err


def test_a_timeline_that_cannot_be_written_is_said_before_the_job(spark, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", "/nowhere/at/all.json")
    with pytest.raises(
        hora.ArgumentError, match=r"write the timeline: /nowhere/at/all.json: No such file .*: name a file"
    ):
        hora.spark.run(lambda: None, np=1)


def test_a_timeline_and_a_report_come_to_the_driver(spark, tmp_path, monkeypatch, capfd):
    def work():
        hora.init()
        hora.allreduce(1.0, name="seen", named=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOROVOD_TIMELINE", "timeline.json")  # as the driver finds it
    monkeypatch.setenv("HORA_SPARK_REPORT", str(tmp_path / "report.json"))
    hora.spark.run(work, np=2)
    assert "seen" in json.dumps(json.loads((tmp_path / "timeline.json").read_text()))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["exit_code"] == 0 and report["epochs"][0]["size"] == 2
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    monkeypatch.delenv("HORA_SPARK_REPORT")
    assert hora.spark.run(lambda: __import__("os").environ["HOROVOD_TIMELINE"], np=1) == ["DYNAMIC"]
    assert not (tmp_path / "DYNAMIC").exists()
    monkeypatch.setenv("HOROVOD_TIMELINE", "none.json")
    hora.spark.run(lambda: None, np=1)
    assert "no rank wrote the timeline" in capfd.readouterr().err


def test_the_hub_in_the_first_task(spark, tmp_path, monkeypatch):
    """As where executors cannot reach the driver: all comes with the rows of Spark's job."""

    def work(rank_that_fails):
        import hora
        import hora.spark

        hora.init()
        print("printed by", hora.rank())
        if hora.rank() == rank_that_fails:
            raise KeyError("no such column")
        rows = sum(b.num_rows for b in hora.spark.batches(64, last="short")) if rank_that_fails < 0 else 0
        return int(hora.allreduce(hora.rank() + 1, name="sum")), rows, bytes(3_000_000)

    monkeypatch.setenv("HORA_SPARK_HUB", "task")
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "timeline.json"))
    monkeypatch.setenv("HORA_SPARK_REPORT", str(tmp_path / "report.json"))
    said = io.StringIO()
    with redirect_stdout(said):
        got = hora.spark.run(work, args=(-1,), np=3, dataframe=spark.range(1000, numPartitions=2))
    assert [(s, len(b)) for s, _, b in got] == [(6, 3_000_000)] * 3 and sum(n for _, n, _ in got) == 1000
    assert sorted(said.getvalue().splitlines()) == [f"[{r}]<stdout>:printed by {r}" for r in range(3)]
    assert "sum" in (tmp_path / "timeline.json").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["epochs"][0]["size"] == 3
    with pytest.raises(KeyError, match="no such column") as e:
        hora.spark.run(work, args=(1,), np=2)
    assert e.value.__cause__.rank == 1 and "raise KeyError" in e.value.__cause__.text
