"""DDP's gradients on hora's shortest path: by our own averaging (_sleeper.py), or by a hook for the reducer's
buckets."""

from __future__ import annotations

import copyreg
import weakref
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..call import Call, Kind, Op
from ..errors import HoraError
from ..group import Group
from ._channel import register
from ._cores import free_core
from ._tensor import code
from ._work import failure, finished_future

__all__ = ["accelerate"]


class _Bucket:
    """One of DDP's buckets in memory that every rank of the host maps, and the plan that averages it there."""

    def __init__(self, group: Group, t: torch.Tensor, name: str, seconds: float | None) -> None:
        self.flat = t  # what is registered must stay mapped
        self.registration = _register(group, t)
        self.at = t.data_ptr()
        self.ticket = 0
        self.done = finished_future(t)  # which DDP only reads
        call = Call(Kind.ALLREDUCE, Op.AVERAGE, code(t), 0, self.at, self.at, t.numel(), name=name, timeout=seconds)
        self.plan = group.plan(call, t)

    def reduce(self) -> None:
        self.plan.run()

    def submit(self) -> None:
        self.ticket = self.plan.submit()

    def finish(self, group: Group) -> None:
        """End what was started, or do all of it now."""
        if not self.ticket:
            self.reduce()
            return
        group.wait(self.ticket)
        self.drop(group)

    def drop(self, group: Group) -> None:
        ticket, self.ticket = self.ticket, 0
        if ticket:
            group.release(ticket)

    def close(self) -> None:
        self.plan.close()
        self.registration = None  # before the memory goes


def _register(group: Group, t: torch.Tensor) -> Any:
    """Move t's storage into shared memory, views of it included, and have the host's ranks map it."""
    storage = t.untyped_storage()
    if group.size == 1 or not t.numel() or not hasattr(storage, "_share_fd_cpu_"):
        return None
    fd, nbytes = storage._share_fd_cpu_()  # the storage keeps fd
    return register(group, storage.data_ptr(), nbytes, fd, False, t)


class _Hook:
    """Averages DDP's buckets in place. DDP makes its buckets anew once, after the first step.

    Where this rank has a core to spare a bucket goes as soon as it is full; else all go with the last one, on this
    thread: then nothing overlaps anyway, and the ranks wait for each other once instead of once a bucket.

    Inside `model.join()` a rank that has run out of batches sends zeros that lie elsewhere in each step, and only the
    others could tell whether their buckets are new. So there every rank averages by name, in memory of its own.
    """

    def __init__(self, model: DistributedDataParallel, group: Group, seconds: float | None, overlap: bool) -> None:
        self.model = weakref.ref(model)
        self.group = group
        self.seconds = seconds  # the process group's timeout
        self.overlap = overlap
        self.buckets: dict[int, _Bucket] = {}
        self.waiting: list[tuple[_Bucket, torch.futures.Future]] = []
        self.joined = False  # what comes now are this rank's zeros
        self.active = group.size  # ranks that still have batches
        self.__name__ = self.__qualname__ = "hora_accelerate"  # DDP's log names its hook

    # torch compares annotations, and here they are text.
    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]
        index = bucket.index()
        if index == 0 and self.waiting:
            self._drop()  # what a backward pass that failed has left
        try:
            model = self.model()
            if model is not None and model._join_config.enable:
                return self._joining(model, index, bucket.buffer())
            known, buffer = self.buckets.get(index), bucket.buffer()
            if known is None or known.at != buffer.data_ptr() or known.flat.shape != buffer.shape:
                return self._first(index, buffer)
            if bucket.is_last():
                if self.waiting:
                    self._finish()
                known.reduce()
                return known.done
            future: torch.futures.Future = torch.futures.Future()
            if self.overlap:
                known.submit()
            self.waiting.append((known, future))
            return future
        except HoraError as error:
            raise failure(error) from error

    def _first(self, index: int, t: torch.Tensor) -> torch.futures.Future:
        """A bucket that is seen first is averaged before it is registered: registering waits for the other ranks
        without asking what they do, and an average says which ranks put their gradients together differently."""
        self._finish()
        name = f"ddp.bucket.{index}"
        self._run(Op.AVERAGE, t, name)
        before = self.buckets.pop(index, None)
        if before is not None:
            before.close()
        self.buckets[index] = _Bucket(self.group, t, name, self.seconds)
        return finished_future(t)

    def _joining(self, model: DistributedDataParallel, index: int, t: torch.Tensor) -> torch.futures.Future:
        """A bucket of a step in which some ranks may have joined."""
        self._finish()
        every = model._divide_by_initial_world_size
        if index == 0 and not every:
            count = torch.tensor([0 if self.joined else 1], dtype=torch.int64)
            self._run(Op.SUM, count, "ddp.active")
            self.active = max(1, int(count))
        self._run(Op.AVERAGE if every else Op.SUM, t, f"ddp.bucket.{index}")
        if not every:
            t.div_(self.active)
        return finished_future(t)

    def _run(self, op: Op, t: torch.Tensor, name: str) -> None:
        at = t.data_ptr()
        self.group.run(Call(Kind.ALLREDUCE, op, code(t), 0, at, at, t.numel(), name=name, timeout=self.seconds), t)

    def _finish(self) -> None:
        """End what the earlier buckets have begun, in their order."""
        while self.waiting:
            known, future = self.waiting[0]
            known.finish(self.group)
            del self.waiting[0]
            future.set_result(known.flat)

    def _drop(self) -> None:
        for known, _ in self.waiting:
            known.drop(self.group)
        self.waiting.clear()


