"""Whether the ranks' parameters are what they should be, the same: a digest of 8 bytes tells, without sending them.

At an optimizer's first step a digest of all parameters goes along with what the ranks agree on anyway. With
HORA_CHECK_REPLICAS=N one of each parameter is compared there and every N steps.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from typing import Any

import torch

from .. import _abi
from ..errors import MismatchError, SettingsError

__all__ = ["asked", "compare", "judge", "numbers"]

_MOST = 1 << 62
_FOLDED = 64 << 10  # bytes from which on sums of the words are digested in place of the words


def asked() -> int:
    """HORA_CHECK_REPLICAS: compare every so many steps; 0: at the first one only, and warn."""
    text = os.environ.get("HORA_CHECK_REPLICAS") or "0"
    if not text.isdecimal():
        raise SettingsError(
            f"HORA_CHECK_REPLICAS={text!r} is no number of steps; give 1 or more, or 0 for a warning at the first step only"
        )
    return int(text)


def _feed(digest: Any, t: torch.Tensor) -> None:
    """One tensor's bits into a digest. Of a large one the sums of its rows and columns stand for them: that is as fast
    as memory is read."""
    host = t.detach().to("cpu").contiguous()
    at, n = host.data_ptr(), host.numel() * host.element_size()
    digest.update(repr((t.dtype, tuple(t.shape))).encode())
    if n >= _FOLDED:
        columns = 4096
        rows = n // (8 * columns)
        words = torch.frombuffer(_abi.view(at, rows * columns * 8, host), dtype=torch.int64).view(rows, columns)
        for sums in (words.sum(0), words.sum(1)):
            digest.update(_abi.peek(sums.data_ptr(), sums.numel() * 8))
        at, n = at + rows * columns * 8, n - rows * columns * 8
    if n:
        digest.update(_abi.peek(at, n))


def _plain(p: torch.Tensor) -> bool:
    """Whether p is a tensor of this rank's with all its values; parts of a sharded one differ as they should."""
    return type(p.data) is torch.Tensor and p.layout is torch.strided


def _pair(optimizer: Any, params: list[torch.nn.Parameter]) -> list[int]:
    """Two numbers whose maxima over the ranks tell the greatest and the smallest digest, and whose they are."""
    digest = hashlib.blake2b(digest_size=8)
    for p in params:
        if _plain(p):
            _feed(digest, p)
    ranks, rank = optimizer._group.size, optimizer._group.rank
    span = _MOST // ranks - 2
    d = int.from_bytes(digest.digest(), "little") % span + 1  # a joined rank's zeros are below all
    return [d * ranks + rank, (span + 1 - d) * ranks + rank]


def _differ(optimizer: Any, high: int, low: int) -> tuple[int, int] | None:
    """Two ranks whose digests differ."""
    ranks = optimizer._group.size
    (most, one), (least, other) = divmod(high, ranks), divmod(low, ranks)
    if most == _MOST // ranks - 1 - least:
        return None
    world = optimizer._group.ranks
    return tuple(sorted((world[one], world[other])))  # type: ignore[return-value]


def numbers(optimizer: Any) -> list[int]:
    """What the ranks take the greatest of at the first step."""
    return [*_pair(optimizer, optimizer._trainable()), optimizer._every]


def judge(optimizer: Any, greatest: list[int]) -> None:
    """Warn, or find out more where somebody asked for that."""
    high, low, optimizer._every = greatest
    if optimizer._every:
        compare(optimizer)
        return
    ranks = _differ(optimizer, high, low)
    if ranks and optimizer._group.rank == 0:
        warnings.warn(
            f"DistributedOptimizer: the parameters of rank {ranks[0]} and rank {ranks[1]} differ at the first step, and averaged gradients "
            "keep them apart; call broadcast_parameters(model.state_dict(), root_rank=0) before training (HORA_CHECK_REPLICAS=1 names "
            "the first that differs).",
            RuntimeWarning,
            stacklevel=2,
        )


def compare(optimizer: Any) -> None:
    """Compare each parameter; the first that differs is an error on every rank."""
    params = optimizer._trainable()
    mine = [n for p in params for n in _pair(optimizer, [p])]
    if not mine:
        return
    top = optimizer._greatest(mine, f"replicas.{optimizer._number}")
    for i, p in enumerate(params):
        ranks = _differ(optimizer, top[2 * i], top[2 * i + 1])
        if ranks:
            raise MismatchError(
                f"Mismatched replicas: the parameter {optimizer._names.get(p, i)} of rank {ranks[0]} and of rank {ranks[1]} differs at step "
                f"{optimizer._steps + 1} of their DistributedOptimizer; call broadcast_parameters(model.state_dict(), root_rank=0) before "
                "training, and change parameters alike on every rank."
            )
