"""hora's groups and errors as Horovod's programs know them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hora

from .exceptions import HorovodInternalError
from .process_sets import ProcessSet, table
from .switches import NotInitialized

__all__ = ["NotMember", "group_of", "internal", "root_in", "shut_down", "translated"]


class NotMember(ValueError):
    """A call with a process set that this rank is not in."""


def shut_down(why: object) -> HorovodInternalError:
    return HorovodInternalError(
        f"Horovod has been shut down. This was caused by an exception on one of the ranks or by a call of shutdown(): {why}"
    )


def internal(error: hora.HoraError) -> Exception:
    """hora's error as the class a Horovod script expects."""
    if isinstance(error, hora.NotInitializedError) and not isinstance(error, hora.ForkedError):
        return NotInitialized()
    if isinstance(error, ValueError):
        return ValueError(str(error))
    if isinstance(error, (hora.ClosedError, hora.PeerLostError)):
        return shut_down(error)
    return HorovodInternalError(str(error))


def group_of(process_set: ProcessSet) -> hora.Group:
    """The set's group; raises unless this process may use it."""
    group = process_set.group
    if group is not None:
        return group
    if not hora.is_initialized():
        raise NotInitialized()
    if process_set.process_set_id is None or process_set.process_set_id not in table():
        raise ValueError(
            f"Process set provided does not exist, or has not been registered: {process_set}; give it to init() or add_process_set()"
        )
    if max(process_set.ranks or [0]) >= hora.size():
        raise ValueError(
            f"Process set of ranks {process_set.ranks} cannot be used: the job goes on with ranks 0 to {hora.size() - 1}; "
            "add one of those ranks, or have lost workers replaced (hora run --restarts N)"
        )
    raise NotMember(
        f"Tried to use a process set that this rank does not belong to: rank {hora.rank()} is not in {process_set.ranks}; "
        "call it on its members only (process_set.included())"
    )


def root_in(process_set: ProcessSet, root_rank: int) -> int:
    """The root's place in the set, from its rank in the job."""
    ranks = process_set.ranks
    if ranks is None:
        raise NotInitialized()
    try:
        return ranks.index(int(root_rank))
    except ValueError:
        raise ValueError(
            f"broadcast received invalid root rank {root_rank} for provided process set: its ranks are {ranks}"
        ) from None


def translated(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with hora's errors as Horovod's classes."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except hora.HoraError as error:
            raise internal(error) from error

    return call
