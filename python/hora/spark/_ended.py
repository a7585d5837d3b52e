"""What the driver makes of a gang's end: the results, or the error of who failed first, in one sentence."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hora import _run as programs
from hora.errors import HoraError, PeerLostError

from . import _cluster, _first, _rows, _spoken, _timeline
from ._hub import Hub

if TYPE_CHECKING:
    from . import _run

__all__ = ["WORD", "Lost", "results"]

TIMEOUT, USAGE = 75, 2  # exit codes of a hub whose limit is over, and of one that was asked for what cannot be
WORD = 1.0  # seconds after Spark's job has ended in which the hub may say why, or the other way round


class Lost(Exception):
    """A gang ended without an exception of its own program: what a new start may mend."""

    def __init__(self, error: HoraError, unbegun: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.unbegun = unbegun  # an executor was lost, and no rank had begun


def results(
    attempt: _run._Attempt,
    hub: Hub | _first.Told,
    code: int,
    refusal: BaseException | None,
    late: Callable[[float], BaseException | None],
) -> list[Any]:
    """Those of all ranks, by rank; `late` waits for what Spark says of the job after its hub."""
    outcomes = programs._left(hub.results)
    if attempt.chart is not None and outcomes:
        _timeline.keep(attempt.chart, [piece for o in outcomes for piece in o.get("timeline", [])])
    _keep_report(hub.report)
    ended = {o["rank"]: o for o in outcomes if o["ok"]}
    enough = len(ended) >= attempt.least if attempt.elastic else set(ended) == set(range(attempt.np))
    if code == 0 and enough:
        return [ended[r]["result"] for r in sorted(ended)]
    if code == TIMEOUT and not attempt.opened:
        raise attempt.too_few()
    failed = [o for o in outcomes if not o["ok"]]
    if refusal is None and any(_rows.uncomputed(o["error"]) for o in failed):
        refusal = late(5)
        attempt.before = 0
    gone = re.findall(r"^hora: (lost host .*)$", programs._shown(hub.said()), re.MULTILINE)
    if refusal is None and gone and not attempt.elastic:
        word = late(WORD)  # Spark may know which executor it was; else it only tells that a task has ended
        refusal = word if word is not None and _spoken.lost(word) else None
        attempt.before = 0  # who was ended after that did not fail
    spark_s = refusal is not None and (
        _spoken.lost(refusal) or _spoken.cancelled(refusal)
    )  # which has ended those that are gone
    own = [
        o for o in failed
        if not _is_echo(o["error"]) and not (spark_s and "gone" in o) and not (refusal is not None and _rows.uncomputed(o["error"]))
    ]  # fmt: skip
    if own:  # the others mostly fail because the first one did; an elastic job lived through the earlier ones
        first = (max if attempt.elastic else min)(own, key=programs._moment(failed))
        raise first["error"] from programs.RemoteTraceback(
            first.get("place", first["rank"]), first["host"], first["traceback"]
        )
    silent = [e for e in attempt.exits[: attempt.before] if e.get("rank") not in {o["rank"] for o in outcomes}]
    if refusal is not None and not silent:
        error = _spoken.spoken(refusal, attempt.words, lambda: _cluster.interpreter(attempt.session))
        if _spoken.final(refusal):
            raise error from refusal
        if gone and not _spoken.lost(refusal):  # the hub knows what Spark only noticed: that a task has ended
            error = HoraError(f"spark.run: {gone[-1]}")
        error.__cause__ = refusal
        raise Lost(error, unbegun=not attempt.elastic and not attempt.opened and _spoken.lost(refusal))
    if gone and not silent and not attempt.elastic:
        raise Lost(HoraError(f"spark.run: {gone[-1]}"))
    said = programs._shown(hub.said())
    if silent and not attempt.elastic:
        e = silent[0]
        raise Lost(
            HoraError(
                f"spark.run: rank {e.get('rank')} on {e.get('host')}: {e.get('cause')}; the last lines of output:\n{said or '(none)'}"
            )
        )
    if failed:
        error = failed[0]["error"]
        error.__cause__ = programs.RemoteTraceback(failed[0]["rank"], failed[0]["host"], failed[0]["traceback"])
        raise Lost(error)
    verdict = re.findall(r"^hora: (.*)$", said, re.MULTILINE)
    if verdict and (
        code == TIMEOUT or code == USAGE and not attempt.opened
    ):  # the hub has ended it, and its last word says why
        error = HoraError(f"spark.run: {attempt.words.of_hub(verdict[-1])}")
        raise error if code == USAGE else Lost(error)
    raise Lost(
        HoraError(
            f"spark.run: the job ended with exit code {code} and {len(ended)} results where {attempt.least} were wanted; its last lines:\n{said or '(none)'}"
        )
    )


def _is_echo(error: BaseException) -> bool:
    """Whether a rank failed because another one did: the clocks of hosts differ by more than that takes to be
    noticed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PeerLostError) or re.search(r"\blost rank \d|peer lost", str(seen)):
            return True
        seen = seen.__cause__
    return False


def _keep_report(written: str) -> None:
    """The job's story, as `hora run --report` writes it, where HORA_SPARK_REPORT names a file of this machine."""
    path = os.environ.get("HORA_SPARK_REPORT")
    if not path or not os.path.exists(written):
        return
    try:
        with open(written, "rb") as source, open(path, "wb") as to:
            to.write(source.read())
    except OSError as e:
        print(f"hora: warning: the report cannot be written to {path}: {e.strerror}", file=sys.stderr)
