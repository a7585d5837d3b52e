"""The backend's reductions, broadcast and barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from .. import _site
from ..call import Call, Kind, Op
from ..errors import HoraError
from ..group import Group
from ..handle import Handle
from ._tensor import REDUCE_OPS, code, dense
from ._work import TicketWork, failure, finished_future

__all__ = ["Reductions"]

# How many different calls are remembered.
_KEPT = 512

_STRIDED = torch.strided


def _numbers() -> Callable[[Any], int]:
    """What gives an operator's number. Torch's hash of one is that, and half a microsecond quicker than asking for
    it."""
    plain = all(hash(torch.distributed.ReduceOp(op)) == int(op) for op in REDUCE_OPS)
    return hash if plain else lambda reduce_op: int(reduce_op.op)


_number = _numbers()

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend as _Backend
else:
    _Backend = object


class Reductions(_Backend):
    """Mixed into the backend, which has `group`, `_rank`, `_go`, `_many` and `_seconds`."""

    group: Group
    _rank: int
    _patience: float
    _packed: dict[tuple, Call]
    _error: BaseException | None

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.AllreduceOptions()
        t = tensors[0]
        inline = not opts.asyncOp
        if (
            t.layout is _STRIDED
            and t.is_cpu
            and t.is_contiguous()
            and self._batch is None
            and (inline or self._patience)
        ):
            key = (t.data_ptr(), t.numel(), t.dtype, _number(opts.reduceOp), opts.timeout, inline)
            call = self._packed.get(key) or self._allreduce_of(key, t, opts)
            if call:
                self._seq += 1
                try:
                    if inline:
                        self.group.run(call, t)
                        return self._finished
                    ticket = self.group.begin(call, tensors)
                except HoraError as error:
                    self._error = error
                    raise failure(error) from error
                if ticket:
                    return TicketWork([Handle(ticket)], tensors, self._live, self._patience)
                return c10d._create_work_from_future(finished_future(tensors))
        if t.is_sparse:
            return self.allreduce_sparse(tensors, opts)
        flat = dense(t, "all_reduce")
        op, scale = self._operator(opts.reduceOp)
        finish = None if flat.data_ptr() == t.data_ptr() else lambda: t.detach().copy_(flat)
        p = flat.data_ptr()
        more = {} if scale == 1.0 else {"prescale": scale}
        return self._go(
            Kind.ALLREDUCE, op, code(flat), 0, p, p, flat.numel(), self._seconds(opts), not opts.asyncOp,
            tensors, flat, finish, **more,
        )  # fmt: skip

    def _allreduce_of(self, key: tuple, t: torch.Tensor, opts: Any) -> Call | None:
        """The call of an allreduce in place, kept for when the same memory comes again."""
        op, scale = self._operator(opts.reduceOp)
        if scale != 1.0 or _site.asked():
            return None
        if len(self._packed) >= _KEPT:
            self._packed.clear()
        p = t.data_ptr()
        budget = self._patience if opts.asyncOp else 0.0
        call = self._packed[key] = Call(
            Kind.ALLREDUCE, op, code(t), 0, p, p, t.numel(), timeout=self._seconds(opts), budget=budget
        )
        return call

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.AllreduceCoalescedOptions()
        op, scale = self._operator(opts.reduceOp)
        seconds = self._seconds(opts)
        calls: list[tuple[Call, Callable | None]] = []
        for t in tensors:
            flat = dense(t, "all_reduce_coalesced")
            p = flat.data_ptr()
            call = Call(
                Kind.ALLREDUCE, op, code(flat), 0, p, p, flat.numel(), timeout=seconds, prescale=scale, keep=(t, flat)
            )
            back = None if p == t.data_ptr() else (lambda t=t, flat=flat: t.detach().copy_(flat))
            calls.append((call, back))
        self._seq += 1
        return self._many(calls, not opts.asyncOp, list(tensors))

    def allreduce_sparse(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Gather everybody's indices and values, add what meets, put the result in place."""
        opts = opts or c10d.AllreduceOptions()
        from ._sparse import allreduce_sparse

        op, scale = self._operator(opts.reduceOp)
        self._seq += 1
        try:
            for t in tensors:
                allreduce_sparse(self.group, t, op, scale, self._seconds(opts))
        except HoraError as error:
            self._error = error
            raise failure(error) from error
        return self._finished if not opts.asyncOp else c10d._create_work_from_future(finished_future(tensors))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.ReduceOptions()
        t = tensors[0]
        flat = dense(t, "reduce")
        op, scale = self._operator(opts.reduceOp)
        mine = opts.rootRank == self._rank
        finish = (lambda: t.detach().copy_(flat)) if mine and flat.data_ptr() != t.data_ptr() else None
        p = flat.data_ptr()
        return self._go(
            Kind.REDUCE, op, code(flat), opts.rootRank, p, p if mine else 0, flat.numel(), self._seconds(opts),
            not opts.asyncOp, tensors, flat, finish, prescale=scale, recv_count=flat.numel() if mine else 0,
        )  # fmt: skip

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.BroadcastOptions()
        t = tensors[0]
        flat = dense(t, "broadcast")
        mine = opts.rootRank == self._rank
        finish = None if mine or flat.data_ptr() == t.data_ptr() else lambda: t.detach().copy_(flat)
        p = flat.data_ptr()
        return self._go(
            Kind.BROADCAST, Op.SUM, code(flat), opts.rootRank, p, p, flat.numel(), self._seconds(opts),
            not opts.asyncOp, tensors, flat, finish,
        )  # fmt: skip

    def barrier(self, opts: Any = None) -> Any:
        opts = opts or c10d.BarrierOptions()
        return self._go(
            Kind.BARRIER, Op.SUM, 2, 0, 0, 0, 0, self._seconds(opts), not getattr(opts, "asyncOp", False), []
        )

    @staticmethod
    def _operator(reduce_op: Any) -> tuple[Op, float]:
        kind = getattr(reduce_op, "op", reduce_op)
        op = REDUCE_OPS.get(kind)
        if op is not None:
            return op, 1.0
        factor = getattr(reduce_op, "factor", None)
        if isinstance(factor, (int, float)):
            return Op.SUM, float(factor)
        raise ValueError(
            f"{kind}: hora reduces with SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and PREMUL_SUM by a number"
        )
