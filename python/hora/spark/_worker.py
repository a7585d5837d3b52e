"""What a worker of `hora.spark.run` does: read the call, make it, leave the outcome.

    python -m hora.spark._worker

An agent starts it, in an executor's task, and names two files: HORA_CALL has the call, and what is written to the one
that HORA_RESULT names reaches the driver, through connections that have proved the job's secret.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import hora
from hora import _report, _task

from . import _timeline

__all__ = ["lacking", "main"]

_EVERY = 0.5  # seconds between two reports that the driver shows


def main() -> None:
    with open(os.environ.pop("HORA_CALL"), "rb") as f:
        payload = f.read()
    left = os.environ.pop("HORA_RESULT")
    rank = int(os.environ["HORA_RANK"])
    chart = _timeline.borrow(left)
    word = os.environ.pop("HORA_SPARK_TOLD", "")
    if word and not os.environ.get("HORA_REPORT"):
        _report.instead = _Told(word).tell
    _task.lines_whole()
    outcome = _task._call(payload, rank)
    del payload
    if outcome["ok"] and hora.is_initialized():
        outcome["rank"] = hora.rank()  # of an elastic job: in the epoch that the work ended in
    if not outcome["ok"] and isinstance(outcome["error"], ModuleNotFoundError):
        outcome["error"] = lacking(outcome["error"], rank, outcome["host"])
    if chart is not None:
        outcome["timeline"] = _charts(chart, outcome["ok"])
    with open(left + "~", "wb") as f:
        _task._dump(outcome, f)
    os.rename(left + "~", left)
    if not outcome["ok"]:
        sys.stderr.write(outcome["traceback"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # at once: the others wait for this rank in vain


def lacking(e: ModuleNotFoundError, rank: int, host: str) -> ModuleNotFoundError:
    """The same, and what to do."""
    return ModuleNotFoundError(
        f"rank {rank} on {host} has no module {e.name!r} for {sys.executable}: install it on the executors, or send your own with "
        "sparkContext.addPyFile, under Connect spark.addArtifacts(…, pyfile=True)",
        name=e.name,
    )


class _Told:
    """hora.report's numbers as lines of output that the driver knows by a word and takes away; the newest ones, not
    all."""

    def __init__(self, word: str) -> None:
        self._word, self._next = word, 0.0

    def tell(self, rank: int, step: int, metrics: dict[str, Any]) -> bool:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            line = f"{self._word}{json.dumps({'rank': rank, 'step': step, 'metrics': metrics})}\n"
            try:
                sys.stdout.flush()
                os.write(1, line.encode())
            except (OSError, ValueError):  # training does not end because nobody listens
                return False
        return True


def _charts(path: str, whole: bool) -> list[bytes]:
    try:
        if whole:
            hora.shutdown()  # its last lines
    except hora.HoraError:
        pass
    return _timeline.taken(path)


if __name__ == "__main__":
    main()
