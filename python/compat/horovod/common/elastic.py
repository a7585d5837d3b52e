"""Elastic training: states that survive the loss and the arrival of ranks."""

from __future__ import annotations

import copy
import functools
import queue
import time
from collections.abc import Callable
from typing import Any

import hora
from hora import _world

from .exceptions import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["ObjectState", "State", "run_fn"]

# What changed among the hosts: bits that are added up.
NO_UPDATE, REMOVED, ADDED = 0, 1, 2


class State:
    """What has to be equal on all ranks; subclasses say how it is saved, restored and sent.

    `commit()` saves and looks whether hosts have changed; when they have it raises HostsUpdatedInterrupt on every rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue = queue.Queue()
        self._last_updated_timestamp = 0.0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: list[Callable[[], Any]]) -> None:
        """Call these whenever the ranks have changed: to rebuild what depends on the size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks have changed; called before the state is sent to newcomers."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note a change of hosts; commit() acts on it."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then check_host_updates()."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on every rank when any rank has heard of a change."""
        if _world.is_elastic():
            try:
                if _world.news() == 1:
                    self._host_messages.put((time.time(), ADDED))
            except hora.HoraError as error:
                raise HorovodInternalError(str(error)) from error
        changes = NO_UPDATE
        latest = self._last_updated_timestamp
        while not self._host_messages.empty():
            timestamp, change = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                changes |= change
        told = changes
        previous, self._last_updated_timestamp, told = self._bcast_object((self._last_updated_timestamp, latest, told))
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(told == REMOVED)

    def save(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define save()")

    def restore(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define restore()")

    def sync(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define sync()")

    def reset(self) -> None:
        """Override to rebuild what depends on rank and size."""


class ObjectState(State):
    """A state of plain attributes: `ObjectState(bcast, get_rank, epoch=0, batch=0)`."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = dict(kwargs)
        self._attributes = list(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        if self._saved_state:
            now = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._bcast_object(now)
            self.restore()


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """func(state, …) so that it goes on after a rank was lost or hosts have changed."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        from ..runner.elastic.worker import notification_manager

        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    result = func(state, *args, **kwargs)
                    if _world.is_elastic():
                        hora.barrier()
                        if not _world.finish_elastic():
                            raise HorovodInternalError("a rank was lost before all had finished")
                    return result
                except (HorovodInternalError, hora.PeerLostError, hora.ClosedError):
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as update:
                    skip_sync = update.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)

    return wrapper
