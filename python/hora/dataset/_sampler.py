"""sampler(): equal, shuffled, resumable parts of any dataset with a length; pack(): lists of tokens as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ._arguments import place, whole
from ._views import Batch, Ragged

_MASK = (1 << 64) - 1


def sampler(
    data: Any,
    *,
    batch: int | None = None,
    global_batch: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    last: str = "short",
    rank: int | None = None,
    size: int | None = None,
) -> Sampler:
    """Which items this rank takes of a dataset with a length, batch by batch: for torch's
    `DataLoader(batch_sampler=...)`.

    `data` is the dataset, or its length. The order is a function of the seed and the epoch; neither the number of ranks
    nor the batch is any part of it, so both may change where a state goes on. `last` is "short", "drop" or "pad".

    >>> parts = hora.dataset.sampler(10, batch=5, rank=0, size=1)
    >>> sorted(i for batch in parts for i in batch)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    return Sampler(data, batch, global_batch, shuffle, seed, last, rank, size)


class Sampler:
    """Lists of indices, a list a batch; made by `sampler`. `over(loader)` counts what a loader with workers has handed
    out."""

    def __init__(
        self,
        data: Any,
        batch: int | None,
        global_batch: int | None,
        shuffle: bool,
        seed: int,
        last: str,
        rank: int | None,
        size: int | None,
    ) -> None:
        if (batch is None) == (global_batch is None) or any(n is not None and n < 1 for n in (batch, global_batch)):
            raise ArgumentError(
                "sample data: give batch= (items of each rank in a step) or global_batch= (items of all), one or more"
            )
        if (rank is None) != (size is None):
            raise ArgumentError("sample data: rank= and size= are given together")
        if last not in ("short", "drop", "pad"):
            raise ArgumentError(f'sample data: last={last!r}; use "short", "drop" or "pad"')
        self.rows = data if isinstance(data, int) else len(data)
        if self.rows < 1:
            raise ArgumentError("sample data: the dataset has no items")
        self.batch, self.global_batch, self.shuffle, self.last = batch, global_batch, bool(shuffle), last
        self.seed = whole("seed", seed, None, "sample data") & _MASK
        self._place = None if rank is None or size is None else (rank, size)
        self.epoch, self.position, self._counts = 0, 0, True
        self._begun = False  # the epoch is to go on at the position

    def _whole(self) -> tuple[int, int, int]:
        rank, size = self._place or place()
        return rank, size, self.global_batch or (self.batch or 1) * size

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next. One that a loaded state stands in goes on."""
        if epoch != self.epoch or not self._begun:
            self.epoch, self.position, self._begun = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Where the job stands, equal on all ranks: what was handed out counts as done."""
        return {
            "v": 1,
            "rows": self.rows,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "epoch": self.epoch,
            "pos": self.position,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called, in its order, with any number of ranks and any batch."""
        missing = {"seed", "epoch", "pos"} - set(state)
        if missing:
            raise ArgumentError(
                f"go on from saved state: it has no {min(missing)!r}; give what a sampler's state_dict() answered"
            )
        if state.get("v") != 1 or state.get("rows") != self.rows:
            raise ArgumentError(
                f"go on from saved state: it is of a dataset with {state.get('rows')} items and this one has {self.rows}; begin anew without the state"
            )
        if not 0 <= state["pos"] <= self.rows:
            raise ArgumentError(
                f"go on from saved state: it stands at item {state['pos']} of {self.rows}; begin anew without the state"
            )
        self.seed, self.epoch, self.position, self._begun = state["seed"], state["epoch"], state["pos"], True
        self.shuffle = state.get("shuffle", self.shuffle)

    def _order(self, epoch: int) -> Any:
        index = np.arange(self.rows, dtype=np.uint64)
        if not self.shuffle:
            return index.astype(np.int64)
        key = np.uint64(_mixed(np.array([(self.seed * 0x9E3779B97F4A7C15 + epoch) & _MASK], np.uint64))[0])
        return np.argsort(_mixed(index ^ key), kind="stable")

    def __len__(self) -> int:
        """How many batches this rank gets until the end of the epoch."""
        rank, size, whole = self._whole()
        steps, rest = divmod(self.rows - (self.position if self._begun else 0), whole)
        if not rest or self.last == "drop":
            return steps
        return steps + 1 if self.last == "pad" else steps + (rest * (rank + 1) // size > rest * rank // size)

    def __iter__(self) -> Iterator[list[int]]:
        rank, size, whole = self._whole()
        if not self._begun and self.position >= self.rows:
            self.epoch, self.position = self.epoch + 1, 0  # the one after the last that was finished
        elif not self._begun:
            self.position = 0
        self._begun = False
        order, at = self._order(self.epoch), self.position
        while at < self.rows:
            step = order[at : at + whole]
            if len(step) < whole and self.last == "drop":
                break
            if len(step) < whole and self.last == "pad":
                step = np.resize(np.concatenate([step, order]), whole)
            at += whole
            part = step[len(step) * rank // size : len(step) * (rank + 1) // size].tolist()
            if self._counts:
                self.position = min(at, self.rows)
            if part:
                yield part
        if self._counts:
            self.position = self.rows

    def over(self, loader: Any) -> Iterator[Any]:
        """A DataLoader's batches, counted as they are handed out, not as its workers ask for indices ahead."""
        whole = self._whole()[2]
        self._counts, begun = False, self.position if self._begun else 0
        if not self._begun and self.position >= self.rows:
            self.epoch += 1
            self.position = 0
        try:
            for n, batch in enumerate(loader, 1):
                self.position = min(begun + n * whole, self.rows)
                yield batch
            self.position = self.rows
        finally:
            self._counts = True


def _mixed(x: Any) -> Any:
    """64 bits, each of which depends on all of x's."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def pack(name: str, length: int, *, pad: Any = 0) -> Callable[[Batch], dict[str, Any]]:
    """A `transform` that makes rows of `length` tokens of a batch's ragged lists.

    Lists follow each other without gaps, and are cut where a row ends; what is left of the last row is `pad`. The batch
    then has `name`, `name.document` (which of the batch's lists a token is of, from 1; 0: none) and `name.position`
    (the token's place in its list), each `[rows, length]`.

    >>> import numpy
    >>> batch = {"tokens": hora.dataset.Ragged(numpy.arange(5), numpy.array([0, 2, 5]))}
    >>> hora.dataset.pack("tokens", 4)(batch)["tokens.document"].tolist()
    [[1, 1, 2, 2], [2, 0, 0, 0]]
    """
    if length < 1:
        raise ArgumentError(f"pack: rows of {length} tokens; give a positive number")

    def work(batch: Batch) -> dict[str, Any]:
        lists = batch[name]
        if isinstance(lists, np.ndarray) and lists.ndim == 2:
            lists = Ragged(lists.reshape(-1), np.arange(len(lists) + 1) * lists.shape[1])
        if not isinstance(lists, Ragged):
            raise ArgumentError(f"pack: {name!r} is no column of lists")
        counts = np.diff(lists.ends)
        total = int(counts.sum())
        rows = -(-total // length)
        document = np.repeat(np.arange(1, len(counts) + 1, dtype=np.int32), counts)
        position = np.arange(total, dtype=np.int32) - np.repeat(
            (lists.ends[:-1] - lists.ends[0]).astype(np.int32), counts
        )
        tokens = lists.data[lists.ends[0] : lists.ends[-1]]
        out = {}
        for key, values, fill in (
            (name, tokens, pad),
            (name + ".document", document, 0),
            (name + ".position", position, 0),
        ):
            whole = np.full(rows * length, fill, values.dtype)
            whole[:total] = values
            out[key] = whole.reshape(rows, length)
        return out

    return work
