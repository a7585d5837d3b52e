"""Hooks of Lightning 1 that Lightning 2 refuses or never calls: modules and callbacks that have them get their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["begun", "callbacks_for", "hidden"]

REFUSED = ("training_epoch_end", "validation_epoch_end")  # Lightning 2 raises where a module has one


def _removed(lightning: Any) -> bool:
    return int(lightning.__version__.partition(".")[0]) >= 2


def _own(thing: Any, name: str) -> Any:
    found = getattr(type(thing), name, None)
    return None if found is None else found.__get__(thing)


@contextmanager
def hidden(lightning: Any, module: Any) -> Iterator[None]:
    """While it is entered, Lightning does not see what it would refuse of the module."""
    names = [n for n in REFUSED if _removed(lightning) and callable(getattr(module, n, None))]
    for n in names:
        object.__setattr__(module, n, None)
    try:
        yield
    finally:
        for n in names:
            object.__delattr__(module, n)


def begun(lightning: Any, trainer: Any, callbacks: Sequence[Any]) -> None:
    """What callbacks are told of a Trainer that has been made."""
    if _removed(lightning):
        for name in ("on_init_start", "on_init_end"):
            for c in callbacks:
                if callable(getattr(c, name, None)):
                    getattr(c, name)(trainer)


def callbacks_for(lightning: Any, module: Any, callbacks: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Callbacks to stand before all others, and after them."""
    if not _removed(lightning):
        return [], []
    told = [c for c in callbacks if any(callable(getattr(c, n, None)) for n in ("on_epoch_start", "on_epoch_end"))]
    ends = [_own(module, n) for n in REFUSED]

    class First(lightning.Callback):  # type: ignore[misc]
        """Hands a module what its steps have returned in an epoch."""

        def __init__(self) -> None:
            self.train: list[Any] = []
            self.held: list[Any] = []

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, at: int) -> None:
            if ends[0] and outputs is not None:
                self.train.append(outputs)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            given, self.train = self.train, []
            if ends[0]:
                ends[0](given)

        def on_validation_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, at: int, loader: int = 0
        ) -> None:
            if ends[1] and outputs is not None:
                self.held.append(outputs)

        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
            given, self.held = self.held, []
            if ends[1]:
                ends[1](given)

    class Last(lightning.Callback):  # type: ignore[misc]
        """Says that an epoch begins or ends, of training or of validation."""

        def _say(self, name: str, trainer: Any, module: Any) -> None:
            for c in told:
                if callable(getattr(c, name, None)):
                    getattr(c, name)(trainer, module)
            if callable(getattr(module, name, None)):
                getattr(module, name)()

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            self._say("on_epoch_start", trainer, module)

        def on_validation_epoch_start(self, trainer: Any, module: Any) -> None:
            self._say("on_epoch_start", trainer, module)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            self._say("on_epoch_end", trainer, module)

        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
            self._say("on_epoch_end", trainer, module)

    return [First()] if any(ends) else [], [Last()]
