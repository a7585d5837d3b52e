"""The backend's gathers, scatters, exchanges and messages between two ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d

from ..call import Call, Kind, Op
from ..group import Group
from ._tensor import code, dense, flatten

__all__ = ["Verbs"]

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend as _Backend
else:
    _Backend = object


class Verbs(_Backend):
    """Mixed into the backend, which has `group`, `_rank`, `_size`, `_go`, `_start`, `_many`, `_seconds` and
    `_operator`."""

    group: Group
    _rank: int
    _size: int
    _batch: list[tuple[Call, Callable | None]] | None
    _operator: Callable[[Any], tuple[Op, float]]

    # -- gather

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        opts = opts or c10d.AllgatherOptions()
        call, finish, keep = self._gather_call(output, input, "all_gather_into_tensor", opts)
        return self._start(call, not opts.asyncOp, output, keep, finish)

    def _gather_call(
        self, output: torch.Tensor, input: torch.Tensor, verb: str, opts: Any, value: Any = None
    ) -> tuple[Call, Callable | None, Any]:
        if output.dtype != input.dtype or output.numel() != input.numel() * self._size:
            raise ValueError(
                f"{verb}: output has {output.numel()} elements of {output.dtype}, it needs {input.numel()} × {self._size} "
                f"ranks of {input.dtype}"
            )
        src, dst = dense(input, verb), dense(output, verb)
        finish = None if dst.data_ptr() == output.data_ptr() else lambda: output.detach().copy_(dst)
        call = Call(
            Kind.ALLGATHER, Op.SUM, code(src), 0, src.data_ptr(), dst.data_ptr(), src.numel(), recv_count=dst.numel(),
            timeout=self._seconds(opts), budget=self._budget(opts),
            keep=((src, dst), output if value is None else value),
        )  # fmt: skip
        return call, finish, (src, dst)

    def _budget(self, opts: Any) -> float:
        return self._patience if opts.asyncOp else 0.0

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        opts = opts or c10d.AllgatherOptions()
        parts = list(outputs[0])
        src = dense(inputs[0], "all_gather")
        counts = [t.numel() for t in parts]
        self._own_part(parts, src, "all_gather")
        whole = torch.empty(sum(counts), dtype=src.dtype, device=src.device)
        return self._go(
            Kind.ALLGATHER, Op.SUM, code(src), 0, src.data_ptr(), whole.data_ptr(), src.numel(), self._seconds(opts),
            not opts.asyncOp, outputs, (src, whole, parts), _spread(whole, parts), recv_count=whole.numel(),
            recv_counts=None if len(set(counts)) == 1 else counts,
        )  # fmt: skip

    def _own_part(self, parts: list[torch.Tensor], src: torch.Tensor, verb: str) -> None:
        if len(parts) != self._size:
            raise ValueError(f"{verb}: {len(parts)} tensors in the list, the group has {self._size} ranks")
        if parts[self._rank].numel() != src.numel() or any(p.dtype != src.dtype for p in parts):
            raise ValueError(
                f"{verb}: on rank {self._rank} the tensor has {src.numel()} elements of {src.dtype}, its place in the list "
                f"{parts[self._rank].numel()} of {parts[self._rank].dtype}"
            )

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """outputs[rank][i] receives inputs[i] of that rank."""
        opts = opts or c10d.AllgatherOptions()
        calls: list[tuple[Call, Callable | None]] = []
        for i, t in enumerate(inputs):
            src = dense(t, "all_gather_coalesced")
            parts = [of_rank[i] for of_rank in outputs]
            whole = torch.empty(src.numel() * self._size, dtype=src.dtype, device=src.device)
            call, _, _ = self._gather_call(whole, src, "all_gather_coalesced", opts, parts)
            calls.append((call, _spread(whole, parts)))
        return self._many(calls, not opts.asyncOp, outputs)

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        opts = opts or c10d.AllgatherOptions()
        calls = []
        for out, t in zip(outputs, inputs, strict=True):
            call, finish, _ = self._gather_call(out, t, "all_gather_into_tensor_coalesced", opts)
            calls.append((call, finish))
        return self._many(calls, not opts.asyncOp, list(outputs))

    def gather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        opts = opts or c10d.GatherOptions()
        src = dense(inputs[0], "gather")
        whole, parts, finish = None, [], None
        if opts.rootRank == self._rank:
            parts = list(outputs[0])
            self._own_part(parts, src, "gather")
            whole = torch.empty(src.numel() * self._size, dtype=src.dtype, device=src.device)
            finish = _spread(whole, parts)
        return self._go(
            Kind.GATHER, Op.SUM, code(src), opts.rootRank, src.data_ptr(), 0 if whole is None else whole.data_ptr(),
            src.numel(), self._seconds(opts), not opts.asyncOp, outputs, (src, whole, parts), finish,
            recv_count=0 if whole is None else whole.numel(),
        )  # fmt: skip

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        opts = opts or c10d.GatherOptions()
        src = dense(input, "gather_single")
        dst, finish = None, None
        if opts.rootRank == self._rank:
            dst = dense(output, "gather_single")
            finish = None if dst.data_ptr() == output.data_ptr() else lambda: output.detach().copy_(dst)
        return self._go(
            Kind.GATHER, Op.SUM, code(src), opts.rootRank, src.data_ptr(), 0 if dst is None else dst.data_ptr(),
            src.numel(), self._seconds(opts), not opts.asyncOp, output, (src, dst), finish,
            recv_count=0 if dst is None else dst.numel(),
        )  # fmt: skip

    def scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Any:
        opts = opts or c10d.ScatterOptions()
        out = outputs[0]
        dst = dense(out, "scatter")
        whole = None
        if opts.rootRank == self._rank:
            self._own_part(list(inputs[0]), dst, "scatter")
            whole = flatten(list(inputs[0]), "scatter")
        finish = None if dst.data_ptr() == out.data_ptr() else lambda: out.detach().copy_(dst)
        return self._go(
            Kind.SCATTER, Op.SUM, code(dst), opts.rootRank, 0 if whole is None else whole.data_ptr(), dst.data_ptr(),
            0 if whole is None else whole.numel(), self._seconds(opts), not opts.asyncOp, outputs, (dst, whole), finish,
            recv_count=dst.numel(),
        )  # fmt: skip

    # -- reduce-scatter

    def _scatter_call(
        self, output: torch.Tensor, input: torch.Tensor, verb: str, opts: Any
    ) -> tuple[Call, Callable | None, Any]:
        if output.dtype != input.dtype or input.numel() != output.numel() * self._size:
            raise ValueError(
                f"{verb}: input has {input.numel()} elements of {input.dtype}, it needs {output.numel()} × {self._size} "
                f"ranks of {output.dtype}"
            )
        src, dst = dense(input, verb), dense(output, verb)
        finish = None if dst.data_ptr() == output.data_ptr() else lambda: output.detach().copy_(dst)
        op, scale = self._operator(opts.reduceOp)
        call = Call(
            Kind.REDUCE_SCATTER, op, code(src), 0, src.data_ptr(), dst.data_ptr(), src.numel(), recv_count=dst.numel(),
            prescale=scale,
            timeout=self._seconds(opts), budget=self._budget(opts), keep=((src, dst), output),
        )  # fmt: skip
        return call, finish, (src, dst)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        opts = opts or c10d.ReduceScatterOptions()
        call, finish, keep = self._scatter_call(output, input, "reduce_scatter_tensor", opts)
        return self._start(call, not opts.asyncOp, output, keep, finish)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        opts = opts or c10d.ReduceScatterOptions()
        calls = []
        for out, t in zip(outputs, inputs, strict=True):
            call, finish, _ = self._scatter_call(out, t, "reduce_scatter_tensor_coalesced", opts)
            calls.append((call, finish))
        return self._many(calls, not opts.asyncOp, list(outputs))

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Any:
        opts = opts or c10d.ReduceScatterOptions()
        op, scale = self._operator(opts.reduceOp)
        out = outputs[0]
        parts = list(inputs[0])
        self._own_part(parts, out, "reduce_scatter")
        whole = flatten(parts, "reduce_scatter")
        counts = [p.numel() for p in parts]
        dst = dense(out, "reduce_scatter")
        finish = None if dst.data_ptr() == out.data_ptr() else lambda: out.detach().copy_(dst)
        return self._go(
            Kind.REDUCE_SCATTER, op, code(whole), 0, whole.data_ptr(), dst.data_ptr(), whole.numel(),
            self._seconds(opts),
            not opts.asyncOp, outputs, (whole, dst), finish, recv_count=dst.numel(), prescale=scale,
            recv_counts=None if len(set(counts)) == 1 else counts,
        )  # fmt: skip

    # -- exchange

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        opts = opts or c10d.AllToAllOptions()
        src, dst = dense(input, "all_to_all_single"), dense(output, "all_to_all_single")
        sends, recvs = self._splits_of(src, input_splits, "input"), self._splits_of(dst, output_splits, "output")
        finish = None if dst.data_ptr() == output.data_ptr() else lambda: output.detach().copy_(dst)
        return self._go(
            Kind.ALLTOALL, Op.SUM, code(src), 0, src.data_ptr(), dst.data_ptr(), src.numel(), self._seconds(opts),
            not opts.asyncOp, output, (src, dst), finish, recv_count=dst.numel(), send_counts=sends, recv_counts=recvs,
        )  # fmt: skip

    def _splits_of(self, t: torch.Tensor, splits: Sequence[int], side: str) -> list[int]:
        rows = t.shape[0] if t.dim() else 1
        if not splits:
            if rows % self._size:
                raise ValueError(
                    f"all_to_all_single: {side} has {rows} rows, which {self._size} ranks do not divide; give splits"
                )
            return [t.numel() // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(
                f"all_to_all_single: {side} splits {list(splits)} must be {self._size} numbers with the sum {rows}"
            )
        row = t.numel() // rows if rows else 0
        return [int(s) * row for s in splits]

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        opts = opts or c10d.AllToAllOptions()
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ValueError(
                f"all_to_all: {len(inputs)} inputs and {len(outputs)} outputs, the group has {self._size} ranks"
            )
        whole = flatten(list(inputs), "all_to_all")
        dst = torch.empty(sum(t.numel() for t in outputs), dtype=whole.dtype, device=whole.device)
        return self._go(
            Kind.ALLTOALL, Op.SUM, code(whole), 0, whole.data_ptr(), dst.data_ptr(), whole.numel(), self._seconds(opts),
            not opts.asyncOp, outputs, (whole, dst, outputs), _spread(dst, outputs), recv_count=dst.numel(),
            send_counts=[t.numel() for t in inputs], recv_counts=[t.numel() for t in outputs],
        )  # fmt: skip

    # -- messages

    # -- several at once

    def start_coalescing(self, *device: Any) -> None:
        if self._batch is not None:
            raise RuntimeError("start_coalescing: the group is already coalescing; end that first")
        self._batch = []

    def end_coalescing(self, *device: Any) -> Any:
        batch, self._batch = self._batch, None
        if batch is None:
            raise RuntimeError("end_coalescing: start_coalescing was not called on this group")
        return self._many(batch, False, [])

    # -- a barrier that says who is missing


# The names that torch 2.8 and older call.
Verbs._allgather_base = Verbs.all_gather_single
Verbs.allgather_into_tensor_coalesced = Verbs.all_gather_single_coalesced
Verbs.gather_into_tensor = Verbs.gather_single
Verbs._reduce_scatter_base = Verbs.reduce_scatter_single
Verbs.reduce_scatter_tensor_coalesced = Verbs.reduce_scatter_single_coalesced
Verbs.alltoall_base = Verbs.all_to_all_single


def _spread(whole: torch.Tensor, parts: Sequence[torch.Tensor]) -> Callable[[], None]:
    def copy() -> None:
        at = 0
        for p in parts:
            n = p.numel()
            p.detach().copy_(whole[at : at + n].view(p.shape))
            at += n

    return copy
