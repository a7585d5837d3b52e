"""What the driver makes of a gang's end, whoever was the first to say something of it."""

from __future__ import annotations

import io
import queue
from types import SimpleNamespace

import pytest

import hora
from hora.spark import _hub, _refusals, _run

LOST = "hora: lost host vm: what had started its agent there has ended\n"
SPARK = RuntimeError(
    "Job aborted: ExecutorLostFailure (executor 4 exited caused by one of the running tasks) Reason: Command exited with code 50\n"
)


@pytest.mark.parametrize(
    ("said", "spark", "words"),
    [
        ("", None, "rank 1 on vm: killed by signal 15"),
        (LOST, None, "lost host vm: what had started its agent there has ended$"),
        (LOST, SPARK, r"Spark lost executor 4 \(Command exited with code 50\)"),
    ],
)
def test_who_was_ended_after_a_host_was_lost_did_not_fail(tmp_path, said, spark, words):
    attempt = _run._Attempt(None, 2, 2, 2, False, None, 10, print, None, None, _refusals.PLAIN)
    attempt.opened = True
    attempt.exits = [{"rank": 1, "host": "vm", "cause": "killed by signal 15 (SIGTERM)"}]
    hub = SimpleNamespace(results=str(tmp_path), report=str(tmp_path / "none"), said=lambda: said)
    with pytest.raises(_run._Lost) as e:
        attempt._outcome(hub, 1, None, lambda patience: spark)
    with pytest.raises(hora.HoraError, match=words):
        raise e.value.error


def end_of_a_hub(flags=(), path="", stop=False):
    """A hub that nobody comes to: its exit code, what is shown of its words, and all of them."""
    events, shown = queue.SimpleQueue(), io.StringIO()
    hub = _hub.Hub(9, b"", {}, lambda kind, event: events.put((kind, event)), flags, streams=(shown, shown), path=path)
    try:
        while True:
            kind, event = events.get(timeout=30)
            if kind == "listening" and stop:
                hub.stop()
            if kind == "hub":
                hub.finish()
                return event["code"], shown.getvalue(), hub.said()
    finally:
        hub.close()


def test_what_the_driver_says_itself_is_not_shown():
    code, shown, said = end_of_a_hub(["--start-timeout", "1"])
    assert code == _run._TIMEOUT and "0 of 9 workers have come" in said and not shown
    code, shown, said = end_of_a_hub(stop=True)
    assert code == 143 and "stopped by SIGTERM" in said and not shown


@pytest.mark.parametrize("code", [0, 1])
def test_a_worker_that_joined_too_late_is_heard_of_where_the_job_failed(tmp_path, code):
    program = tmp_path / "hub"
    line = "[1]<stderr>:hora: join epoch of job x: this worker was asked to leave the job: SIGTERM\n"
    program.write_text(f"#!/bin/sh\nprintf '{line}' >&2; echo done; exit {code}\n")
    program.chmod(0o755)
    ended, shown, said = end_of_a_hub(path=str(program))
    assert ended == code and "done" in shown and line.strip() in said
    assert (line in shown) == bool(code)
