"""Fewer bytes per gradient: 16-bit floats, 8-bit integers with error feedback, low rank.

`none`, `fp16` and `bf16` are stateless and equal to Horovod's interface (compress and decompress of one tensor);
`int8` and `powersgd` keep what they left out and add it to the next step's gradient.
"""

from __future__ import annotations

import math
from typing import Any

import torch

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "Int8",
    "NoneCompressor",
    "PowerSGD",
    "choose",
]


class Compressor:
    """Override both to send something smaller; the pair works on one tensor at a time."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """What is sent instead of the tensor, and what decompress needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The reduced tensor in the form it had before."""
        return tensor


class NoneCompressor(Compressor):
    """Sends the gradient as it is."""


class _Cast(Compressor):
    dtype: torch.dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if tensor.is_floating_point() and tensor.dtype != cls.dtype:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    """Sends 16-bit floats with 5 bits of exponent."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """Sends 16-bit floats with float32's range."""

    dtype = torch.bfloat16


class Int8:
    """8-bit integers with one scale per block; what rounding leaves out is added to the next step's gradient.

    Every rank gets all ranks' integers and adds them in rank order, so the result is equal everywhere.
    """

    def __init__(self, block: int = 1024) -> None:
        if block < 8:
            raise ValueError(f"Int8: block of {block} elements: give at least 8")
        self.block = block
        self._error: dict[int, torch.Tensor] = {}

    def reduce(self, key: int, flat: torch.Tensor, average: bool, group: Any) -> None:
        """Replace flat by the sum or average over the group; `key` says which bucket it is."""
        from ..group import DTYPES, Kind, Op
        from ._channel import Channel

        n, block = flat.numel(), self.block
        blocks = -(-n // block)
        work = torch.zeros(blocks * block, dtype=torch.float32)
        work[:n] = flat
        if (left := self._error.get(key)) is not None:
            work[:n] += left
        work = work.view(blocks, block)
        scale = work.abs().amax(dim=1).div_(127.0)
        steps = scale.clamp(min=torch.finfo(torch.float32).tiny)
        whole = torch.empty(blocks * (block + 4), dtype=torch.uint8)
        numbers = whole[: blocks * block].view(torch.int8).view(blocks, block)
        numbers.copy_(work.div(steps.unsqueeze(1)).round_().clamp_(-127, 127))
        whole[blocks * block :].view(torch.float32).copy_(steps)
        # What was infinite is not kept: a scaler skips that step, and the next one has to be clean.
        self._error[key] = (work - numbers * steps.unsqueeze(1)).view(-1)[:n].nan_to_num(0.0, 0.0, 0.0)
        size = group.size
        gathered = torch.empty(size * whole.numel(), dtype=torch.uint8)
        Channel.of(group).run(
            Kind.ALLGATHER, Op.SUM, DTYPES["uint8"], 0, whole.data_ptr(), gathered.data_ptr(), whole.numel(),
            recv_count=gathered.numel(), name=f"compression.int8.{key}", keep=(whole, gathered),
        )  # fmt: skip
        total = torch.zeros(blocks, block)
        for part in gathered.view(size, -1):
            steps_of = part[blocks * block :].clone().view(torch.float32)
            total += part[: blocks * block].view(torch.int8).view(blocks, block) * steps_of.unsqueeze(1)
        if average:
            total /= size
        flat.copy_(total.view(-1)[:n])


class PowerSGD:
    """Low rank: each matrix M is sent as P·Qᵀ with `rank` columns; the rest is added to the next step's gradient.

    Vectors, and matrices that would not get smaller, are sent as they are.
    """

    def __init__(self, rank: int = 2, start_iteration: int = 10, seed: int = 0) -> None:
        if rank < 1:
            raise ValueError(f"PowerSGD: rank {rank}: give at least 1")
        self.rank = rank
        self.start_iteration = start_iteration
        self.seed = seed
        self._steps: dict[int, int] = {}
        self._q: dict[tuple[int, int], torch.Tensor] = {}
        self._error: dict[tuple[int, int], torch.Tensor] = {}

    def _low_rank(self, view: torch.Tensor) -> bool:
        if view.dim() < 2:
            return False
        n, m = view.shape[0], view.numel() // max(1, view.shape[0])
        return (n + m) * self.rank < n * m

    def reduce(self, key: int, flat: torch.Tensor, average: bool, group: Any, views: list[torch.Tensor]) -> None:
        """Replace the bucket, seen as `views`, by the (approximate) sum or average over the group."""
        step = self._steps[key] = self._steps.get(key, 0) + 1
        if step <= self.start_iteration:
            _sum(group, flat, average, f"compression.powersgd.{key}.warmup")
            return
        matrices: list[tuple[int, torch.Tensor]] = []
        rest: list[tuple[int, torch.Tensor]] = []
        for i, v in enumerate(views):
            (matrices if self._low_rank(v) else rest).append((i, v))
        plain = torch.cat([v.reshape(-1) for _, v in rest]) if rest else None
        ps, forms = [], []
        for i, v in matrices:
            m = v.reshape(v.shape[0], -1).float()
            if (left := self._error.get((key, i))) is not None:
                m = m + left
            q = self._q.get((key, i))
            if q is None:
                generator = torch.Generator().manual_seed(self.seed + i)
                q = torch.linalg.qr(torch.randn(m.shape[1], self.rank, generator=generator))[0].to(m.device)
            forms.append((i, v, m))
            ps.append(m @ q)
        if ps:
            packed = _sum_list(group, ps, average, f"compression.powersgd.{key}.p")
            ps = [torch.linalg.qr(p)[0] for p in packed]
            qs = [m.t() @ p for (_, _, m), p in zip(forms, ps, strict=True)]
            qs = _sum_list(group, qs, average, f"compression.powersgd.{key}.q")
            for (i, v, m), p, q in zip(forms, ps, qs, strict=True):
                near = p @ q.t()
                v.copy_(near.view(v.shape))
                if not math.isfinite(near.sum().item()):  # a scaler skips that step, and the next one has to be clean
                    self._q.pop((key, i), None)
                    self._error.pop((key, i), None)
                    continue
                self._q[(key, i)] = torch.linalg.qr(q)[0]
                # What this rank's own gradient loses: its projection was sent, the rest was not.
                self._error[(key, i)] = m - p @ (p.t() @ m)
        if plain is not None:
            _sum(group, plain, average, f"compression.powersgd.{key}.rest")
            at = 0
            for _, v in rest:
                v.copy_(plain[at : at + v.numel()].view(v.shape))
                at += v.numel()


def _sum(group: Any, t: torch.Tensor, average: bool, name: str) -> None:
    from ..group import Kind, Op
    from ._channel import Channel
    from ._tensor import code

    host = t if t.device.type == "cpu" else t.cpu()
    p = host.data_ptr()
    Channel.of(group).run(
        Kind.ALLREDUCE, Op.AVERAGE if average else Op.SUM, code(t), 0, p, p, t.numel(), name=name, keep=host
    )
    if host is not t:
        t.copy_(host)


def _sum_list(group: Any, parts: list[torch.Tensor], average: bool, name: str) -> list[torch.Tensor]:
    whole = torch.cat([p.reshape(-1) for p in parts])
    _sum(group, whole, average, name)
    out, at = [], 0
    for p in parts:
        out.append(whole[at : at + p.numel()].view(p.shape))
        at += p.numel()
    return out


class Compression:
    """The choices for `DistributedOptimizer(compression=…)`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8
    powersgd = PowerSGD


def choose(compression: Any) -> Any:
    """What `compression=` means: a choice, its name, or an object of the program's own with compress and decompress."""
    names = [n for n in vars(Compression) if not n.startswith("_")]
    given = compression
    if compression is None:
        compression = NoneCompressor
    elif isinstance(compression, str) and compression in names:
        compression = getattr(Compression, compression)
    if isinstance(compression, type) and issubclass(compression, (Int8, PowerSGD)):
        return compression()
    if isinstance(compression, (Int8, PowerSGD)) or all(
        callable(getattr(compression, n, None)) for n in ("compress", "decompress")
    ):
        return compression
    raise ValueError(
        f"compression={given!r}: give one of {', '.join(repr(n) for n in names)}, the same from Compression, or an object with "
        "compress(tensor) and decompress(tensor, ctx)"
    )
