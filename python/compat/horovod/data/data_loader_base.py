"""A base class for data loaders, and a mixin that lets one read ahead in a background thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

# How long a producer waits in one piece before it looks whether it was asked to stop, in seconds.
_SLICE = 0.1


class BaseDataLoader:
    """Iterating gives `_process_batch(batch)` for every batch of `_iterate()`."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def _iterate(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define _iterate")

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Override to change a batch before it is handed out."""
        return batch


class AsyncDataLoaderMixin:
    """Put it before a BaseDataLoader: `class Loader(AsyncDataLoaderMixin, MyLoader)`.

    A thread runs `_iterate()` and keeps up to `async_loader_queue_size` batches ready; 0 reads in the caller's
    thread. `close_async_loader()` stops it; an exception of the loader is raised to whoever iterates.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self.started = False
        self.queue: queue.Queue | None = None
        self.thread: threading.Thread | None = None
        self.finished_event = threading.Event()
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Stop the thread and wait for it; the loader can be iterated again afterwards."""
        self.finished_event.set()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join()
        self.thread = None
        self.started = False

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()
            return
        self.close_async_loader()  # an iteration that was left half-way
        self.finished_event = stop = threading.Event()
        self.queue = ready = queue.Queue(self.async_loader_queue_size)
        self.thread = threading.Thread(target=self._fill, args=(ready, stop), daemon=True, name="hora-data-loader")
        self.started = True
        self.thread.start()
        try:
            while True:
                kind, value = ready.get()
                if kind == "end":
                    return
                if kind == "error":
                    raise value
                yield self._process_batch(value)
        finally:
            if self.finished_event is stop:
                self.close_async_loader()

    def _fill(self, ready: queue.Queue, stop: threading.Event) -> None:
        try:
            for batch in self._iterate():
                if not _put(ready, ("batch", batch), stop):
                    return
            last = ("end", None)
        except BaseException as error:  # handed to the consumer, which raises it
            last = ("error", error)
        _put(ready, last, stop)

    def __del__(self) -> None:
        self.finished_event.set()


def _put(ready: queue.Queue, item: Any, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            ready.put(item, timeout=_SLICE)
            return True
        except queue.Full:
            continue
    return False
