"""Process sets: some of the ranks, with collectives of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hora
from hora.group import DTYPES, FLAG_NAMED, Kind, Op

from .switches import dynamic_process_sets

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "is_process_set_included", "remove_process_set"]


class ProcessSet:
    """Ranks that communicate among themselves; give it to init() or add_process_set() before using it."""

    process_set_id: int | None = None
    ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Any) -> None:
        if hasattr(ranks_or_comm, "Get_group") or not isinstance(ranks_or_comm, (list, tuple, range, set)):
            raise ValueError(
                "ProcessSet takes a list of ranks; an MPI communicator needs Horovod's MPI mode, which hora does not have: "
                "pass the ranks, for example list(range(0, hvd.size(), 2))"
            )
        self.ranks = sorted({int(r) for r in ranks_or_comm})
        if len(self.ranks) != len(list(ranks_or_comm)):
            raise ValueError(f"ProcessSet ranks {list(ranks_or_comm)} name one rank twice; list each rank once")
        self.group: hora.Group | None = None

    def _attach(self, number: int, group: hora.Group | None) -> None:
        self.process_set_id, self.group = number, group

    def _detach(self) -> None:
        group, self.group, self.process_set_id = self.group, None, None
        if group is not None and hora.is_initialized():
            group.close()

    def size(self) -> int | None:
        """How many ranks it has; None before it is registered."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """This process's rank in it; None before it is registered or outside of it."""
        if self.process_set_id is None or not self.included():
            return None
        return self.ranks.index(hora.rank())

    def included(self) -> bool | None:
        """Whether this process belongs to it; None before it is registered."""
        return None if self.process_set_id is None else hora.rank() in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _GlobalSet(ProcessSet):
    def __init__(self) -> None:
        self.group = None
        self.process_set_id = 0

    def size(self) -> int | None:
        return hora.size()

    def rank(self) -> int | None:
        return hora.rank()

    def included(self) -> bool | None:
        return True


global_process_set = _GlobalSet()

_table: dict[int, ProcessSet] = {0: global_process_set}


def table() -> dict[int, ProcessSet]:
    """The registered sets by number; 0 is the global one."""
    return _table


def start(sets: Sequence[ProcessSet]) -> None:
    """At init: the global set, then the given ones in order."""
    global_process_set.group = hora.world()
    global_process_set.ranks = list(range(hora.size()))
    for one in sets:
        register(one)


def stop() -> None:
    """At shutdown: no set is registered any more."""
    for number in sorted(_table, reverse=True):
        if number:
            _table.pop(number)._detach()
    global_process_set.group = None
    global_process_set.ranks = None


def register(one: ProcessSet) -> ProcessSet:
    """Give a set its number and its group; every rank of the job calls it, with the same ranks."""
    if one.process_set_id is not None:
        raise ValueError(f"Process set {one} is already registered; register each set once")
    world = hora.size()
    bad = [r for r in one.ranks if not 0 <= r < world]
    if bad or not one.ranks:
        raise ValueError(f"Process set of ranks {one.ranks}: the job has ranks 0 to {world - 1}; list only those")
    if any(other.ranks == one.ranks for other in _table.values()):
        raise ValueError(f"A process set with the ranks {one.ranks} already exists; use that one instead of adding it again")
    _agree(one.ranks, "add")
    number = next(i for i in range(len(_table) + 1) if i not in _table)
    _table[number] = one
    group = hora.Group(one.ranks, tag=f"horovod/process_set/{number}") if hora.rank() in one.ranks else None
    one._attach(number, group)
    return one


def unregister(one: ProcessSet) -> bool:
    if one.process_set_id in (None, 0) or _table.get(one.process_set_id) is not one:
        return False
    _agree(one.ranks, "remove")
    del _table[one.process_set_id]
    one._detach()
    return True


def _agree(ranks: list[int], what: str) -> None:
    """Every rank must name the same ranks; a difference is an error on all of them."""
    import array

    world = hora.world()
    size = world.size
    if size == 1:
        return
    mine = array.array("q", [len(ranks), *ranks, *([-1] * (size - len(ranks)))])
    every = array.array("q", bytes(8 * (size + 1) * size))
    world.run(
        Kind.ALLGATHER, Op.SUM, DTYPES["int64"], 0, mine.buffer_info()[0], every.buffer_info()[0], size + 1,
        recv_count=(size + 1) * size, flags=FLAG_NAMED, name=f"process_set.{what}",
    )  # fmt: skip
    for r in range(size):
        theirs = every[r * (size + 1) : (r + 1) * (size + 1)]
        if theirs != mine:
            raise ValueError(
                f"Process sets differ between ranks: rank {hora.rank()} wants to {what} {ranks}, rank {r} "
                f"{list(theirs[1 : 1 + theirs[0]])}; every rank must name the same sets in the same order"
            )


def is_process_set_included(process_set_id: int) -> bool:
    one = _table.get(process_set_id)
    return bool(one is not None and one.included())


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set after init; every rank of the job calls it. Needs dynamic process sets to be on."""
    dynamic_process_sets("add_process_set")
    return register(process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set))


def remove_process_set(process_set: ProcessSet) -> bool:
    """Take a set away; every rank of the job calls it. False when it was not registered."""
    dynamic_process_sets("remove_process_set")
    return unregister(process_set)
