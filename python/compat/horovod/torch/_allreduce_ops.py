"""allreduce of horovod.torch, of one tensor and of several."""

from __future__ import annotations

from typing import Any

import torch

from hora.group import Call, Kind

from ..common.process_sets import ProcessSet, global_process_set
from ._check import device_of, dtype_code, host, operator
from ._fast import begin_here, reduce_here
from ._handles import complete, group_of, label, next_handle, run, start
from .compression import Compression

__all__ = [
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_",
]  # fmt: skip

_ALLREDUCE = int(Kind.ALLREDUCE)


def _reduce_now(
    src: torch.Tensor, dst: torch.Tensor, name: str | None, op: Any, pre: float, post: float, ps: ProcessSet
) -> None:
    """Reduce src into dst (which may be src), on this thread."""
    handle = next_handle()
    group = ps.group or group_of(ps)
    a, b = src.detach(), dst.detach()
    staged = a.device.type != "cpu"
    if staged:
        a = b = a.cpu()
    called, flags = label("allreduce", name, handle)
    call = Call(
        _ALLREDUCE, op, dtype_code(a), 0, a.data_ptr(), b.data_ptr(), a.numel(), prescale=pre, postscale=post,
        name=called, flags=flags,
        shape=a.shape, device=device_of(src), keep=(a, b),
    )  # fmt: skip
    run(group, call)
    if staged:
        dst.detach().copy_(b)


def _reduce_later(
    srcs: list[torch.Tensor], dsts: list[torch.Tensor], name: str | None, prefix: str, ops: list[Any], pre: float,
    post: float,
    ps: ProcessSet, result: Any,
) -> int:  # fmt: skip
    group = group_of(ps)
    handle = next_handle()
    base, flags = label(prefix, name, handle)
    n = len(srcs)
    calls, keep, back = [], [], []
    for i, (src, dst, op) in enumerate(zip(srcs, dsts, ops, strict=True)):
        number = dtype_code(src)
        a, b = host(src), host(dst)
        if b.data_ptr() != dst.data_ptr():
            back.append((dst, b))
        keep += [a, b]
        calls.append(Call(
            _ALLREDUCE, op, number, 0, a.data_ptr(), b.data_ptr(), a.numel(), prescale=pre, postscale=post,
            name=f"{base}_{i + 1}of{n}" if prefix.startswith("grouped") else base, flags=flags, shape=a.shape,
            device=device_of(src),
        ))  # fmt: skip

    def finish(_: list[int]) -> Any:
        for dst, b in back:
            dst.detach().copy_(b)
        return result

    return start(handle, group, calls, finish, (keep, srcs, dsts), name and base)


class _Allreduce(torch.autograd.Function):
    """Its gradient is the same allreduce of the gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, average: Any, name: Any, op: Any, pre: float, post: float, ps: ProcessSet
    ) -> torch.Tensor:
        ctx.settings = (average, op, pre, post, ps)
        return complete(allreduce_async(tensor, average, name, op, pre, post, ps))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        average, op, pre, post, ps = ctx.settings
        out = allreduce(
            grad.contiguous(), average=average, op=op, prescale_factor=pre, postscale_factor=post, process_set=ps
        )
        return out, None, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> torch.Tensor:  # fmt: skip
    """A new tensor: the average (or `op`) over all ranks. Gradients flow through it."""
    small, ctx = compression.compress(tensor)
    if small.requires_grad and torch.is_grad_enabled():
        out = _Allreduce.apply(small, average, name, op, prescale_factor, postscale_factor, process_set)
    else:
        which = operator(op, average, small, process_set)
        dtype_code(small)
        out = torch.empty_like(small)
        _reduce_now(small, out, name, which, prescale_factor, postscale_factor, process_set)
    return compression.decompress(out, ctx)


def allreduce_async(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start allreduce and return a handle for synchronize()."""
    which = operator(op, average, tensor, process_set)
    out = torch.empty_like(tensor, requires_grad=False)
    return _reduce_later(
        [tensor], [out], name, "allreduce", [which], prescale_factor, postscale_factor, process_set, out
    )


def allreduce_(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> torch.Tensor:  # fmt: skip
    """allreduce in place."""
    which = operator(op, average, tensor, process_set)
    if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_sparse:
        reduce_here(tensor, name, which, prescale_factor, postscale_factor, process_set)
    else:
        _reduce_now(tensor, tensor, name, which, prescale_factor, postscale_factor, process_set)
    return tensor


def allreduce_async_(
    tensor: torch.Tensor, average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start allreduce in place and return a handle."""
    which = operator(op, average, tensor, process_set)
    if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_sparse:
        handle = begin_here(tensor, name, which, prescale_factor, postscale_factor, process_set)
        if handle:
            return handle
    return _reduce_later(
        [tensor], [tensor], name, "allreduce", [which], prescale_factor, postscale_factor, process_set, tensor
    )


# -- grouped allreduce


def _one_device(tensors: list[torch.Tensor]) -> None:
    if not tensors:
        raise ValueError("grouped_allreduce: the list of tensors is empty; give at least one")
    if len({t.device for t in tensors}) > 1:
        raise ValueError(
            f"grouped_allreduce: tensors on several devices {sorted({str(t.device) for t in tensors})}; move them to one"
        )


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, average: Any, name: Any, op: Any, pre: float, post: float, ps: ProcessSet, *tensors: torch.Tensor
    ) -> tuple:
        ctx.settings = (average, op, pre, post, ps)
        return tuple(complete(grouped_allreduce_async(list(tensors), average, name, op, pre, post, ps)))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        average, op, pre, post, ps = ctx.settings
        out = grouped_allreduce(
            [g.contiguous() for g in grads],
            average=average,
            op=op,
            prescale_factor=pre,
            postscale_factor=post,
            process_set=ps,
        )
        return (None, None, None, None, None, None, *out)


def grouped_allreduce(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:  # fmt: skip
    """allreduce of several tensors as one unit. Gradients flow through it."""
    pairs = [compression.compress(t) for t in tensors]
    small = [t for t, _ in pairs]
    if torch.is_grad_enabled() and any(t.requires_grad for t in small):
        outs = _GroupedAllreduce.apply(average, name, op, prescale_factor, postscale_factor, process_set, *small)
    else:
        outs = complete(
            grouped_allreduce_async(small, average, name, op, prescale_factor, postscale_factor, process_set)
        )
    return [compression.decompress(out, ctx) for out, (_, ctx) in zip(outs, pairs, strict=True)]


def grouped_allreduce_async(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start grouped_allreduce and return a handle."""
    _one_device(tensors)
    ops = [operator(op, average, t, process_set) for t in tensors]
    outs = [torch.empty_like(t, requires_grad=False) for t in tensors]
    return _reduce_later(
        list(tensors), outs, name, "grouped_allreduce", ops, prescale_factor, postscale_factor, process_set, outs
    )


def grouped_allreduce_(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:  # fmt: skip
    """grouped_allreduce in place."""
    return complete(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    )


def grouped_allreduce_async_(
    tensors: list[torch.Tensor], average: Any = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:  # fmt: skip
    """Start grouped_allreduce in place and return a handle."""
    _one_device(tensors)
    ops = [operator(op, average, t, process_set) for t in tensors]
    same = list(tensors)
    return _reduce_later(
        same, same, name, "grouped_allreduce", ops, prescale_factor, postscale_factor, process_set, tensors
    )