class _Joins(DistributedDataParallel):
    """Tells the hook which buckets are a joined rank's zeros. It copies and pickles as the class that was
    accelerated."""

    _hora_inner: type
    _hora_hook: _Hook

    def _match_all_reduce_for_bwd_pass(self) -> None:
        hook = self.__dict__.get("_hora_hook")
        if hook is None:
            super()._match_all_reduce_for_bwd_pass()
            return
        hook.joined = True
        try:
            super()._match_all_reduce_for_bwd_pass()
        finally:
            hook.joined = False

    def __getstate__(self) -> dict:
        state = super().__getstate__()
        hook = state.pop("_hora_hook", None)
        state["_comm_hooks"] = [known for known in state["_comm_hooks"] if known[0] is not hook]
        return state

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg._reconstructor, (self._hora_inner, object, None), self.__getstate__()  # type: ignore[attr-defined]


def _hooked(model: DistributedDataParallel, group: Group, overlap: bool, seconds: float | None) -> None:
    """Have the model's reducer ask us for its averages."""
    hook = _Hook(model, group, seconds, overlap)
    model.register_comm_hook(None, hook)
    inner = type(model)
    model.__class__ = type(
        inner.__name__,
        (_Joins, inner),
        {"__module__": inner.__module__, "__qualname__": inner.__qualname__, "_hora_inner": inner},
    )
    model._hora_hook = hook


def accelerate(model: Any, overlap: bool | None = None) -> Any:
    """Let a DistributedDataParallel model average its gradients in memory that every rank of the host maps; returns the
    model.

    They are averaged when the backward pass ends, and DDP's reducer sleeps. A model that needs it
    (find_unused_parameters, static_graph, mixed precision, sparse gradients, a debug level) keeps it: then its buckets
    lie in such memory. `overlap=None` decides by the cores that the ranks have whether averaging starts while backward
    still runs.

    Its process group must be of backend "hora". Call it once, before the first step.

    >>> model = hora.torch.accelerate(DistributedDataParallel(model, gradient_as_bucket_view=True))
    """
    from . import _sleeper
    from .backend import HoraBackend

    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"accelerate: {type(model).__name__} is not a DistributedDataParallel model; wrap it first")
    backend = model.process_group
    if not isinstance(backend, HoraBackend):
        try:
            backend = backend._get_backend(torch.device("cpu"))
        except RuntimeError:
            backend = None
    if not isinstance(backend, HoraBackend):
        raise TypeError(
            'accelerate: the model\'s process group is not of backend "hora"; call init_process_group("hora") first'
        )
    overlap = free_core() if overlap is None else overlap
    if _sleeper.fits(model):
        _sleeper.install(model, backend.group, overlap, backend._timeout)
    else:
        _hooked(model, backend.group, overlap, backend._timeout)
    return model
