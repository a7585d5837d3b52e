"""From a torch process group to a hora group: joins the job when nobody has done so."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .. import _meeting, comm
from ..errors import ArgumentError
from ..group import Group

__all__ = ["Owned", "group_for"]


class Owned:
    """Closes a group that was made for a backend."""

    def __init__(self, group: Group | None) -> None:
        self._group = group

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and comm.is_initialized():
            group.close()


class OwnedWorld(Owned):
    """Leaves the job that init_process_group joined."""

    def __init__(self) -> None:
        super().__init__(None)

    def close(self) -> None:
        comm.shutdown()


def group_for(opts: Any) -> tuple[Group, Owned | None, str]:
    """The hora group for torch's options, what to close at its end, and its name."""
    rank, size = opts.group_rank, opts.group_size
    name = str(getattr(opts, "group_id", "") or "default")
    ranks = list(getattr(opts, "global_ranks_in_group", None) or range(size))
    store = _meet(opts.store, rank, size, name, opts.timeout) if size > 1 else opts.store
    if not comm.is_initialized():
        owner = _join(store, rank, size)
        if ranks == list(range(comm.size())):
            return comm.world(), owner, name
        return Group(ranks, tag=f"torch/{name}"), owner, name
    _check(rank, size, ranks)
    group = Group(ranks, tag=f"torch/{name}")
    return group, Owned(group), name


class _Shared:
    """torch's store as hora.init asks for it (`_meeting.Store`); what an earlier life has left in it says nothing."""

    def __init__(self, store: Any, rank: int) -> None:
        self.here = dist.PrefixStore(f"hora/{store.add(f'hora/lives/{rank}', 1)}", store)

    def set(self, key: str, value: str) -> None:
        self.here.set(key, value)

    def get(self, key: str) -> str:
        return self.here.get(key).decode()

    def add(self, key: str, n: int) -> int:
        return self.here.add(key, n)

    def check(self, keys: list[str]) -> bool:
        return self.here.check(keys)

    def seen(self, key: str, seconds: float) -> bool:
        try:
            self.here.wait([key], timedelta(seconds=seconds))
        except dist.DistNetworkError as lost:
            raise dist.DistBackendError(
                "make torch process group: the process that serves torch's store has ended; look at the output of rank 0"
            ) from lost
        except RuntimeError:  # torch's DistStoreError is one
            return False
        return True


def _meet(store: Any, rank: int, size: int, name: str, timeout: timedelta) -> _Shared:
    """Wait in torch's store until every rank has asked for this group with this backend. One that uses another backend
    never comes."""
    shared, seconds = _Shared(store, rank), timeout.total_seconds()
    _meeting.meet(
        shared, rank, size, seconds,
        lambda missing: dist.DistBackendError(
            f'make torch process group {name!r}: {missing} of {size} did not ask for it with backend "hora" within the timeout of '
            f"{seconds:g} s; give every rank the same backend and world size, and look at their output"
        ),
        lambda missing: f"hora: torch process group {name!r} waits for {missing} of {size}",
    )  # fmt: skip
    return shared


def _check(rank: int, size: int, ranks: list[int]) -> None:
    world = comm.size()
    if any(r >= world for r in ranks) or ranks[rank] != comm.rank():
        raise ArgumentError(
            f"make torch process group: torch says rank {ranks[rank]} of ranks {ranks}, hora was initialized as rank "
            f"{comm.rank()} of {world}; start both from the same launcher, or drop the rank and world_size arguments"
        )


def _join(store: Any, rank: int, size: int) -> Owned:
    """Join by the environment where it names this very job, else through torch's store."""
    if _environment_fits(rank, size):
        comm.init()
    else:
        comm.init(**_meeting.settings(store, rank, size, "torch's store", "torch"))
    return OwnedWorld()


def _environment_fits(rank: int, size: int) -> bool:
    """`hora run`, or a launcher on one host that set rank and size as torch was told them."""
    env = os.environ
    if size == 1:
        return False
    for r, s in (("HORA_RANK", "HORA_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE")):
        if r in env:
            return env[r] == str(rank) and env.get(s) == str(size)
    return False
