"""What the frameworks' packages share: compiled programs call the library by addresses, and fail in classes of their
own.

A compiled program outlives an epoch, a group's handle does not: programs name groups by numbers (bridges.h).
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _abi, _lib
from .call import DTYPES
from .errors import BY_KIND, ArgumentError, HoraError, InternalError
from .group import Group, closed, opened

_lock = threading.Lock()  # guards the two below
_numbers: dict[tuple[tuple[int, ...], str], int] = {}  # ranks and tag of a group → its number
_bound: dict[int, tuple[int, int]] = {}  # number → the handle that it stands for, and the life that it is of
_recovers: list[Callable[[], None]] = []  # what frameworks drop of a life of the world that is over
_resizes: list[Callable[[], None]] = []  # what frameworks drop of a life of the world that is over


def number(group: Group | None) -> int:
    """The number by which compiled programs name a group: 0 is the world."""
    if group is None or not group._ranks:
        return 0
    if not group.included:
        raise ArgumentError(f"use group of ranks {list(group.ranks)}: this rank is not in it; only its members call")
    handle = group.handle
    with _lock:
        n = _numbers.setdefault((group.ranks, group.tag), len(_numbers) + 1)
        _bind(n, handle)
    return n


def _bind(n: int, handle: int) -> None:
    if _bound.get(n) == (handle, _lib.age):
        return
    if _abi.bridge(_lib.load()).hora_bridge_group(n, handle) < 0:
        raise _lib.failure()
    _bound[n] = handle, _lib.age


def _made(group: Group) -> None:
    """A group that was made again: programs that know it by its number run without being traced, so without asking.

    Those of one that is still open stay with that.
    """
    with _lock:
        n = _numbers.get((group.ranks, group.tag))
        if n is not None and _bound.get(n, (0, 0))[1] != _lib.age:
            _bind(n, group.handle)


def _closed(handle: int) -> None:
    with _lock:
        for n, bound in list(_bound.items()):
            if bound == (handle, _lib.age):
                del _bound[n]


opened.append(_made)
closed.append(_closed)


def failure(error: BaseException) -> HoraError | None:
    """The hora error inside an exception of a framework's own class, which says what a compiled operation said."""
    if _lib._lib is None or _lib._forked_after_load:
        return None
    text, kind, rank = _abi.bridge_failure(_lib._lib, str(error))
    if not text:
        return None
    found = BY_KIND.get(kind, InternalError)(text)
    if hasattr(found, "rank"):
        found.rank = rank
    return found


def on_recover(drop: Callable[[], None]) -> None:
    """Call `drop` on the training's thread before a next epoch is joined."""
    _recovers.append(drop)


def on_resize(drop: Callable[[], None]) -> None:
    """Call `drop` when a next epoch has another number of ranks than the one before."""
    _resizes.append(drop)


def resized() -> None:
    """Have the frameworks drop what they have compiled for another number of ranks."""
    for drop in _resizes:
        drop()


def recover() -> None:
    """Have the frameworks drop what failed operations have left in them."""
    for drop in _recovers:
        drop()


def bits(x: float) -> int:
    """A double's bits as a signed number: what compiled calls say of themselves are whole numbers."""
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


def text(what: Sequence[int], flags: int, arrays: Iterable[tuple[str, int, Sequence[int]]], name: str) -> str:
    """A call as the library reads it in XLA's older interface (xla_text.c).

    `what` has kind, operator, group, root and both factors' bits; of each array the element type's name, the elements
    of its result, and its shape.
    """
    described = [(DTYPES.get(dtype, 0), out, len(shape), *shape) for dtype, out, shape in arrays]
    numbers = [*what, flags, len(described), *itertools.chain(*described)]
    return f"{' '.join(map(str, numbers))}\n{name}"


def address(name: str) -> Any:
    """A function of bridges.h that a framework calls."""
    return getattr(_abi.bridge(_lib.load()), name)
