"""A sampler that goes on where it was when the number of ranks changes in mid-epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
import torch.utils.data

from .. import comm
from ..errors import NotInitializedError

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler):
    """This rank's share of a dataset, in an order that depends on seed and epoch alone.

    Call `record_batch(i, batch_size)` after each batch and `set_epoch(e)` at the end of an epoch (not at its start). Samples
    that all ranks have processed are remembered; `reset()`, called when ranks come or go, shares out the rest.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: nothing is processed, another order."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank, and so every other, has processed a batch of that size."""
        self.processed_num += batch_size * self.num_replicas

    def record_indices(self, indices: Any) -> None:
        """The same by the samples themselves."""
        self.processed_num += len(indices) * self.num_replicas

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of a batch of this rank."""
        start = batch_idx * batch_size
        return self.indices[start : min(start + batch_size, len(self.indices))]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Share out what is left of the epoch over the ranks there are now."""
        try:
            self.num_replicas, self.rank = comm.size(), comm.rank()
        except NotInitializedError:
            self.num_replicas, self.rank = 1, 0
        n = len(self.dataset)
        if self.shuffle:
            order = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
        else:
            order = list(range(n))
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self._share()

    def _share(self) -> None:
        rest = list(self.remaining_indices)
        while rest and len(rest) < self.total_size:  # every rank gets the same number: repeat from the start
            rest += rest[: self.total_size - len(rest)]
        self.indices = rest[self.rank : self.total_size : self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.indices))

    def __len__(self) -> int:
        return self.num_samples
