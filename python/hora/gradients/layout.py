"""Which gradients share a bucket, and where each lies in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

# Where each gradient begins, in bytes: a cache line, so that vector loads never straddle two gradients.
ALIGN = 64


def assign(
    items: Iterable[T],
    groups: Sequence[Sequence[T]] | None,
    limit: int,
    kind: Callable[[T], Hashable],
    nbytes: Callable[[T], int],
) -> list[list[T]]:
    """Which items share a bucket: given groups first, the others in reverse order up to `limit` bytes each.

    Reverse, because the last gradients come first. Only items of one kind (element type and device) meet.
    """
    out: list[list[T]] = []
    taken: set[int] = set()
    wanted = list(items)
    known = set(map(id, wanted))
    for group in groups or ():
        kinds: dict[Hashable, list[T]] = {}
        for item in group:
            if id(item) in known and id(item) not in taken:
                taken.add(id(item))
                kinds.setdefault(kind(item), []).append(item)
        out.extend(kinds.values())
    filling: dict[Hashable, tuple[list[T], int]] = {}
    for item in reversed(wanted):
        if id(item) in taken:
            continue
        of, size = kind(item), nbytes(item)
        bucket, used = filling.get(of, (None, 0))
        if bucket is None or used + size > limit:
            bucket, used = [], 0
            out.append(bucket)
        bucket.append(item)
        filling[of] = (bucket, used + size)
    return out


def split(items: Sequence[T], n: int) -> list[list[T]]:
    """items as n groups of neighbours; the first ones get one more, and none is empty."""
    each, more = divmod(len(items), n)
    out, at = [], 0
    for i in range(n):
        k = each + (1 if i < more else 0)
        if k:
            out.append(list(items[at : at + k]))
        at += k
    return out


def starts(counts: Iterable[int], width: int) -> tuple[list[int], int]:
    """Where each gradient of so many elements of `width` bytes begins, in elements, and how many elements there are in
    all."""
    step = max(1, ALIGN // width)
    found, total = [], 0
    for n in counts:
        found.append(total)
        total += -(-n // step) * step
    return found, total


def label(first: object, members: int, prefix: str = "gradient.") -> str:
    """What messages and timelines call a bucket: its first gradient, and how many more."""
    return f"{prefix}{first}+{members - 1}" if members > 1 else f"{prefix}{first}"
