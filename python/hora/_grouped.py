"""Several operations as one submission."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .errors import ArgumentError
from .handle import Handle, wait_all


def names_of(name: Any, n: int) -> list[str | None]:
    """The names of n calls that were given one, one each, or none."""
    if name is None:
        return [None] * n
    if isinstance(name, str):
        return [f"{name}_{i + 1}of{n}" for i in range(n)]
    if len(name) != n:
        raise ArgumentError(f"grouped call: {len(name)} names for {n} arrays; give one name or one each")
    return list(name)


def handle_of(parts: list[Handle]) -> Handle:
    """One handle for several."""
    return _Grouped(parts)


def finished(result: Any) -> Handle:
    """The handle of what needed no operation."""
    return _Ready(result)


class _Grouped(Handle):
    """The handle of a grouped call: its result is the list of theirs."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Handle]) -> None:
        super().__init__(0)
        self.parts = parts

    def wait(self, timeout: float | None = None) -> Any:
        return wait_all(self.parts, timeout)

    def done(self) -> bool:
        return all([p.done() for p in self.parts])

    def exception(self, timeout: float | None = None) -> BaseException | None:
        first = None
        for p in self.parts:
            first = first or p.exception(timeout)
        return first

    def add_done_callback(self, fn: Callable[[Handle], Any]) -> None:
        left = itertools.count(1)
        n = len(self.parts)

        def one(_: Handle) -> None:
            if next(left) == n:
                fn(self)

        for p in self.parts:
            p.add_done_callback(one)


class _Ready(Handle):
    """The handle of what needed no operation."""

    __slots__ = ()

    def __init__(self, result: Any) -> None:
        super().__init__(0)
        self._result = result
