"""The torch.distributed backend "hora".

A blocking collective runs on the caller's thread. An asynchronous one is handed to the group's worker and returns a
Work; where this rank has no core to spare, asking that Work for its future waits a moment first, because a hand-over
to a waiting thread costs more than most collectives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import _lib
from ..errors import HoraError
from ..group import Group, Kind, Op, _pack
from ..handle import Handle
from . import _gpu, _start
from ._tensor import REDUCE_OPS, code, dense
from ._verbs import Verbs
from ._work import TicketWork, failure, finished_future

__all__ = ["HoraBackend", "create", "register"]

# Backends in use. torch's C++ side may be all that holds one, and does not keep its Python half alive.
_alive: set[Any] = set()

# How long get_future may wait, in seconds, when this rank has one core only.
_PATIENCE = 0.002

# How many different calls are remembered in packed form.
_PACKED = 512

_STRIDED = torch.strided


def _base() -> type:
    """The class that this torch lets a Python backend derive from."""

    class Probe(c10d.Backend):
        pass

    try:
        Probe(0, 1)
        return c10d.Backend
    except (AttributeError, TypeError):
        return dist.ProcessGroup


_BASE = _base()
IS_BACKEND = _BASE is not dist.ProcessGroup


def _patience() -> float:
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    from .. import comm

    return _PATIENCE if cores < 2 * max(1, comm.local_size()) and cores < (os.cpu_count() or 1) * 2 else 0.0


class HoraBackend(Verbs, _BASE):
    """One torch process group on one hora group."""

    def __init__(self, group: Group, rank: int, size: int, timeout: timedelta | None, name: str, owner: Any = None) -> None:
        super().__init__(rank, size)
        self.group = group
        self._rank = rank
        self._size = size
        self._name = name
        self._timeout = timeout.total_seconds() if timeout is not None else None
        self._extra = 0.0  # _add_ephemeral_timeout
        self._owner = owner  # keeps a world that this backend started; closed with it
        self._seq = 0
        self._splits = 0
        self._live: set[Any] = set()
        self._gpus: dict[int, Any] = {}  # by device, made at the first tensor there
        self._tokens: dict[int, Handle] = {}
        self._batch: list[tuple[dict, Callable | None, Any]] | None = None
        self._error: BaseException | None = None
        self._patience = _patience()
        # What a blocking call returns: nothing where torch allows that, else one Work that has ended.
        self._finished = None if IS_BACKEND else c10d._create_work_from_future(finished_future(None))
        self._packed: dict[tuple, bytes] = {}
        _alive.add(self)
        if IS_BACKEND:
            self._options = c10d.Backend.Options("hora", timeout or timedelta(minutes=30))

    # -- running an operation

    def _seconds(self, opts: Any) -> float | None:
        """The operation's own deadline, else the group's."""
        own = opts.timeout
        if own is not None and own > _ZERO:
            return own.total_seconds() + self._extra
        return None if self._timeout is None else self._timeout + self._extra

    def _go(
        self,
        kind: Kind,
        op: Op,
        dtype: int,
        root: int,
        send: int,
        recv: int,
        count: int,
        seconds: float | None,
        wait: bool,
        value: Any,
        keep: Any = None,
        finish: Callable[[], None] | None = None,
        **more: Any,
    ) -> Any:
        """Run or start one operation; `finish` copies results to where torch wants them."""
        self._seq += 1
        if self._batch is not None:
            call = dict(kind=kind, op=op, dtype=dtype, root=root, send=send, recv=recv, count=count, timeout=seconds, **more)
            self._batch.append((call, finish, (keep, value)))
            return None
        device = _gpu.device_of(keep)
        if device is not None:
            call = dict(kind=kind, op=op, dtype=dtype, root=root, send=send, recv=recv, count=count, timeout=seconds, **more)
            return _gpu.go(self, device, [call], wait, value, keep, finish)
        try:
            if wait:
                self.group.run(kind, op, dtype, root, send, recv, count, timeout=seconds, **more)
                if finish is not None:
                    finish()
                return self._finished
            if self._patience and kind < Kind.SEND:
                ticket = self.group.begin(kind, op, dtype, root, send, recv, count, timeout=seconds, budget=self._patience, **more)
                if not ticket:
                    if finish is not None:
                        finish()
                    return c10d._create_work_from_future(finished_future(value))
            else:
                ticket = self.group.submit(kind, op, dtype, root, send, recv, count, timeout=seconds, **more)
        except HoraError as error:
            self._error = error
            raise failure(error) from error
        after = None if finish is None else lambda _: finish()
        return TicketWork([Handle(ticket, after, (keep, value))], value, self._live, self._patience)

    def _many(self, calls: list[tuple[dict, Callable | None, Any]], wait: bool, value: Any) -> Any:
        """Start several operations as one submission."""
        if not calls:
            return self._finished if wait else c10d._create_work_from_future(finished_future(value))
        device = _gpu.device_of([keep for _, _, keep in calls])
        if device is not None:
            return _gpu.many(self, device, calls, wait, value)
        try:
            tickets = self.group.submit_many([c for c, _, _ in calls])
        except HoraError as error:
            self._error = error
            raise failure(error) from error
        handles = []
        for ticket, (_, finish, keep) in zip(tickets, calls, strict=True):
            handles.append(Handle(ticket, None if finish is None else (lambda _, f=finish: f()), keep))
        work = TicketWork(handles, value, self._live, self._patience)
        if wait:
            work.wait()
            return self._finished
        return work

    # -- reductions

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.AllreduceOptions()
        t = tensors[0]
        inline = not opts.asyncOp
        if t.layout is _STRIDED and t.is_cpu and t.is_contiguous() and self._batch is None and (inline or self._patience):
            key = (t.data_ptr(), t.numel(), t.dtype, int(opts.reduceOp.op), opts.timeout, inline)
            packed = self._packed.get(key) or self._pack_allreduce(key, t, opts)
            if packed:
                self._seq += 1
                try:
                    if inline:
                        _lib.run(self.group.handle, packed, t)
                        return self._finished
                    ticket = _lib.begin(self.group.handle, packed, t)
                except HoraError as error:
                    self._error = error
                    raise failure(error) from error
                if ticket:
                    return TicketWork([Handle(ticket, None, tensors)], tensors, self._live, self._patience)
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

    def _pack_allreduce(self, key: tuple, t: torch.Tensor, opts: Any) -> bytes | None:
        """The arguments of an allreduce in place, kept for when the same memory comes again."""
        op, scale = self._operator(opts.reduceOp)
        if scale != 1.0:
            return None
        if len(self._packed) >= _PACKED:
            self._packed.clear()
        p, n = t.data_ptr(), t.numel()
        budget = self._patience if opts.asyncOp else 0.0
        packed, _ = _pack(
            Kind.ALLREDUCE, op, code(t), 0, p, p, n, n, 1.0, 1.0, None, None, None, self._seconds(opts), 0, 0, 0, None, 0, budget
        )
        self._packed[key] = packed
        return packed

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.AllreduceCoalescedOptions()
        op, scale = self._operator(opts.reduceOp)
        seconds = self._seconds(opts)
        calls: list[tuple[dict, Callable | None, Any]] = []
        for t in tensors:
            flat = dense(t, "all_reduce_coalesced")
            p = flat.data_ptr()
            call = {
                "kind": Kind.ALLREDUCE,
                "op": op,
                "dtype": code(flat),
                "send": p,
                "recv": p,
                "count": flat.numel(),
                "timeout": seconds,
                "prescale": scale,
            }
            back = None if p == t.data_ptr() else (lambda t=t, flat=flat: t.detach().copy_(flat))
            calls.append((call, back, (t, flat)))
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
        return self._go(Kind.BARRIER, Op.SUM, 2, 0, 0, 0, 0, self._seconds(opts), not getattr(opts, "asyncOp", False), [])

    @staticmethod
    def _operator(reduce_op: Any) -> tuple[Op, float]:
        kind = getattr(reduce_op, "op", reduce_op)
        op = REDUCE_OPS.get(kind)
        if op is not None:
            return op, 1.0
        factor = getattr(reduce_op, "factor", None)
        if isinstance(factor, (int, float)):
            return Op.SUM, float(factor)
        raise ValueError(f"{kind}: hora reduces with SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and PREMUL_SUM by a number")

    # -- what torch asks about a backend; inherited ones end in endless recursion through torch's C++ side

    supports_splitting = property(lambda self: True)
    supports_coalescing = property(lambda self: True)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: False)
    supports_completion_hooks = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)
    options = property(lambda self: self._options)

    def getBackendName(self) -> str:
        return "hora"

    def name(self) -> str:
        return "hora"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def _set_sequence_number_for_group(self) -> None:
        self._seq = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._seq

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        self._packed.clear()
        self._timeout = timeout.total_seconds()

    def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
        self._packed.clear()
        self._extra += timeout.total_seconds()

    def get_error(self) -> Any:
        return c10d.ErrorType.SUCCESS if self._error is None else c10d.ErrorType.COMM_ERROR

    def _wait_for_pending_works(self) -> None:
        for work in list(self._live):
            work.wait()

    # -- the end of a group

    def abort(self) -> None:
        _gpu.close(self)
        self.group.abort(f"torch.distributed group {self._name!r} was aborted on rank {self._rank}")

    def shutdown(self) -> None:
        """destroy_process_group: what is in flight ends first, so that no buffer is freed under it."""
        for work in list(self._live):
            try:
                work.wait()
            except (RuntimeError, ValueError):
                pass  # already reported to whoever waited, or to nobody who cares
        self._live.clear()
        _gpu.close(self)
        _alive.discard(self)
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    # -- torch 2.8 and older ask a ProcessGroup for these

    @property
    def pg_name(self) -> str:
        return self._name

    def getSize(self) -> int:
        return self._size

    def getRank(self) -> int:
        return self._rank

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> HoraBackend | None:
        """A group of some of this group's ranks; every rank of this group calls it, members get a backend."""
        self._splits += 1
        if self._rank not in ranks:
            return None
        members = [self.group.ranks[r] for r in ranks]
        name = getattr(opts, "group_name", "") or f"{self._name}/split{self._splits}"
        timeout = getattr(opts, "_timeout", None)
        group = Group(members, tag=f"torch/{name}")
        made = HoraBackend(group, list(ranks).index(self._rank), len(ranks), timeout, name, _start.Owned(group))
        made._options.global_ranks_in_group = members
        made._options.group_name = name
        return made


_ZERO = timedelta(0)


def create(opts: Any, backend_options: Any = None) -> HoraBackend | None:
    """What torch calls, on every member, for init_process_group and new_group."""
    group, owner, name = _start.group_for(opts)
    return HoraBackend(group, opts.group_rank, opts.group_size, opts.timeout, name, owner)


def register() -> None:
    """Tell torch about the backend; calling it again does nothing."""
    if "HORA" in dist.Backend._plugins:
        return
    dist.Backend.register_backend("hora", create, extended_api=True, devices=["cpu", "cuda"])
    from ._dynamo import skip

    skip(HoraBackend, Verbs, TicketWork)
