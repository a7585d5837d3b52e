"""What Spark's exceptions say: whether an executor was lost, somebody cancelled, a new start would help; and in
hora's words."""

from __future__ import annotations

import re
from collections.abc import Callable

from hora.errors import HoraError

from . import _refusals

__all__ = ["cancelled", "final", "lost", "spoken"]


def lost(error: BaseException) -> bool:
    """Whether Spark ended the job since an executor was lost."""
    return (
        re.search(r"ExecutorLostFailure|[Ll]ost executor|[Ee]xecutor \S+ (is )?(lost|exited)", _told(error)) is not None
    )


def cancelled(error: BaseException) -> bool:
    """Whether somebody has cancelled the job."""
    return re.search(r"[Cc]ancell?ed|CANCELL?ED|[Ii]nterrupted", _told(error)) is not None


def _told(error: BaseException) -> str:
    """What an exception of the JVM says, without the methods that it came through: some of Spark's are called
    cancel…"""
    return re.sub(r"^[ \t]+at [^\n]*\n?", "", str(error), flags=re.MULTILINE)


def final(error: BaseException) -> bool:
    """Whether a new start would end as this one: a task has said why, somebody has cancelled the job, or the limit is
    over."""
    text = _told(error)
    said = isinstance(error, HoraError) or "hora.spark: " in text or _refusals.known(text) is not None
    return said or "cancel" in text.lower() or "interrupt" in text.lower()


def spoken(
    error: BaseException, words: _refusals.Wording = _refusals.PLAIN, whose: Callable[[], str] = str
) -> HoraError:
    """Spark's exception in hora's words, where a task has said why; `whose` as for _refusals.known."""
    if isinstance(error, HoraError):
        return error
    text = str(error)
    told = (
        text.rsplit("hora.spark: ", 1)[1] if "hora.spark: " in text else None
    )  # before it the source's line, in a traceback
    if told is not None:
        return HoraError("spark.run: " + told.split(" [end]", 1)[0])
    known = _refusals.known(text, words, whose)
    if known is not None:
        return HoraError(f"spark.run: {known}")
    gone = re.search(r"ExecutorLostFailure \(executor (\S+) [^)]*\)(?: Reason: ([^\n]{0,300}))?", text)
    if gone is not None:
        reason = f" ({gone[2].strip().rstrip('.')})" if gone[2] else ""
        again = f"; {words.restarts} starts the job anew after such a loss" if words.restarts else ""
        return HoraError(f"spark.run: Spark lost executor {gone[1]}{reason}: its log says why{again}")
    lines = [
        line.strip().lstrip(": ")
        for line in text.splitlines()
        if line.strip() and not line.startswith("An error occurred while calling")
    ]
    first = _raised(text) or (lines[0] if lines else type(error).__name__)
    return HoraError(f"spark.run: Spark ended the job: {first[:500]}; the cause of this error has all that it said")


def _raised(text: str) -> str | None:
    """The exception of Python that a task's traceback ends with, in what Spark says."""
    found = re.search(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)+([A-Za-z_][^\n]*)", text)
    return None if found is None else f"a task that computes the rows raised {found[1].strip()}"
