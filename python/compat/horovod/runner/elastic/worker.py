"""Tells states of this process that the job's hosts have changed."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["HostUpdateResult", "WorkerNotificationManager", "notification_manager"]


class HostUpdateResult:
    """What changed among the hosts: bits."""

    no_update, removed, added = 0, 1, 2
    mixed = removed | added


class WorkerNotificationManager:
    """Hands host changes that the launcher reports to the states that are listening."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _listeners
        self._listeners: set[Any] = set()
        self._started = False

    def init(self, *_: Any, **__: Any) -> None:
        """Begin to listen to the launcher; harmless when the job is not elastic."""
        with self._lock:
            if self._started:
                return
            self._started = True
        try:
            from hora import elastic
        except ImportError:
            return
        subscribe = getattr(elastic, "on_hosts_updated", None)
        if subscribe is not None:
            subscribe(self.handle_hosts_updated)

    def register_listener(self, listener: Any) -> None:
        with self._lock:
            self._listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        with self._lock:
            self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()
