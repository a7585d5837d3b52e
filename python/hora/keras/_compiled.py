"""Models that are to be compiled by XLA on TensorFlow, which knows none of the library's operations."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from . import _backend, which

__all__ = ["mind", "warn_of_jit"]


def warn_of_jit(model: Any) -> None:
    """Say once that XLA cannot hold TensorFlow's operations of ours, and compile without it."""
    if getattr(model, "jit_compile", False) and _backend.backend_of() == "tensorflow" and not _compiles():
        warnings.warn(
            "hora.keras: jit_compile=True is not possible with hora's operations on TensorFlow, since XLA knows only its own; this model runs "
            "without it. Pass jit_compile=False to compile() to be rid of this line, or set HORA_TF_XLA=1.",
            stacklevel=2,
        )
        model.jit_compile = False


def _compiles() -> bool:
    """Whether HORA_TF_XLA=1 lets XLA compile steps that reduce."""
    from ..tensorflow import _xla

    return _xla.able()


def mind(family: Any, ours: Callable[[Any], bool]) -> None:
    """Has models of a Keras look at their optimizer when they make their training step: with one of ours it is not
    XLA's.

    An optimizer never sees the model that compile() gave it to, so that this is the class' own method.
    """
    cls = next((c for c in family.Model.__mro__ if "make_train_function" in vars(c)), None)
    if cls is None or hasattr(cls.make_train_function, "_hora"):
        return
    make = cls.make_train_function

    @functools.wraps(make)
    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = getattr(self, "optimizer", None)
        if ours(optimizer) or ours(which.inner(optimizer)):
            warn_of_jit(self)
        return make(self, *args, **kwargs)

    make_train_function._hora = True  # type: ignore[attr-defined]
    cls.make_train_function = make_train_function
