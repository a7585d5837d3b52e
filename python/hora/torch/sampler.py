"""hora's elastic sampler with torch's order, as Horovod's programs know it: ranks share out the rest where `reset()` is
called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

import torch
import torch.utils.data

from .._sampler import ElasticSampler as _ElasticSampler
from ..errors import NotInitializedError

__all__ = ["ElasticSampler"]


class ElasticSampler(_ElasticSampler, torch.utils.data.Sampler):
    """This rank's share of a dataset, in an order that depends on seed and epoch alone: that of `torch.randperm`.

    Call `record_batch(i, batch_size)`, or `record(n)`, after each batch and `set_epoch(e)` at the end of an epoch (not
    at its start). Samples that all ranks have processed are remembered; `reset()`, called when ranks come or go, shares
    out the rest. Until then `indices`, this rank's, stay as they are.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.num_replicas, self.rank = 0, 0
        self.dataset = dataset
        super().__init__(dataset, shuffle=shuffle, seed=seed)
        self.reset()

    def reset(self) -> None:
        """Share out what is left of the epoch over the ranks there are now."""
        try:
            self.rank, self.num_replicas = super()._place()
        except NotInitializedError:
            self.num_replicas, self.rank = 1, 0
        self.length = len(self.dataset)
        self.remaining_indices = list(self.order()[self.done :])
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = list(self.share(self.rank, self.num_replicas))  # type: ignore[assignment, method-assign]

    def _place(self) -> tuple[int, int]:
        return self.rank, self.num_replicas

    def order(self) -> Sequence[int]:
        if not self.shuffle:
            return range(self.length)
        return torch.randperm(self.length, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()

    def share(self, rank: int, size: int) -> Iterator[int]:
        rest = self.remaining_indices
        for at in range(
            rank, self.total_size, size
        ):  # every rank gets the same number: what is left is repeated from its start
            yield rest[at % len(rest)]

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.indices))  # type: ignore[call-overload]

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of a batch of this rank."""
        start = batch_idx * batch_size
        return list(self.indices[start : start + batch_size])  # type: ignore[index]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.done}
