"""Each rank's part of a tf.data.Dataset, equally long on all of them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..errors import ArgumentError
from ..group import Group, group_of

__all__ = ["shard"]

LASTS = ("drop", "pad")


def shard(dataset: tf.data.Dataset, *, last: str = "drop", group: Group | None = None) -> tf.data.Dataset:
    """This rank's elements of a dataset that all ranks have alike: rank r of n has those numbered r, r + n, r + 2n, …

    All ranks get equally many, and so take as many steps: tf.data's own `shard` gives some one more, whose last step
    would wait for the others in vain. An end that has not one element for each rank is left out, or with `last="pad"`
    filled with elements of the beginning. Where the number of elements is not known before they are read (after
    `filter`, `from_generator`), it can be left out only.

    Before `batch` it deals out rows, after it batches. Ranks must see the same order: shuffle with a `seed` before, or
    shuffle after.

    >>> data = hora.tensorflow.shard(tf.data.Dataset.from_tensor_slices((x, y))).shuffle(10_000).batch(64)
    """
    if last not in LASTS:
        raise ArgumentError(f'shard: last={last!r} is not known; it is "drop" or "pad"')
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentError(f"shard: {type(dataset).__name__} is no tf.data.Dataset")
    g = group_of(group)
    n, r = g.size, g.rank
    if n == 1:
        return dataset
    many = int(dataset.cardinality())
    if many == tf.data.INFINITE_CARDINALITY:
        return dataset.shard(n, r)
    if many != tf.data.UNKNOWN_CARDINALITY:
        if many < n and (last == "drop" or not many):
            raise ArgumentError(
                f'shard: {many} elements are fewer than {n} ranks, so that none is left after last="drop"; use last="pad"'
            )
        if many % n and last == "pad":
            return dataset.repeat().take(-(-many // n) * n).shard(n, r)
        return dataset.take(many // n * n).shard(n, r)
    if last == "pad":
        raise ArgumentError(
            'shard: how many elements this dataset has is not known before they are read; use last="drop", or say it with '
            "dataset.apply(tf.data.experimental.assert_cardinality(n))"
        )
    return dataset.window(n, drop_remainder=True).flat_map(lambda *turn: _one(turn, r))


def _one(turn: tuple[Any, ...], r: int) -> tf.data.Dataset:
    """The element of rank r among those of one turn, of which each component is a dataset."""
    whole = (
        turn[0]
        if len(turn) == 1 and isinstance(turn[0], tf.data.Dataset)
        else tf.data.Dataset.zip(turn[0] if len(turn) == 1 else turn)
    )
    return whole.skip(r).take(1)
