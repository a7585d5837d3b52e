"""Tensors on a GPU: the backend's operations in the order of torch's current stream.

Nothing here waits for the GPU. An operation begins when the stream that is current at the call has come to that point,
and `wait()` lets the stream that is current then go on after it, as torch's users expect.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from .._gpu import Gpu
from ..call import Call
from ..errors import HoraError
from ._tensor import device_of
from ._work import failure

__all__ = ["GpuWork", "current_stream", "device_of", "go", "many"]


def current_stream(device: int) -> int:
    """torch's current stream on a GPU, as CUDA's number of it."""
    return torch.cuda.current_stream(device).cuda_stream


def _make(backend: Any, device: int) -> Gpu:
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        gpu = Gpu(backend.group, device, timeout=backend._timeout)
    backend._gpus[device] = gpu
    return gpu


def go(
    backend: Any,
    device: int,
    calls: Sequence[Call],
    wait: bool,
    value: Any,
    keep: Any,
    finish: Callable[[], None] | None,
) -> Any:
    """Start calls as one operation; a blocking one orders the current stream and returns what torch wants then."""
    try:
        gpu = backend._gpus.get(device) or _make(backend, device)
        ticket = gpu.submit(calls, current_stream(device), (keep, value))
    except HoraError as error:
        backend._error = error
        raise failure(error) from error
    work = GpuWork(gpu, ticket, value, finish, backend._live)
    if wait:
        work.wait()
        return backend._finished
    return work


def many(backend: Any, device: int, calls: list[tuple[Call, Callable | None]], wait: bool, value: Any) -> Any:
    """Start several calls, with what finishes each, as one operation."""

    def finish() -> None:
        for _, f in calls:
            if f is not None:
                f()

    return go(backend, device, [c for c, _ in calls], wait, value, calls, finish)


def close(backend: Any) -> None:
    """Give back what the backend made on GPUs."""
    gpus, backend._gpus = backend._gpus, {}
    for gpu in gpus.values():
        gpu.close()


class GpuWork(c10d.Work):
    """One operation on a GPU's stream."""

    def __init__(self, gpu: Gpu, ticket: int, value: Any, finish: Callable[[], None] | None, live: set) -> None:
        super().__init__()
        self.gpu, self.ticket, self.value, self.source = gpu, ticket, value, -1
        self._finish, self._live = finish, live
        self._failed: HoraError | None = None
        self._error: BaseException | None = None  # of the future
        self._followed = False
        self._future: torch.futures.Future | None = None
        self._lock = threading.Lock()
        live.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let the current stream go on after the operation; the host does not wait for the GPU."""
        seconds = timeout.total_seconds() if timeout else 0.0
        with self._lock:
            if self._failed is None:
                try:
                    self.gpu.follow(self.ticket, current_stream(self.gpu.device), seconds if seconds > 0 else None)
                except HoraError as error:
                    self._failed = error
            first, self._followed = not self._followed, True
            finish, self._finish = self._finish, None
        self._live.discard(self)
        if self._failed is None and finish is not None:
            finish()
        if first:
            self.gpu.release(self.ticket)
        if self._failed is not None:
            raise failure(self._failed)
        return True

    def synchronize(self) -> None:
        self.wait()

    def done(self) -> bool:
        return self.gpu.done(self.ticket)

    is_completed = done

    def exception(self) -> BaseException | None:
        if self._failed is None and not self._followed and self.gpu.done(self.ticket):
            try:
                self.gpu.wait(self.ticket, 0)
            except HoraError as error:
                self._failed = error
        return None if self._failed is None else failure(self._failed)

    def is_success(self) -> bool:
        return self.done() and self.exception() is None

    def result(self) -> Any:
        self.wait()
        return self.value

    def source_rank(self) -> int:
        return self.source

    def get_future(self) -> torch.futures.Future:
        """A future whose value may be used on any stream that waits for it.

        Through NCCL it is complete at once. Through host memory a thread completes it, so that a backward pass goes on.
        """
        if self._future is not None:
            return self._future
        future = _future(self.gpu.device)
        self._future = outcome = future.then(self._outcome)
        if self.gpu.path == "nccl":
            self._resolve(future)
        else:
            threading.Thread(target=self._resolve, args=(future,), name="hora-gpu-future", daemon=True).start()
        return outcome

    def _resolve(self, future: torch.futures.Future) -> None:
        try:
            with _side_stream(self.gpu.device):
                self.wait()
                future.set_result(self.value)
        except BaseException as error:
            self._error = error
            future.set_result(None)

    def _outcome(self, _: torch.futures.Future) -> Any:
        """The value, or the error raised: only what `then` raises is a failure for torch's C++ side too."""
        if self._error is not None:
            raise self._error
        return self.value


def _future(device: int) -> torch.futures.Future:
    return torch.futures.Future(devices=[torch.device("cuda", device)])


_side: dict[int, Any] = {}


def _side_stream(device: int) -> Any:
    """A stream for completing futures: the caller's own goes on meanwhile."""
    if device not in _side:
        _side[device] = torch.cuda.Stream(device)
    return torch.cuda.stream(_side[device])
