"""What torch's profiler is shown: each collective as an event such as "hora:all_reduce", with the shapes of its
tensors.

While no profiler runs nothing here is called: one that starts puts recording methods in the place of the backend's and
of the buckets', and the end of it takes them away again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import profiler

from ._dynamo import skip

__all__ = ["leave", "teach"]

_FIRST: Callable[..., Any] = lambda args: args[0]  # noqa: E731
_SECOND: Callable[..., Any] = lambda args: args[1]  # noqa: E731

# A backend's method: the event's name, as torch's own backends have it, and the tensors among the arguments.
_VERBS: dict[str, tuple[str, Callable[..., Any]]] = {
    "allreduce": ("all_reduce", _FIRST),
    "allreduce_coalesced": ("all_reduce", _FIRST),
    "reduce": ("reduce", _FIRST),
    "broadcast": ("broadcast", _FIRST),
    "allgather": ("all_gather", _SECOND),
    "allgather_coalesced": ("all_gather", _SECOND),
    "all_gather_single": ("all_gather_into_tensor", lambda args: args[1:2]),
    "_allgather_base": ("all_gather_into_tensor", lambda args: args[1:2]),
    "all_gather_single_coalesced": ("all_gather_into_tensor_coalesced", _SECOND),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", _SECOND),
    "gather": ("gather", _SECOND),
    "gather_single": ("gather", lambda args: args[1:2]),
    "gather_into_tensor": ("gather", lambda args: args[1:2]),
    "scatter": ("scatter", lambda args: args[1][0] if args[1] else ()),
    "reduce_scatter": ("reduce_scatter", lambda args: args[1][0]),
    "reduce_scatter_single": ("reduce_scatter_tensor", lambda args: args[1:2]),
    "_reduce_scatter_base": ("reduce_scatter_tensor", lambda args: args[1:2]),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor_coalesced", _SECOND),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", _SECOND),
    "all_to_all_single": ("all_to_all", lambda args: args[1:2]),
    "alltoall_base": ("all_to_all", lambda args: args[1:2]),
    "alltoall": ("all_to_all", _SECOND),
    "barrier": ("barrier", lambda args: ()),
    "send": ("send", _FIRST),
    "recv": ("recv", _FIRST),
    "recv_anysource": ("recvAnySource", _FIRST),
}

_changed: list[tuple[type, str, Any]] = []  # what stood there; None where nothing did
_lock = threading.Lock()


def _enter(name: str, tensors: Iterable[torch.Tensor]) -> Any:
    return torch._C._autograd._record_function_with_args_enter(f"hora:{name}", *tensors)


def leave(record: Any) -> None:
    """End an event, on a thread of its own: that is how the profiler tells what belongs to no operator's time here."""
    end = threading.Thread(target=torch._C._autograd._record_function_with_args_exit, args=(record,))
    try:
        end.start()
    except RuntimeError:  # the interpreter is ending
        return
    end.join()


def _verb(inner: Callable[..., Any], name: str, tensors: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def recorded(self: Any, *args: Any, **more: Any) -> Any:
        record = _enter(name, tensors(args))
        work: Any = None
        try:
            work = inner(self, *args, **more)
        finally:
            if hasattr(work, "record") and not work.done():
                work.record = record  # until it ends
            else:
                leave(record)
        return work

    return recorded


def _whole(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def recorded(self: Any, *args: Any) -> Any:
        record = _enter("all_reduce", [self.flat])
        try:
            return inner(self, *args)
        finally:
            leave(record)

    return recorded


def _begun(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def recorded(self: Any, *args: Any) -> Any:
        record = _enter("all_reduce", [self.flat])
        out = inner(self, *args)
        self.record = record
        return out

    return recorded


def _ended(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def recorded(self: Any, *args: Any) -> Any:
        try:
            return inner(self, *args)
        finally:
            record = vars(self).pop("record", None)
            if record is not None:
                leave(record)

    return recorded


def _watch() -> None:
    """A profiler has started."""
    from .backend import HoraBackend
    from .buckets import Bucket
    from .ddp import _Bucket

    with _lock:
        if _changed:
            return
        for verb, (name, tensors) in _VERBS.items():
            inner = getattr(HoraBackend, verb, None)
            if inner is not None:
                _put(HoraBackend, verb, _verb(inner, name, tensors))
        for cls in (Bucket, _Bucket):
            for method, recorded in (("reduce", _whole), ("submit", _begun), ("finish", _ended)):
                _put(cls, method, recorded(getattr(cls, method)))


def _put(cls: type, name: str, value: Any) -> None:
    _changed.append((cls, name, vars(cls).get(name)))
    setattr(cls, name, value)
    skip(type("_Marked", (), {name: value}))


def _unwatch() -> None:
    with _lock:
        while _changed:
            cls, name, before = _changed.pop()
            if before is None:
                delattr(cls, name)
            else:
                setattr(cls, name, before)


def _after(inner: Callable[[], None], then: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(inner)
    def both() -> None:
        inner()
        then()

    both.hora = True  # type: ignore[attr-defined]
    return both


def teach() -> None:
    """Hear of profilers that start and stop, where this torch says so."""
    start = getattr(profiler, "_run_on_profiler_start", None)
    stop = getattr(profiler, "_run_on_profiler_stop", None)
    if (
        start is None
        or stop is None
        or hasattr(start, "hora")
        or not hasattr(torch._C._autograd, "_record_function_with_args_enter")
    ):
        return
    profiler._run_on_profiler_start = _after(start, _watch)
    profiler._run_on_profiler_stop = _after(stop, _unwatch)
    if getattr(profiler, "_is_profiler_enabled", False):
        _watch()
