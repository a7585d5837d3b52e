"""The buckets of DistributedOptimizer: made at the first reduction, reduced at each, made anew when something has
moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _world
from ..call import Kind, Op
from ..errors import ArgumentError
from ..gradients import agree, check_buckets, label, split
from ..group import Group
from . import _arena, _replicas
from ._tensor import code
from ._watching import Watching
from .buckets import Bucket, assign, finish
from .compression import Compression, Int8, PowerSGD, _Cast

__all__ = ["Placing"]


class Placing(Watching):
    """Knows for each gradient how it is reduced."""

    _group: Group
    _compression: Any
    _op: Op
    _wire_op: Op
    _scales: tuple[float, float]
    _groups: Sequence[Sequence[torch.nn.Parameter]] | None
    _num_groups: int
    _bucket_bytes: int
    _number: int  # tells this optimizer's gradients from those of others; agreed on at the first reduction
    _frozen: list[torch.nn.Parameter]
    _sparse: list[torch.nn.Parameter]
    _custom: list[torch.nn.Parameter]
    _cut: str
    _every: int
    _spread: bool  # large gradients are reduced where they lie, on every rank
    _steps: int

    def _open(self) -> None:
        """At the first reduction: agree on what is sparse, take memory, make the plans. Every rank does so."""
        self._sparse, self._custom = [], []
        self._place(self._trainable(), [])

    def _place(self, params: list[torch.nn.Parameter], buckets: list[Any], why: str = "parameters") -> None:
        """Say for each of these how its gradient is reduced, beside those that are in buckets. What fails changes
        nothing."""
        sparse, bucket_bytes = self._agree(params, why)
        rest = [p for p in params if id(p) not in sparse]
        custom: list[torch.nn.Parameter] = []
        compression = self._compression
        stateless = compression is Compression.none or (
            isinstance(compression, type) and issubclass(compression, _Cast)
        )
        if not stateless and not isinstance(compression, (Int8, PowerSGD)):
            custom, rest = rest, []
        dtype = compression.dtype if isinstance(compression, type) and issubclass(compression, _Cast) else None
        groups = self._groups
        if groups is None and self._num_groups > 0:
            groups = split(rest, self._num_groups)
        layout = assign(rest, groups, bucket_bytes)
        if self._spread:
            layout = _arena.spread(layout)
            _arena.share(self._channel)
        place = {p: i for i, members in enumerate(layout, 1) for p in members}
        check_buckets(
            self._greatest, self._group, [place.get(p, 0) for p in params], lambda i: self._names.get(params[i], i)
        )
        made: list[Any] = []
        self._prefix = f"gradient.{self._number}/" if self._number else "gradient."
        for i, members in enumerate(layout, len(buckets)):
            name = label(self._names.get(members[0], i), len(members), self._prefix)
            bucket: Bucket | _arena.Scattered
            if self._spread and _arena.fits(members[0]):
                bucket = _arena.Scattered(i, members[0], name)
                bucket.open(self._channel, self._wire_op, *self._scales)
            else:
                bucket = Bucket(i, members, name)
                bucket.open(self._channel, self._wire_op, *self._scales, dtype)
            if len(members) > 1:
                _world.parts(bucket.name, [self._names[p] for p in members if p in self._names])
            made.append(bucket)
        self._buckets = [*buckets, *made]
        self._sparse += [p for p in params if id(p) in sparse]
        self._custom += custom
        if not isinstance(compression, (Int8, PowerSGD)):
            self._home.update((p, bucket) for bucket in made for p in bucket.params)
        self._frozen = [p for g in self.param_groups for p in g["params"] if not p.requires_grad]
        self._watch()

    def _agree(self, params: list[torch.nn.Parameter], why: str) -> tuple[set[int], int]:
        """The parameters (ids) whose gradient is sparse on some rank, and the size of buckets that is the smallest on
        any."""
        sparse = [p.grad is not None and p.grad.is_sparse for p in params]
        first = _replicas.numbers(self) if why == "parameters" else []
        apart = self._compression is not Compression.none or not _arena.open_arena()
        terms = agree(self._greatest, self._group, sparse, self._bucket_bytes, self._number, why, [int(apart), *first])
        self._number = terms.number
        self._spread = not terms.more[0]
        if first:
            _replicas.judge(self, terms.more[1:])
        found = {p for p, s in zip(params, terms.sparse, strict=True) if s}
        if self._sparse_as_dense:
            self._thin |= found
            found = set()
        return set(map(id, found)), terms.bucket_bytes

    def _greatest(self, numbers: list[int], of: str) -> list[int]:
        """Each number's maximum over the ranks."""
        t = torch.tensor(numbers, dtype=torch.int64)
        at = t.data_ptr()
        self._channel.run(
            Kind.ALLREDUCE, Op.MAX, code(t), 0, at, at, len(numbers), name=f"DistributedOptimizer.{of}", keep=t
        )
        return t.tolist()

    def _reduce(self) -> None:
        if self._sparse_as_dense:
            self._thin.update(p for p in self._home if p.grad is not None and p.grad.is_sparse)
        if self._buckets is None or self._stale():
            self._open()
        elif thawed := [p for p in self._frozen if p.requires_grad]:
            self._place(
                thawed, self._buckets, f"now trained: {self._names.get(thawed[0])}"
            )  # the others stay where they are: a backward pass may have started them
        elif self._every and self._steps % self._every == 0:
            _replicas.compare(self)
        self._steps += 1
        compression = self._compression
        if isinstance(compression, (Int8, PowerSGD)):
            self._reduce_lossy(compression)
        elif self._overlap:
            self._finish_buckets()
        else:
            for bucket in self._buckets:
                bucket.collect()
                bucket.reduce()
        if self._sparse or self._custom:
            from . import _rare

            _rare.reduce_sparse(self._channel, self._sparse, self._wire_op, *self._scales)
            _rare.reduce_custom(
                self._channel, self._custom, compression, self._wire_op, *self._scales, self._prefix, self._names
            )
        for p in self._thin:  # as SparseAdam wants it
            if (g := p.grad) is not None and not g.is_sparse:
                p.grad = None
                p.grad = g.to_sparse(1) if g.dim() else g

    def _finish_buckets(self) -> None:
        self._submit_ready(wait_for_all=True)
        self._next = 0
        for bucket in self._buckets:
            bucket.left = len(bucket.params)
        self._count.collected()
        finish(self._buckets, self._channel)

    def _reduce_lossy(self, compression: Int8 | PowerSGD) -> None:
        average = self._op is Op.AVERAGE
        for bucket in self._buckets:
            bucket.collect()
            if isinstance(compression, Int8):
                compression.reduce(bucket.key, bucket.flat, average, self._channel)
                for gap in bucket.gaps:  # an infinite gradient reaches its whole block
                    gap.zero_()
            else:
                compression.reduce(bucket.key, bucket.flat, average, self._channel, bucket.views)

    def _stale(self) -> bool:
        """Whether parameters have another type or place than their buckets; the next reduction makes new ones, on every
        rank."""
        if not any(bucket.stale() for bucket in self._buckets or ()):
            return False
        sent, self._next = self._next, 0
        for bucket in self._buckets:
            try:
                bucket.finish(self._channel)
            finally:
                bucket.close()
        self._buckets, self._home = None, {}
        if sent:
            raise ArgumentError(
                "step: parameters or gradients were moved or converted while gradients were on their way to the other ranks; "
                "call model.to() and the like before backward() or after step()"
            )
        return True

    def _release(self) -> None:
        """Give back hooks and plans."""
        self._unwatch()
        for bucket in self._buckets or ():
            bucket.close()

    def _give_up(self, error: BaseException) -> None:
        """Gradients may be on their way for a while: leave them that memory, and this rank does not know what the
        others do now."""
        self._cut = f"{type(error).__name__}{f' ({error})' if str(error) else ''}"
        buckets, self._buckets, self._home, self._next = self._buckets or [], None, {}, 0
        for bucket in buckets:
            for p in bucket.params:
                p.grad = None
            bucket.close()
        self._watch()
