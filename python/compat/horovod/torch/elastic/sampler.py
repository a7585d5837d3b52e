"""The sampler that goes on in mid-epoch when the number of ranks changes."""

from __future__ import annotations

from hora.torch.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
