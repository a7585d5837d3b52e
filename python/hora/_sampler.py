"""The order of samples: a function of seed, epoch and position, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import comm
from .errors import ArgumentError

_WORD = (1 << 64) - 1
_ROUNDS = 4


def _mix(x: int) -> int:
    """A 64-bit hash: splitmix64's."""
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


class Order(Sequence[int]):
    """A permutation of range(n) that takes no memory: four Feistel rounds, again until the result is below n."""

    __slots__ = ("half", "keys", "mask", "n")

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        self.n = n
        self.half = max(1, (max(n, 2) - 1).bit_length() + 1 >> 1)
        self.mask = (1 << self.half) - 1
        key = _mix(_mix(seed & _WORD) ^ (epoch & _WORD))
        self.keys = [_mix(key + r) for r in range(_ROUNDS)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: Any) -> Any:
        half, mask = self.half, self.mask
        while True:
            left, right = i >> half, i & mask
            for key in self.keys:
                left, right = right, left ^ (_mix(key ^ right) & mask)
            i = left << half | right
            if i < self.n:
                return i


class ElasticSampler:
    """Which samples this rank takes, in an order that does not depend on how many ranks there are.

    `length` is the number of samples, or anything with a length. Every epoch has an order of its own, made of `seed`
    and the epoch. Ranks take turns: rank r of n takes every n-th sample of what is left. When the world changes in the
    middle of an epoch, the ranks that are there then share what is left: give the sampler to the `State`, call
    `record(n)` after a step on n samples of this rank, then `commit()`.

    All ranks get equally many: the last turn goes on at the beginning of the order where samples run out. It is a
    torch sampler too: `DataLoader(data, batch_size=32, sampler=sampler)`.

    >>> sampler = hora.elastic.ElasticSampler(10, seed=1)
    >>> mine = []
    >>> for i in sampler:
    ...     mine.append(i)              # a step on sample i
    ...     sampler.record(1)
    >>> len(mine), len(set(sum(hora.allgather_object(mine), [])))
    (5, 10)
    """

    def __init__(self, length: Any, *, shuffle: bool = True, seed: int = 0) -> None:
        self.length = length if isinstance(length, int) else len(length)
        if self.length < 0:
            raise ArgumentError(f"make sampler: the number of samples is {self.length}; it cannot be negative")
        self.shuffle, self.seed = shuffle, seed
        self.epoch = 0
        self.done = 0  # samples of this epoch that all ranks together have taken and recorded

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: another order, nothing of it taken yet. Call it when the epoch before has ended."""
        self.epoch, self.done = epoch, 0
        self.reset()

    def record(self, n: int) -> None:
        """This rank, and every other, has trained on the next n of its samples."""
        self.done = min(self.length, self.done + n * self._place()[1])

    def reset(self) -> None:
        """The ranks are others: nothing to do here, where what is left is shared out whenever it is asked for."""

    def _place(self) -> tuple[int, int]:
        """Among which ranks the samples are shared: this one, and how many there are."""
        return comm.rank(), comm.size()

    def __len__(self) -> int:
        return -(-(self.length - self.done) // self._place()[1])

    def __iter__(self) -> Iterator[int]:
        return self.share(*self._place())

    def order(self) -> Sequence[int]:
        """All samples in this epoch's order."""
        return Order(self.length, self.seed, self.epoch) if self.shuffle else range(self.length)

    def share(self, rank: int, size: int) -> Iterator[int]:
        """What rank `rank` of `size` takes of what is left."""
        order = self.order()
        begin, left = self.done, self.length - self.done
        for turn in range(-(-left // size)):
            yield order[(begin + turn * size + rank) % self.length]

    def state_dict(self) -> dict[str, int]:
        """Where the sampler stands, for `State` and checkpoints."""
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to where a sampler of the same samples and seed stood."""
        self.epoch, self.done = state["epoch"], state["done"] if "done" in state else state["processed_num"]
        self.reset()

    # -- other names of the same: Horovod's

    indices = share

    @property
    def processed_num(self) -> int:
        """`done`."""
        return self.done

    @processed_num.setter
    def processed_num(self, n: int) -> None:
        self.done = n

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """`record(batch_size)`."""
        self.record(batch_size)

    def record_indices(self, indices: Any) -> None:
        """`record`, by the samples themselves."""
        self.record(len(indices))
