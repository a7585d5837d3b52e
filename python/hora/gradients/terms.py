"""What ranks agree on before they put gradients into buckets, by numbers of which each learns the greatest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import MismatchError

Greatest = Callable[
    [list[int], str], list[int]
]  # each number's maximum over the ranks; the text says what they are about

_MOST_BYTES = 1 << 60  # above any size of a bucket

# How many optimizers have reduced over a group, by its ranks and its tag.
_numbers: dict[tuple, int] = {}


class Terms(NamedTuple):
    """What holds on every rank."""

    sparse: list[bool]  # for each gradient: whether it is sparse on some rank
    bucket_bytes: int  # the smallest that a rank asked for
    number: int  # tells the gradients of one optimizer from those of others over the same group
    more: list[int]  # the greatest of what the caller had sent along


def agree(
    greatest: Greatest,
    group: Any,
    sparse: Sequence[bool],
    bucket_bytes: int,
    number: int,
    of: str,
    more: Sequence[int] = (),
) -> Terms:
    """Agree on these terms; `number` is -1 where this optimizer has none yet. Every rank of the group does so at the
    same point."""
    key = (group.ranks, group.tag)
    if number < 0:
        number = _numbers.get(key, 0)
    *top, smallest, number = greatest([*more, *map(int, sparse), _MOST_BYTES - bucket_bytes, number], of)
    _numbers[key] = max(_numbers.get(key, 0), number + 1)
    n = len(more)
    return Terms([bool(s) for s in top[n:]], _MOST_BYTES - smallest, number, top[:n])


def check_buckets(greatest: Greatest, group: Any, places: Sequence[int], name: Callable[[int], Any]) -> None:
    """Raise on every rank where one puts a gradient into another bucket: they would wait for each other's memory.

    places are the gradients' buckets, counted from 1, with 0 for those that are in none; name(i) is a gradient's name.
    """
    ranks, most = group.size, len(places) + 3
    parts = [at + 1 for at in places]  # a joined rank's zeros are below everything
    top = greatest([v * ranks + group.rank for at in parts for v in (at, most - at)], "buckets")
    for i in range(len(parts)):
        (high, one), (low, other) = divmod(top[2 * i], ranks), divmod(top[2 * i + 1], ranks)
        if high != most - low:
            world = group.ranks
            raise MismatchError(
                f"Mismatched buckets: the gradient of {name(i)} is in part {high - 1} on rank {world[one]} and in part "
                f"{most - low - 1} on rank {world[other]}; give groups, num_groups and compression alike on every rank."
            )
