"""Graphs of TensorFlow 1, and labels of calls that have no name."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from .. import _site
from .._site import Unnamed

__all__ = [
    "After",
    "Unnamed",
    "label",
    "numbered",
    "ours",
    "plain_graph",
    "precondition",
    "unscoped",
    "within",
    "without_scope",
]

# Whether ranks that ask for different things fail a precondition (horovod.tensorflow's calls), or give a wrong
# argument.
precondition: contextvars.ContextVar[bool] = contextvars.ContextVar("precondition", default=False)

UNSCOPED = "no scope: "  # what a label begins with that has no scope in it; no name of a graph can have a blank
_unscoped: contextvars.ContextVar[bool] = contextvars.ContextVar("unscoped", default=False)

_INSIDE = {
    "CondBranchFuncGraph": " in a branch",
    "WhileBodyFuncGraph": " in a loop",
    "WhileCondFuncGraph": " in a loop",
}
_placed = _site.asked()  # nothing is looked at in calls where nobody asked


class After(Unnamed):
    """An Unnamed label that in a graph of TensorFlow 1 goes by a tensor of the program's, whatever is made of that
    before the call.

    What is made of it (weighed for gradients, compressed) may go by its type. Ranks whose types differ would else wait,
    under names that differ, instead of hearing of it.
    """

    first: Any = None

    @classmethod
    def of(cls, text: str, tensor: Any) -> After:
        """The label of a call with a tensor, or with several, of which the first gives the name."""
        made = cls(text)
        made.first = tensor[0] if isinstance(tensor, (list, tuple)) else tensor
        return made


@contextlib.contextmanager
def without_scope(asked: bool) -> Iterator[None]:
    """Has calls in a graph of TensorFlow 1, if that is asked, go by names without the name scopes that they stand in.

    Ranks whose scopes differ would else wait under names that differ.
    """
    before = _unscoped.set(asked or _unscoped.get())
    try:
        yield
    finally:
        _unscoped.reset(before)


def unscoped(label: str) -> bool:
    """Whether scopes are to stay out of a call's label; what goes back through such a call is one too."""
    return _unscoped.get() or label.startswith(UNSCOPED)


def numbered(label: str, i: int, n: int) -> str:
    """The label of the i-th of n operations that one call is."""
    text = f"{label}_{i + 1}of{n}"
    return After.of(text, label.first) if isinstance(label, After) else text


def plain_graph() -> bool:
    """Whether what is called now becomes part of a graph of TensorFlow 1, which runs whatever is ready, in no order of
    its own."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def within() -> str:
    """Where in a function's graph a call is made that need not run on every rank: part of its label, which ranks
    compare.

    A branch that one rank alone takes, or a loop that it goes round once more, would else meet the others' next call of
    that shape.
    """
    graph = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    where = ""
    while graph is not None:
        where = where or _INSIDE.get(type(graph).__name__, "")
        graph = getattr(graph, "outer_graph", None)
    return where


def ours(name: str) -> str:
    """A label that this package gives a call, which may stand anywhere in a program."""
    return name if plain_graph() and not _placed else Unnamed(name)


def label(name: str | None, what: str) -> str:
    """The name that a program gave its call; else what it does, with HORA_CHECK_CALLS and its place in the program."""
    if name and not isinstance(name, Unnamed):
        return name
    site = _place() if _placed else None
    text = f"{name or what} {site}" if site else name or what
    return After.of(text, name.first) if isinstance(name, After) else Unnamed(text)


def _place() -> str | None:
    """Where the program makes the call that is made or traced now.

    A function is traced from code that TensorFlow has written anew. The stack that it keeps of an operation has the
    program's lines.
    """
    if tf.executing_eagerly() or plain_graph():
        return _site.site()
    stack = getattr(tf.no_op(), "traceback", None) or ()
    return _site.written((frame.filename, frame.lineno) for frame in reversed(list(stack)))


def _as_written() -> None:
    """Has what a function calls of these packages run as it is written, as TensorFlow does with its own and with Keras.

    Else it writes our code anew at each trace, and older releases know less Python than that code takes (2.12:
    zip(strict=True)). Its list of packages is not public: without one it goes as it does for any other package.
    """
    try:
        config: Any = importlib.import_module("tensorflow.python.autograph.core.config")
        config.CONVERSION_RULES = (
            *(config.DoNotConvert(name) for name in ("hora", "horovod")),
            *config.CONVERSION_RULES,
        )
    except (ImportError, AttributeError, TypeError):
        pass


_as_written()
