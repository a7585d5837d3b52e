"""Elastic training: states that survive the loss and the arrival of ranks."""

from __future__ import annotations

import copy
import functools
import queue
import time
from collections.abc import Callable
from typing import Any

import hora
from hora import frontend
from hora.elastic import Drained
from hora.frontend import FRUITLESS, drained_by_sigterm, steps_since

from . import process_sets as registry
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
        self._commits = 0  # of the job, as this rank knows
        self._root = 0  # the rank whose values sync() spreads: the lowest of those with the most commits

    def register_reset_callbacks(self, callbacks: list[Callable[[], Any]]) -> None:
        """Call these whenever the ranks have changed: to rebuild what depends on the size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks have changed; called before the state is sent to newcomers."""
        from ..runner.elastic.worker import notification_manager

        with notification_manager.telling:  # what was told before is of the past
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
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on every rank when rank 0 has heard of a change; end the program where it was
        asked to leave."""
        news = 0
        if frontend.is_elastic():
            try:
                news = frontend.news()
            except hora.HoraError as error:
                raise HorovodInternalError(str(error)) from error
            if news == 1:
                self._host_messages.put((time.time(), ADDED))
        changes = NO_UPDATE
        latest = self._last_updated_timestamp
        while not self._host_messages.empty():
            timestamp, change = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                changes |= change
        told = changes
        previous, self._last_updated_timestamp, told = self._bcast_object((self._last_updated_timestamp, latest, told))
        if news == 2:
            raise Drained
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(told == REMOVED)

    def _undone(self) -> int:
        """Steps since the last commit, -1 when nobody counts them."""
        return -1

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

    def _undone(self) -> int:
        return steps_since(self._saved_state, self.__dict__) if self._commits else -1

    def sync(self) -> None:
        if self._saved_state:
            now = {name: getattr(self, name) for name in self._saved_state}
            # A function of the program's own may know no other root than 0, which it mostly is.
            self._saved_state = self._bcast_object(now, root_rank=self._root) if self._root else self._bcast_object(now)
            self._received()

    def _received(self) -> None:
        """The values of another rank are in _saved_state."""
        self.restore()


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """func(state, …) so that it goes on after a rank was lost or hosts have changed.

    SIGTERM lets the next commit be this rank's last: it leaves, is replaced, and the program ends.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        from ..runner.elastic.worker import notification_manager

        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            with drained_by_sigterm():
                return _Run(state, lambda: func(state, *args, **kwargs), reset).go()
        finally:
            notification_manager.remove_listener(state)

    return wrapper


class _Run:
    """The loop of run_fn."""

    def __init__(self, state: State, train: Callable[[], Any], reset: Callable[[], None]) -> None:
        self.state, self.train, self.reset = state, train, reset
        self.lives = self.vain = self.newest = 0
        self.broke, self.cause, self.again = (
            0.0,
            "",
            -1,
        )  # when the last life ended here, why, and the steps that are done again
        self.skip_sync = False

    def go(self) -> Any:
        while True:
            before = self.state._commits
            cause: Exception | None = None
            try:
                return self.life()
            except Drained:
                frontend.leave_elastic("the rank was asked to leave")
                raise
            except HostsUpdatedInterrupt as update:
                self.skip_sync = update.skip_sync
                self.cause, self.again = "workers come or go", 0
            except (HorovodInternalError, hora.PeerLostError, hora.ClosedError) as error:
                cause = error
                self.skip_sync = False
                self.cause, self.again = str(error), self.state._undone()
            self.broke = time.monotonic()
            self.vain = 0 if cause is None or self.state._commits > before else self.vain + 1
            if self.vain >= FRUITLESS:
                raise HorovodInternalError(
                    f"{self.vain} attempts in a row failed before anything was committed: {cause}"
                ) from cause
            self.reset()
            if cause is not None:
                self.state.restore()  # no rank of the old epoch touches this one's memory any more

    def life(self) -> Any:
        """From one change of the ranks to the next, or to the end."""
        self.lives += 1
        if self.lives > 1:
            self.state.on_reset()
        if frontend.is_elastic():
            self.agree()
        if not self.skip_sync:
            self.state.sync()
        self.state._commits = max(self.newest, self.state._commits, 1)  # only now: half of a state is no state
        if self.lives > 1:
            frontend.recovered(time.monotonic() - self.broke, self.again, self.cause)
        result = self.train()
        if frontend.is_elastic():
            hora.barrier()
            if not frontend.finish_elastic():
                raise HorovodInternalError("a rank was lost before all had finished")
        return result

    def agree(self) -> None:
        """Find whose state is the newest: a worker that replaces rank 0 is rank 0 too. All ranks skip sync, or none."""
        ranks = registry.meet("train", (self.state._commits, self.skip_sync))
        commits = [c for c, _ in ranks]
        self.newest = max(commits)
        self.state._root = commits.index(self.newest)
        self.skip_sync = all(skip for _, skip in ranks)
