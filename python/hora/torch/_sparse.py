"""Sums of sparse (COO) tensors: indices and values are gathered, what meets is added."""

from __future__ import annotations

import torch

from ..call import Kind, Op
from ..group import Group
from ._channel import Channel
from ._tensor import code

__all__ = ["allreduce_sparse", "gather_rows"]


def gather_rows(
    channel: Channel, t: torch.Tensor, counts: list[int], seconds: float | None = None, name: str | None = None
) -> torch.Tensor:
    """All ranks' rows of t, in rank order, when everybody's number of rows is known."""
    t = t.contiguous()
    row = t[0].numel() if t.shape[0] else _row_elements(t)
    out = torch.empty((sum(counts), *t.shape[1:]), dtype=t.dtype)
    channel.run(
        Kind.ALLGATHER, Op.SUM, code(t), 0, t.data_ptr(), out.data_ptr(), t.numel(),
        recv_count=out.numel(), recv_counts=[c * row for c in counts], timeout=seconds, name=name, keep=(t, out),
    )  # fmt: skip
    return out


def _row_elements(t: torch.Tensor) -> int:
    n = 1
    for d in t.shape[1:]:
        n *= d
    return n


def row_counts(channel: Channel, n: int, seconds: float | None = None) -> list[int]:
    """Everybody's n."""
    mine = torch.tensor([n], dtype=torch.int64)
    out = torch.empty(channel.size, dtype=torch.int64)
    channel.run(
        Kind.ALLGATHER, Op.SUM, code(mine), 0, mine.data_ptr(), out.data_ptr(), 1, recv_count=channel.size,
        timeout=seconds,
        keep=(mine, out),
    )  # fmt: skip
    return out.tolist()


def allreduce_sparse(
    group: Group, t: torch.Tensor, op: Op, scale: float = 1.0, seconds: float | None = None
) -> torch.Tensor:
    """Sum or average t over the group, in place; the result is coalesced and equal on all ranks."""
    if op not in (Op.SUM, Op.AVERAGE):
        raise ValueError(
            f"all_reduce of a sparse tensor: {op.name} is not offered; use SUM or AVG, or call .to_dense() first"
        )
    own = t.detach().cpu().coalesce()  # of a GPU's too: sparse sums pass through host memory
    indices = own.indices().t().contiguous()
    values = own.values()
    if scale != 1.0:
        values = values * scale
    channel = Channel.of(group)
    counts = row_counts(channel, indices.shape[0], seconds)
    everywhere = gather_rows(channel, indices, counts, seconds)
    all_values = gather_rows(channel, values, counts, seconds)
    if op is Op.AVERAGE:
        all_values = all_values / group.size
    total = torch.sparse_coo_tensor(
        everywhere.t(), all_values, t.shape, dtype=t.dtype, check_invariants=False
    ).coalesce()
    with torch.no_grad():
        t.copy_(total.to(t.device))  # not into t.detach(): indices of another number would stay behind
    return total
