"""What a worker of `hora.spark.run` does: read the call, make it, leave the outcome.

    python -m hora.spark._worker

An agent starts it, in an executor's task, and names two files: HORA_CALL has the call, and what is written to the one that
HORA_RESULT names reaches the driver, through connections that have proved the job's secret.
"""

from __future__ import annotations

import os
import sys

import hora
from hora import _task

__all__ = ["main"]


def main() -> None:
    with open(os.environ.pop("HORA_CALL"), "rb") as f:
        payload = f.read()
    left = os.environ.pop("HORA_RESULT")
    rank = int(os.environ["HORA_RANK"])
    chart = _borrow_timeline(rank)
    outcome = _task._call(payload, rank)
    if outcome["ok"] and hora.is_initialized():
        outcome["rank"] = hora.rank()  # of an elastic job: in the epoch that the work ended in
    if chart is not None:
        outcome["timeline"] = _timeline(chart, outcome["ok"])
    with open(left + "~", "wb") as f:
        f.write(_task._dumps(outcome))
    os.rename(left + "~", left)
    if not outcome["ok"]:
        sys.stderr.write(outcome["traceback"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # at once: the others wait for this rank in vain


def _borrow_timeline(rank: int) -> str | None:
    """Where rank 0 writes the timeline; the file that was asked for lies on the driver's machine."""
    names = [n for n in ("HORA_TIMELINE", "HOROVOD_TIMELINE") if os.environ.get(n)]
    if not names or rank != 0:
        return None
    import tempfile

    path = os.path.join(tempfile.mkdtemp(prefix="hora-timeline-"), "timeline.json")
    for n in names:
        os.environ[n] = path
    return path


def _timeline(path: str, whole: bool) -> bytes:
    import shutil

    try:
        if whole:
            hora.shutdown()  # its last lines
        with open(path, "rb") as f:
            return f.read()
    except (OSError, hora.HoraError):
        return b""
    finally:
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)


if __name__ == "__main__":
    main()
