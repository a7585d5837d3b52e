"""The backend's messages between two ranks, and the barrier made of them that says who is missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from ..call import ANY_SOURCE, Call, Kind, Op
from ..errors import DeadlineError, HoraError
from ..group import Group
from ..handle import Handle
from ._tensor import code, dense
from ._work import BackendError, TicketWork, failure

__all__ = ["Messages"]

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend as _Backend
else:
    _Backend = object

# Tags from here up are the backend's own.
_BARRIER_TAG = 0x7FFF0000


class _Received(list):
    """The value of a receive from any rank: the tensors, and who sent them."""

    source = -1


class Messages(_Backend):
    """Mixed into the backend, which has `group`, `_rank`, `_size`, `_go`, `_timeout`, `_tokens`, `_seq`, `_live` and
    `_patience`."""

    group: Group
    _rank: int
    _size: int

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int) -> Any:
        t = dense(tensors[0], "send")
        return self._go(
            Kind.SEND,
            Op.SUM,
            code(t),
            dst,
            t.data_ptr(),
            0,
            t.numel(),
            self._timeout,
            False,
            tensors,
            t,
            tag=tag,
            recv_count=0,
        )

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int) -> Any:
        out = tensors[0]
        t = dense(out, "recv")
        finish = None if t.data_ptr() == out.data_ptr() else lambda: out.detach().copy_(t)
        work = self._go(
            Kind.RECV, Op.SUM, code(t), src, 0, t.data_ptr(), 0, self._timeout, False, tensors, t, finish, tag=tag,
            recv_count=t.numel(),
        )  # fmt: skip
        if work is not None:
            work.source = src
        return work

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Any:
        _teach_source_rank()
        out = tensors[0]
        if not out.is_cpu:
            raise ValueError(
                f"recv: tensor is on {out.device}; receiving from any rank takes host tensors only, name the source"
            )
        t = dense(out, "recv")
        value = _Received(tensors)
        self._seq += 1
        try:
            ticket = self.group.submit(
                Call(
                    Kind.RECV, Op.SUM, code(t), ANY_SOURCE, 0, t.data_ptr(), 0, recv_count=t.numel(), tag=tag,
                    timeout=self._timeout,
                    keep=(tensors, t),
                )
            )  # fmt: skip
        except HoraError as error:
            raise failure(error) from error

        def finish(ticket: int) -> None:
            value.source = self.group.result(ticket).value
            work.source = value.source
            if t.data_ptr() != out.data_ptr():
                out.detach().copy_(t)

        work = TicketWork([Handle(ticket, finish)], value, self._live, self._patience)
        return work

    def monitored_barrier(self, opts: Any, wait_all: bool = False) -> None:
        own = opts if isinstance(opts, timedelta) else opts.timeout
        seconds = own.total_seconds() if own >= timedelta(0) else (self._timeout or 1800.0)
        if self._size == 1:
            return
        end = time.monotonic() + seconds
        if self._rank == 0:
            if seconds == 0:
                raise RuntimeError("Rank 0 timed out in monitoredBarrier after 0 ms; give the other ranks time to come")
            try:
                self._await_all(end, seconds, wait_all)
            except HoraError as error:
                raise failure(error) from error
            return
        try:
            if seconds == 0:
                raise DeadlineError("it has not answered within the timeout of 0 s")
            self._send_token(0, seconds)
            self._await_token(0, end)
        except HoraError as error:
            said = (
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: "
                f"{error}; see rank 0's error for the missing ranks"
            )
            raise (RuntimeError if isinstance(error, DeadlineError) else BackendError)(said) from error

    def _await_all(self, end: float, seconds: float, wait_all: bool) -> None:
        missing = []
        for r in range(1, self._size):
            try:
                self._await_token(r, end)
            except HoraError as error:
                missing.append(r)
                if not wait_all:
                    raise RuntimeError(
                        f"[Rank 0]: Rank {r} failed to pass monitoredBarrier in {int(seconds * 1000)} ms: {error}"
                    ) from error
        if missing:
            ranks = ", ".join(map(str, missing))
            raise RuntimeError(f"[Rank 0]: Ranks {ranks} failed to pass monitoredBarrier in {int(seconds * 1000)} ms")
        for r in range(1, self._size):
            self._send_token(r, seconds)

    def _send_token(self, to: int, seconds: float) -> None:
        token = torch.ones(1, dtype=torch.uint8)
        call = Call(
            Kind.SEND, Op.SUM, code(token), to, token.data_ptr(), 0, 1, recv_count=0, tag=_BARRIER_TAG, timeout=seconds
        )
        self.group.run(call, token)

    def _await_token(self, source: int, end: float) -> None:
        """Wait for a rank's token. A receive that ran out of time stays posted and serves the next barrier."""
        posted = self._tokens.get(source)
        if posted is None:
            token = torch.zeros(1, dtype=torch.uint8)
            call = Call(Kind.RECV, Op.SUM, code(token), source, 0, token.data_ptr(), 0, recv_count=1, tag=_BARRIER_TAG)
            posted = self._tokens[source] = Handle(self.group.submit(call, token))
        try:
            posted.wait(max(0.0, end - time.monotonic()))
        finally:
            if posted.done():
                del self._tokens[source]


def _teach_source_rank() -> None:
    """torch wraps our Work in one that cannot tell who sent; let it ask the future's value instead."""
    inherited = c10d.Work._source_rank
    if getattr(inherited, "hora", False):
        return

    def source_rank(work: Any) -> int:
        if isinstance(work, TicketWork):
            return work.source
        try:
            value = work.get_future().value()
        except RuntimeError:
            value = None
        return value.source if isinstance(value, _Received) else inherited(work)

    source_rank.hora = True  # type: ignore[attr-defined]
    c10d.Work._source_rank = source_rank
