"""Gradients that do not lie in a bucket: sparse ones, and those of a compressor of the user's own."""

from __future__ import annotations

from typing import Any

import torch

from ..group import Kind, Op
from ._channel import Channel
from ._sparse import gather_rows
from ._tensor import code

__all__ = ["reduce_custom", "reduce_sparse"]


def _as_sparse(p: torch.nn.Parameter) -> torch.Tensor:
    """p's gradient in coalesced form and host memory; a missing one is empty, a dense one is converted."""
    g = p.grad
    if g is None:
        values = torch.empty((0, *p.shape[1:]), dtype=p.dtype)
        return torch.sparse_coo_tensor(
            torch.empty((1, 0), dtype=torch.int64), values, p.shape, check_invariants=False
        ).coalesce()
    return (g if g.is_sparse else g.to_sparse(1)).detach().cpu().coalesce()


def reduce_sparse(
    channel: Channel, params: list[torch.nn.Parameter], op: Op, prescale: float, postscale: float
) -> None:
    """Add up sparse gradients over the group; `.grad` becomes the coalesced result."""
    if not params:
        return
    grads = [_as_sparse(p) for p in params]
    mine = torch.tensor([g.indices().shape[1] for g in grads], dtype=torch.int64)
    counts = torch.empty((channel.size, len(grads)), dtype=torch.int64)
    channel.run(
        Kind.ALLGATHER, Op.SUM, code(mine), 0, mine.data_ptr(), counts.data_ptr(), len(grads),
        recv_count=counts.numel(),
        name="DistributedOptimizer.sparse.counts", keep=(mine, counts),
    )  # fmt: skip
    factor = prescale * postscale / (channel.size if op is Op.AVERAGE else 1)
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        rows = counts[:, i].tolist()
        indices = gather_rows(
            channel, g.indices().t().contiguous(), rows, name=f"DistributedOptimizer.sparse.{i}.indices"
        )
        values = gather_rows(channel, g.values(), rows, name=f"DistributedOptimizer.sparse.{i}.values")
        if factor != 1.0:
            values = values * factor
        p.grad = torch.sparse_coo_tensor(indices.t(), values, p.shape, check_invariants=False).coalesce().to(p.device)


def reduce_custom(
    channel: Channel,
    params: list[torch.nn.Parameter],
    compression: Any,
    op: Op,
    prescale: float,
    postscale: float,
    prefix: str,
    names: dict,
) -> None:
    """Compress, reduce and decompress each gradient by itself."""
    sent = []
    for p in params:
        g = p.grad if p.grad is not None else torch.zeros_like(p)
        small, ctx = compression.compress(g.to_dense() if g.is_sparse else g)
        host = small.detach().to("cpu", copy=True).contiguous()
        ticket = channel.start(host, op, prescale, postscale, f"{prefix}{names.get(p, id(p))}")
        sent.append((p, host, small.device, ctx, ticket))
    error: BaseException | None = None
    for p, host, device, ctx, ticket in sent:
        try:
            channel.group.wait(ticket)
            p.grad = None
            p.grad = compression.decompress(host.to(device), ctx).view(p.shape)
        except RuntimeError as e:
            error = error or e
        finally:
            channel.group.release(ticket)
    if error is not None:
        raise error
