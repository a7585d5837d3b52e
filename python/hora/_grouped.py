"""Several operations as one submission."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .errors import ArgumentError
from .group import Group
from .handle import Handle, wait_all

Call = dict[str, Any]
Finish = Callable[[int], Any]


def _names(name: Any, n: int) -> list[str | None]:
    if name is None:
        return [None] * n
    if isinstance(name, str):
        return [f"{name}_{i + 1}of{n}" for i in range(n)]
    if len(name) != n:
        raise ArgumentError(f"grouped call: {len(name)} names for {n} arrays; give one name or one each")
    return list(name)


def many(g: Group, made: list[tuple[Call, Finish]], async_: bool, named: bool, name: Any) -> Any:
    """Make several calls as one submission."""
    calls = [call for call, _ in made]
    for call, n in zip(calls, _names(name, len(calls)), strict=True):
        if n is not None:
            call["name"] = n
    if named and name is None:
        raise ArgumentError("grouped call: named=True needs a name, the same on every rank")
    if not calls:
        return _Ready([]) if async_ else []
    tickets = g.submit_many(calls, named=named, awaited=not async_)
    parts = [Handle(t, finish) for t, (_, finish) in zip(tickets, made, strict=True)]
    if not async_:
        return wait_all(parts)
    return _Grouped(parts)


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
