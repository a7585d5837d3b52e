"""How an elastic state keeps variables of a framework: as copies in the processor's memory, assigned back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .elastic import KINDS, Value


class Variables(Value):
    """One value of a state that has variables; `find` lists them anew each time, since a model may be rebuilt."""

    def __init__(self, word: str, find: Callable[[Any], list[Any]], read: Callable[[Any], Any]) -> None:
        self.word, self._find, self._read = word, find, read

    def layout(self, value: Any) -> str:
        held = self._find(value)
        return f"{self.word} of {len(held)} variables ({', '.join(f'{v.dtype}{tuple(v.shape)}' for v in held[:20])}{', …' * (len(held) > 20)})"

    def save(self, value: Any) -> Any:
        return [self._read(v) for v in self._find(value)]

    def restore(self, value: Any) -> Any:
        return self.take(value, self.kept)

    def send(self, value: Any) -> Any:
        return self.save(value)

    def take(self, value: Any, sent: Any) -> Any:
        for v, x in zip(self._find(value), sent, strict=True):
            v.assign(x)
        return value


def register(
    word: str, mine: Callable[[Any], bool], find: Callable[[Any], list[Any]], read: Callable[[Any], Any]
) -> None:
    """States keep what `mine` knows by its variables."""
    KINDS.append(lambda value: Variables(word, find, read) if mine(value) else None)
