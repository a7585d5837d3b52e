"""What the driver makes of a gang's end, whoever was the first to say something of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import hora
from hora.spark import _refusals, _run

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
