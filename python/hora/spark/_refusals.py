"""What cannot work on executors, in one sentence each: before anything starts where that can be known, else in Spark's
place."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hora import _travel
from hora.errors import ArgumentError, HoraError

__all__ = ["PLAIN", "Wording", "known", "refuse_spark_objects", "speaking"]


_PLAIN = "spark.run"


@dataclass(frozen=True)
class Wording:
    """What a front end calls itself, and what advice speaks of. What it does not have is None, and nobody is advised to
    give it."""

    np: str = "np"
    elastic: str | None = "give min_np="
    restarts: str | None = "restarts="
    who: str = _PLAIN
    least: str = "min_np"
    most: str = "max_np"
    rows: str | None = "dataframe="
    flags: tuple[tuple[str, str], ...] = ()  # of the hub, and what the front end calls them

    def dynamic(self) -> str:
        """Executors come and go, and a gang was asked for."""
        other = "" if self.elastic is None else f"{self.elastic}, for tasks that come and go, or "
        return f"this cluster allocates executors dynamically, where Spark starts no gang: {other}set spark.dynamicAllocation.enabled=false"

    def of_hub(self, sentence: str) -> str:
        """What the hub says, with the caller's words for its flags."""
        names = {"--min-np": self.least, "--max-np": self.most, "-np": self.np} | dict(self.flags)
        return re.sub(r"(?<![\w-])--?[a-z][a-z-]*", lambda m: names.get(m[0], m[0]), sentence)

    def speak(self, error: HoraError) -> None:
        """Have a sentence of hora's begin with the front end that was called."""
        text = error.args[0] if error.args else None
        if isinstance(text, str) and text.startswith(f"{_PLAIN}: "):
            error.args = (self.who + text[len(_PLAIN) :], *error.args[1:])


PLAIN = Wording()
T = TypeVar("T")


def speaking(launch: Callable[..., T]) -> Callable[..., T]:
    """Of a function with `words`: what it raises itself begins with their front end's name."""

    @functools.wraps(launch)
    def called(*args: Any, words: Wording = PLAIN, **kwargs: Any) -> T:
        try:
            return launch(*args, words=words, **kwargs)
        except HoraError as e:
            words.speak(e)
            raise

    return called


_KINDS = frozenset(
    ("SparkContext", "SparkSession", "SQLContext", "DataFrame", "RDD", "Broadcast", "Accumulator", "Column")
)


def refuse_spark_objects(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], words: Wording = PLAIN
) -> None:
    """Refuse a call that would take Spark's own objects along: some of them pickle, and fail on the executor."""
    name = getattr(fn, "__qualname__", None) or repr(fn)
    for what, value in [
        *((f"argument {i + 1}", a) for i, a in enumerate(args)),
        *((f"argument {k}", v) for k, v in kwargs.items()),
    ]:
        if _of_spark(value):
            raise ArgumentError(
                f"{words.who}: {what} of {name} (a {_travel._type(value)}) cannot be pickled, since it lives on the driver alone: {_instead(value, words.rows)}"
            )
    known: dict[int, bool] = {}

    def goes(value: Any) -> bool:
        if _of_spark(value):
            return False
        value = getattr(value, "__func__", value)
        if getattr(value, "__code__", None) is None or not _own(value, fn):
            return True
        if id(value) not in known:
            known[id(value)] = True  # while it is looked at: functions call each other
            known[id(value)] = _travel._captured(value, goes, set()) is None
        return known[id(value)]

    found = _travel._captured(fn, goes, set())
    if found is not None:
        owner, variable, value, line = found
        raise ArgumentError(
            f"{words.who}: {_travel._name(owner)} uses the variable {variable!r} (a {_travel._type(value)}) in line {line} of "
            f"{owner.__code__.co_filename.rpartition('/')[2]}, which cannot be pickled, since it lives on the driver alone: {_instead(value, words.rows)}"
        )


def _of_spark(value: Any) -> bool:
    return any(k.__name__ in _KINDS and k.__module__.startswith("pyspark.") for k in type(value).__mro__)


def _own(function: Any, fn: Any) -> bool:
    """Whether a function is the user's own, and goes by value."""
    module = getattr(function, "__module__", None)
    return module in ("__main__", getattr(fn, "__module__", "")) or bool(
        _travel.beside([sys.modules.get(module or "")])
    )


def _instead(value: Any, rows: str | None) -> str:
    if rows is None:
        return "collect what the function needs before the call"
    if type(value).__name__ in ("DataFrame", "RDD"):
        return f"give its rows by {rows}, or collect what the function needs"
    return f"collect what the function needs before the call, or give rows by {rows}"


def known(text: str, words: Wording = PLAIN, whose: Callable[[], str] = str) -> str | None:
    """What a refusal of Spark's own says, in a sentence with what to do; None for others.

    `whose` is asked for the executors' Python and its machine where a package is not there; "" where nobody knows.
    """
    versions = re.search(
        r"Python in worker has different version:? ?\(?([\d., ]+?)\)? than that in driver:? ?([\d.]+?)[,.]? ", text
    )
    if versions:
        theirs, mine = versions[1].replace(", ", ".").strip(" ."), versions[2].strip(" .")
        return f"the executors have Python {theirs} and the driver {mine}: set PYSPARK_PYTHON to an interpreter of the same version on all machines"
    if "SPARK-24942" in text or "does not support dynamic resource allocation" in text:
        return words.dynamic()
    if "SPARK-24819" in text or "requires more slots than the total number" in text:
        return f"the cluster has fewer task slots than the job has ranks: give a smaller {words.np}, or more executors or cores"
    old = re.search(r"(PyArrow|Pandas) >= ([\d.]+) must be installed", text)
    none = re.search(r"No module named '(pyarrow|pandas|cloudpickle)'", text)
    if not old and not none:
        return None
    package = f"{old[1].lower()} {old[2]} or later" if old else none[1] if none else ""
    python = whose()
    where = f" in their Python, {python}" if python else ""
    return f"the executors have no {package}{where}: install it there, or set PYSPARK_PYTHON to a Python that has it"
