"""Each rank's part of what `fit` trains on, equally long on all of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy

from ..errors import ArgumentError
from ..group import Group, group_of
from .which import keras

__all__ = ["shard"]

_Base: Any = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence  # Keras 2's name


class _Shard(_Base):  # type: ignore[misc]
    """Every n-th batch of a PyDataset."""

    def __init__(self, whole: Any, rank: int, size: int, pad: bool) -> None:
        how = {k: getattr(whole, k) for k in ("workers", "use_multiprocessing", "max_queue_size") if hasattr(whole, k)}
        super().__init__(**how)
        self.whole, self.rank, self.size, self.pad = whole, rank, size, pad

    @property
    def num_batches(self) -> int | None:
        return None if _endless(self.whole) else len(self)

    def __len__(self) -> int:
        return _turns(len(self.whole), self.size, self.pad)

    def __getitem__(self, i: int) -> Any:
        at = i * self.size + self.rank
        return self.whole[at if _endless(self.whole) else at % len(self.whole)]

    def on_epoch_begin(self) -> None:
        getattr(self.whole, "on_epoch_begin", lambda: None)()

    def on_epoch_end(self) -> None:
        getattr(self.whole, "on_epoch_end", lambda: None)()


def _endless(whole: Any) -> bool:
    return getattr(whole, "num_batches", 0) is None


def _turns(many: int, size: int, pad: bool) -> int:
    return -(-many // size) if pad else many // size


def shard(data: Any, *, last: str = "drop", group: Group | None = None) -> Any:
    """This rank's part of what all ranks have alike.

    That is a PyDataset (Keras 2: a Sequence), a tf.data.Dataset, an array, or a tuple, list or dict of arrays.

    Rank r of n has the rows or batches numbered r, r + n, r + 2n, … All ranks get equally many, and so take as many
    steps in `fit`. An end that has not one for each rank is left out, or with `last="pad"` filled with those of the
    beginning. A PyDataset that shuffles must do so alike on all ranks: with a seed of its own.

    >>> x, y = hora.keras.shard((x, y))
    >>> model.fit(x, y, batch_size=64)
    >>> model.fit(hora.keras.shard(MyPyDataset("images/")))
    """
    if last not in ("drop", "pad"):
        raise ArgumentError(f'shard: last={last!r} is not known; it is "drop" or "pad"')
    tf = sys.modules.get("tensorflow")
    if tf is not None and isinstance(data, tf.data.Dataset):
        from ..tensorflow.data import shard as of_tensorflow

        return of_tensorflow(data, last=last, group=group)
    g = group_of(group)
    n, r = g.size, g.rank
    if isinstance(data, _Base):
        if not _endless(data):
            _enough(len(data), n, last, "batches")
        return data if n == 1 else _Shard(data, r, n, last == "pad")
    parts = list(data.values()) if isinstance(data, dict) else list(data) if isinstance(data, (tuple, list)) else [data]
    if not parts or not all(hasattr(x, "shape") and len(x.shape) for x in parts):
        raise ArgumentError(
            f"shard: {type(data).__name__} is none of a PyDataset, a tf.data.Dataset, an array with rows, or a tuple, list or dict of those"
        )
    rows = {int(x.shape[0]) for x in parts}
    if len(rows) > 1:
        raise ArgumentError(
            f"shard: the arrays have different numbers of rows ({', '.join(map(str, sorted(rows)))}); give those that belong together"
        )
    many = rows.pop()
    _enough(many, n, last, "rows")
    mine = (numpy.arange(_turns(many, n, last == "pad")) * n + r) % many

    def take(x: Any) -> Any:
        return (
            x[mine]
            if isinstance(x, numpy.ndarray)
            else keras.ops.take(x, mine, axis=0)
            if hasattr(keras, "ops")
            else numpy.asarray(x)[mine]
        )

    if isinstance(data, dict):
        return {k: take(x) for k, x in data.items()}
    return (
        tuple(map(take, data))
        if isinstance(data, tuple)
        else [take(x) for x in data]
        if isinstance(data, list)
        else take(data)
    )


def _enough(many: int, size: int, last: str, what: str) -> None:
    if many < size and (last == "drop" or not many):
        raise ArgumentError(
            f'shard: {many} {what} are fewer than {size} ranks, so that none is left after last="drop"; use last="pad"'
        )
