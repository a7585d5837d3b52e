"""DDP's gradients on hora's shortest path: by our own averaging (_reducer.py), or by a hook for the reducer's buckets."""

from __future__ import annotations

from typing import Any

import torch

from .. import _world
from ..errors import HoraError
from ..group import Group, Kind, Op
from ._cores import free_core
from ._tensor import code
from ._work import failure, finished_future

__all__ = ["accelerate"]


class _Bucket:
    """One of DDP's buckets in memory that every rank of the host maps, and the plan that averages it there."""

    def __init__(self, group: Group, t: torch.Tensor, name: str, seconds: float | None) -> None:
        self.tensor = t  # what is registered must stay mapped
        self.registration = _register(group, t)
        self.at = t.data_ptr()
        self.done = finished_future(t)  # which DDP only reads
        self.plan = group.plan(Kind.ALLREDUCE, Op.AVERAGE, code(t), 0, self.at, self.at, t.numel(), name=name, timeout=seconds)

    def close(self) -> None:
        self.plan.close()
        self.registration = None  # before the memory goes


def _register(group: Group, t: torch.Tensor) -> Any:
    """Move t's storage into shared memory, views of it included, and have the host's ranks map it."""
    storage = t.untyped_storage()
    if group.size == 1 or not t.numel() or not hasattr(storage, "_share_fd_cpu_"):
        return None
    fd, nbytes = storage._share_fd_cpu_()  # the storage keeps fd
    return _world.register(group.handle, storage.data_ptr(), nbytes, fd, 0, named=False)


class _Hook:
    """Averages DDP's buckets in place. DDP makes its buckets anew once, after the first step.

    Where this rank has a core to spare a bucket goes as soon as it is full; else all go with the last one, on this
    thread: then nothing overlaps anyway, and the ranks wait for each other once instead of once a bucket.
    """

    def __init__(self, group: Group, seconds: float | None, overlap: bool) -> None:
        self.group = group
        self.seconds = seconds  # the process group's timeout
        self.overlap = overlap
        self.buckets: dict[int, _Bucket] = {}
        self.waiting: list[tuple[_Bucket, int, torch.futures.Future]] = []  # with the ticket, 0: not started
        self.__name__ = self.__qualname__ = "hora_accelerate"  # DDP's log names its hook

    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations, and here they are text
        index = bucket.index()
        if index == 0 and self.waiting:
            self._drop()  # what a backward pass that failed has left
        try:
            known, buffer = self.buckets.get(index), bucket.buffer()
            if known is None or known.at != buffer.data_ptr() or known.tensor.shape != buffer.shape:
                return self._first(index, buffer)
            if bucket.is_last():
                if self.waiting:
                    self._finish()
                known.plan.run()
                return known.done
            future: torch.futures.Future = torch.futures.Future()
            self.waiting.append((known, known.plan.submit() if self.overlap else 0, future))
            return future
        except HoraError as error:
            raise failure(error) from error

    def _first(self, index: int, t: torch.Tensor) -> torch.futures.Future:
        """A bucket that is seen first is averaged before it is registered: registering waits for the other ranks without
        asking what they do, and an average says which ranks put their gradients together differently."""
        self._finish()
        at, name = t.data_ptr(), f"ddp.bucket.{index}"
        self.group.run(Kind.ALLREDUCE, Op.AVERAGE, code(t), 0, at, at, t.numel(), name=name, timeout=self.seconds, keep=t)
        before = self.buckets.pop(index, None)
        if before is not None:
            before.close()
        self.buckets[index] = _Bucket(self.group, t, name, self.seconds)
        return finished_future(t)

    def _finish(self) -> None:
        """End what the earlier buckets have begun, in their order."""
        while self.waiting:
            known, ticket, future = self.waiting[0]
            if ticket:
                self.group.wait(ticket)
                self.group.release(ticket)
            else:
                known.plan.run()
            del self.waiting[0]
            future.set_result(known.tensor)

    def _drop(self) -> None:
        for _, ticket, _ in self.waiting:
            if ticket:
                self.group.release(ticket)
        self.waiting.clear()


def accelerate(model: Any, overlap: bool | None = None) -> Any:
    """Let a DistributedDataParallel model average its gradients in memory that every rank of the host maps; returns the model.

    They are averaged when the backward pass ends, and DDP's reducer sleeps. A model that needs it (find_unused_parameters,
    static_graph, mixed precision, sparse gradients, a debug level) keeps it: then its buckets lie in such memory. `overlap=None` decides by the cores that the ranks have whether averaging starts while backward still runs.

    Its process group must be of backend "hora". Call it once, before the first step.

    >>> model = hora.torch.accelerate(DistributedDataParallel(model, gradient_as_bucket_view=True))
    """
    from torch.nn.parallel import DistributedDataParallel

    from . import _reducer
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
        raise TypeError('accelerate: the model\'s process group is not of backend "hora"; call init_process_group("hora") first')
    overlap = free_core() if overlap is None else overlap
    if _reducer.fits(model):
        _reducer.install(model, backend.group, overlap, backend._timeout)
    else:
        model.register_comm_hook(None, _Hook(backend.group, backend._timeout, overlap))
    return model
