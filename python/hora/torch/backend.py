"""The torch.distributed backend "hora".

A blocking collective runs on the caller's thread. An asynchronous one is handed to the group's worker and returns a
Work; where this rank has no core to spare, asking that Work for its future waits a moment first, because a hand-over
to a waiting thread costs more than most collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ..call import Call, Kind, Op
from ..errors import HoraError
from ..group import Group
from ..handle import Handle
from . import _gpu, _profile, _start
from ._cores import free_core
from ._messages import Messages
from ._reductions import Reductions
from ._verbs import Verbs
from ._work import TicketWork, failure, finished_future, teach

__all__ = ["HoraBackend", "create", "register"]

# Backends in use. torch's C++ side may be all that holds one, and does not keep its Python half alive.
_alive: set[Any] = set()

# How long get_future may wait, in seconds, when this rank has one core only.
_PATIENCE = 0.002


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


class HoraBackend(Reductions, Verbs, Messages, _BASE):  # type: ignore[misc, valid-type]
    """One torch process group on one hora group."""

    def __init__(
        self, group: Group, rank: int, size: int, timeout: timedelta | None, name: str, owner: Any = None
    ) -> None:
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
        self._batch: list[tuple[Call, Callable | None]] | None = None
        self._error: BaseException | None = None
        self._patience = 0.0 if free_core() else _PATIENCE
        # What a blocking call returns: nothing where torch allows that, else one Work that has ended.
        self._finished = None if IS_BACKEND else c10d._create_work_from_future(finished_future(None))
        self._packed: dict[tuple, Call] = {}  # calls that may come again
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
        self, kind: Kind, op: Op, dtype: int, root: int, send: int, recv: int, count: int, seconds: float | None,
        wait: bool,
        value: Any, keep: Any = None, finish: Callable[[], None] | None = None, **more: Any,
    ) -> Any:  # fmt: skip
        """Run or start one operation; `finish` copies results to where torch wants them."""
        budget = 0.0 if wait else self._patience
        call = Call(
            kind, op, dtype, root, send, recv, count, timeout=seconds, budget=budget, keep=(keep, value), **more
        )
        return self._start(call, wait, value, keep, finish, message=kind >= Kind.SEND)

    def _start(
        self, call: Call, wait: bool, value: Any, keep: Any, finish: Callable[[], None] | None, message: bool = False
    ) -> Any:
        self._seq += 1
        if self._batch is not None:
            self._batch.append((call, finish))
            return None
        device = _gpu.device_of(keep)
        if device is not None:
            return _gpu.go(self, device, [call], wait, value, keep, finish)
        try:
            if wait:
                self.group.run(call)
                if finish is not None:
                    finish()
                return self._finished
            if self._patience and not message:
                ticket = self.group.begin(call)
                if not ticket:
                    if finish is not None:
                        finish()
                    return c10d._create_work_from_future(finished_future(value))
            else:
                ticket = self.group.submit(call)
        except HoraError as error:
            self._error = error
            raise failure(error) from error
        return TicketWork([Handle(ticket, _after(finish))], value, self._live, self._patience)

    def _many(self, calls: list[tuple[Call, Callable | None]], wait: bool, value: Any) -> Any:
        """Start several operations as one submission; each with what copies its results."""
        if not calls:
            return self._finished if wait else c10d._create_work_from_future(finished_future(value))
        device = _gpu.device_of([call.keep for call, _ in calls])
        if device is not None:
            return _gpu.many(self, device, calls, wait, value)
        try:
            tickets = self.group.submit_many([call for call, _ in calls], awaited=wait)
        except HoraError as error:
            self._error = error
            raise failure(error) from error
        handles = [Handle(ticket, _after(finish)) for ticket, (_, finish) in zip(tickets, calls, strict=True)]
        work = TicketWork(handles, value, self._live, self._patience)
        if wait:
            work.wait()
            return self._finished
        return work

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

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
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


def _after(finish: Callable[[], None] | None) -> Callable[[int], None] | None:
    """What a handle calls with its ticket at the end."""
    return None if finish is None else lambda _: finish()


def create(opts: Any, backend_options: Any = None) -> HoraBackend | None:
    """What torch calls, on every member, for init_process_group and new_group."""
    try:
        group, owner, name = _start.group_for(opts)
    except HoraError as error:
        raise failure(error) from error
    return HoraBackend(group, opts.group_rank, opts.group_size, opts.timeout, name, owner)


def _teach_async() -> None:
    """Where a torch does not say of an operation whether the caller waits at once, it is started: who waits does so
    then."""
    for verb in (
        "Allreduce",
        "AllreduceCoalesced",
        "Reduce",
        "Broadcast",
        "Allgather",
        "Gather",
        "Scatter",
        "ReduceScatter",
        "AllToAll",
    ):
        options = getattr(c10d, f"{verb}Options")
        if not hasattr(options, "asyncOp"):
            options.asyncOp = True


def register() -> None:
    """Tell torch about the backend; calling it again does nothing."""
    if "HORA" in dist.Backend._plugins:
        return
    _teach_async()
    teach()
    _profile.teach()
    dist.Backend.register_backend("hora", create, extended_api=True, devices=["cpu", "cuda"])
    from ._dynamo import skip

    skip(HoraBackend, Reductions, Verbs, Messages, TicketWork)
