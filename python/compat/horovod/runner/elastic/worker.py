"""Tells states of this process that the job's hosts have changed."""

from __future__ import annotations

import threading
import time
from typing import Any

import hora
from hora import frontend

__all__ = ["HostUpdateResult", "WorkerNotificationManager", "notification_manager"]


class HostUpdateResult:
    """What changed among the hosts: bits."""

    no_update, removed, added = 0, 1, 2
    mixed = removed | added


# How often a worker looks for news, in seconds. A look costs about a microsecond and asks nobody.
_LOOK = 0.1


class WorkerNotificationManager:
    """Hands host changes that the launcher reports to the states that are listening, while the training runs."""

    def __init__(self) -> None:
        self.telling = threading.Lock()  # held from a look to the end of what is told of it
        self._lock = threading.Lock()  # guards what follows
        self._listeners: set[Any] = set()
        self._stop: threading.Event | None = None  # of the thread that looks

    def init(self, *_: Any, **__: Any) -> None:
        """Horovod's server of notifications begins here; ours needs no call."""

    def register_listener(self, listener: Any) -> None:
        with self._lock:
            self._listeners.add(listener)
            if self._stop is None and frontend.is_elastic():
                self._stop = threading.Event()
                threading.Thread(target=self._look, args=(self._stop,), name="hora-host-news", daemon=True).start()

    def remove_listener(self, listener: Any) -> None:
        with self._lock:
            self._listeners.discard(listener)
            if not self._listeners and self._stop is not None:
                self._stop.set()
                self._stop = None

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)

    def _look(self, stop: threading.Event) -> None:
        """Tell the listeners, once an epoch each, that hosts come and that hosts go, this rank's own or another's."""
        told, of = 0, -1  # what, and in which life
        while not stop.wait(_LOOK):
            with self.telling:
                age = frontend.life()
                if age != of:
                    told, of = 0, age
                try:
                    new = self._changed() & ~told
                except hora.HoraError:  # between two epochs, or the present one is over: operations say so
                    continue
                if new and age == frontend.life():
                    told |= new
                    self.handle_hosts_updated(time.time(), new)

    @staticmethod
    def _changed() -> int:
        """What has changed for this epoch so far: workers may be on their way only, so that who resets waits for
        them."""
        if not frontend.is_elastic():
            return HostUpdateResult.no_update
        r = HostUpdateResult
        return (r.no_update, r.added, r.removed, r.added, r.removed, r.mixed)[frontend.foresight()]


notification_manager = WorkerNotificationManager()
