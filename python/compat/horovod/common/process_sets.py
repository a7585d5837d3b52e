"""Process sets: some of the ranks, with collectives of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import hora
from hora import frontend
from hora.group import NAMED, Call, Kind

from .switches import dynamic_process_sets, fact

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "is_process_set_included", "remove_process_set"]


class ProcessSet:
    """Ranks that communicate among themselves; give it to init() or add_process_set() before using it."""

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: None = None  # there is no MPI
    _old: hora.Group | None = None  # what optimizers hold: it is opened again in the next epoch
    _twins: tuple[ProcessSet, ...] = ()  # objects that were added later, with the same ranks

    def __init__(self, ranks_or_comm: Any) -> None:
        if hasattr(ranks_or_comm, "Get_group") or not isinstance(ranks_or_comm, Iterable):
            raise ValueError(
                "ProcessSet takes a list of ranks; an MPI communicator needs Horovod's MPI mode, which hora does not have: "
                "pass the ranks, for example list(range(0, hvd.size(), 2))"
            )
        given = list(ranks_or_comm)  # an iterator can be asked once
        self.ranks = sorted({int(r) for r in given})
        if len(self.ranks) != len(given):
            raise ValueError(f"ProcessSet ranks {given} name one rank twice; list each rank once")
        self.group: hora.Group | None = None

    def _attach(self, number: int, group: hora.Group | None) -> None:
        for one in (self, *self._twins):
            one.process_set_id, one.group = number, group

    def _detach(self, keep: bool = False) -> None:
        """No longer registered; with `keep` it may be again in the next epoch."""
        group = self.group
        for one in (self, *self._twins):
            one.process_set_id = one.group = None
        self._old = (group or self._old) if keep else None
        self._twins = self._twins if keep else ()
        if group is not None and hora.is_initialized():
            group.close()

    def _open(self, number: int) -> None:
        """Make the group together with its other members; a set with a rank that is missing has none."""
        tag, mine = f"horovod/process_set/{number}", hora.rank() in self.ranks
        group = self._old
        if self.ranks[-1] >= hora.size():
            mine = False
        elif group is not None:
            group.reopen(tag, self.ranks if mine else None)
        elif mine:
            group = hora.Group(self.ranks, tag=tag)
            if not frontend.is_elastic():  # there a newcomer makes what others open again
                group.run(
                    Call(Kind.BARRIER, name="process_set", flags=NAMED)
                )  # while all are here: a first call may come late
        self._attach(number, group if mine else None)

    def size(self) -> int | None:
        """How many ranks it has; None before it is registered."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """This process's rank in it; None before it is registered or outside of it."""
        if self.process_set_id is None or not self.included():
            return None
        return self.ranks.index(fact("rank"))

    def included(self) -> bool | None:
        """Whether this process belongs to it; None before it is registered."""
        return None if self.process_set_id is None else fact("rank") in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__


class _GlobalSet(ProcessSet):
    def __init__(self) -> None:
        self.group = None
        self.process_set_id = 0

    def size(self) -> int | None:
        return fact("size")

    def rank(self) -> int | None:
        return fact("rank")

    def included(self) -> bool | None:
        return True


global_process_set = _GlobalSet()

_table: dict[int, ProcessSet] = {0: global_process_set}
_carried: set[int] = set()  # those that come from an earlier epoch


def table() -> dict[int, ProcessSet]:
    """The registered sets by number; 0 is the global one."""
    return _table


def start(sets: Sequence[ProcessSet]) -> None:
    """At init: the global set, then the given ones in order."""
    global_process_set.group = hora.world()
    global_process_set.ranks = list(range(hora.size()))
    for one in sets:
        register(one)


def stop(keep: bool = False) -> list[tuple[int, ProcessSet]]:
    """At shutdown: no set is registered any more. Those that were, for resume()."""
    kept = [(number, _table.pop(number)) for number in sorted(_table) if number]
    for _, one in reversed(kept):
        one._detach(keep)
    _carried.clear()
    global_process_set.group = None
    global_process_set.ranks = None
    return kept


def resume(kept: list[tuple[int, ProcessSet]] | None, given: Sequence[ProcessSet] = ()) -> None:
    """At an epoch's start, on every rank: go on with the sets of the lowest rank that has come from an earlier epoch.

    `kept` is what stop() said, None on a newcomer, which has those `given` to init().
    """
    every = meet("begin", None if kept is None else [(number, one.ranks) for number, one in kept])
    lead = next((theirs for theirs in every if theirs is not None), None)
    if lead is None:
        for one in given:
            register(one)
        return
    held: dict[tuple[int, ...], ProcessSet] = {}
    for one in [*(one for _, one in kept or ()), *given]:
        held.setdefault(tuple(one.ranks), one)
    for number, ranks in lead:
        _table[number] = held.get(tuple(ranks)) or ProcessSet(ranks)
        _carried.add(number)
    for number, _ in lead:
        _table[number]._open(number)


def register(one: ProcessSet) -> ProcessSet:
    """Give a set its number and its group; every rank of the job calls it, with the same ranks."""
    known = _known(one.ranks)
    if known is not None:
        if one.process_set_id is None:
            known._twins += (one,)
            one.process_set_id, one.group = known.process_set_id, known.group
        return one
    if one.process_set_id is not None:
        raise ValueError(f"Process set {one} is already registered; register each set once")
    world = hora.size()
    bad = [r for r in one.ranks if not 0 <= r < world]
    if bad or not one.ranks:
        raise ValueError(f"Process set of ranks {one.ranks}: the job has ranks 0 to {world - 1}; list only those")
    if any(other.ranks == one.ranks for other in _table.values()):
        raise ValueError(
            f"A process set with the ranks {one.ranks} already exists; use that one instead of adding it again"
        )
    _agree(one.ranks, "add")
    number = next(i for i in range(len(_table) + 1) if i not in _table)
    _table[number] = one
    one._open(number)
    return one


def _known(ranks: list[int]) -> ProcessSet | None:
    """The set of these ranks that has come from an earlier epoch: a newcomer adds it, and no other rank does."""
    return next((one for number, one in _table.items() if number in _carried and one.ranks == ranks), None)


def unregister(one: ProcessSet) -> bool:
    number = one.process_set_id
    if not number or number not in _table or _table[number].ranks != one.ranks:
        return False
    _agree(one.ranks, "remove")
    _carried.discard(number)
    _table.pop(number)._detach()
    return True


def _agree(ranks: list[int], what: str) -> None:
    """Every rank must name the same ranks; a difference is an error on all of them."""
    for r, theirs in enumerate(meet(what, ranks)):
        if theirs != ranks:
            raise ValueError(
                f"Process sets differ between ranks: rank {hora.rank()} wants to {what} {ranks}, rank {r} "
                f"{theirs}; every rank must name the same sets in the same order"
            )


_MEANS = {
    "begin": "starts with its process sets",
    "add": "adds a process set",
    "remove": "removes a process set",
    "train": "goes on to train",
}


def meet(what: str, value: Any) -> list[Any]:
    """Every rank's value; an error on all ranks when they do not all come for the same reason."""
    if hora.size() == 1:
        return [value]
    every = hora.allgather_object((what, value), name="process_sets", named=True)
    for r, (theirs, _) in enumerate(every):
        if theirs != what:
            raise ValueError(
                f"Process sets differ between ranks: rank {hora.rank()} {_MEANS[what]} while rank {r} {_MEANS[theirs]}; "
                "add and remove them in the training function, or alike before it and in a reset callback"
            )
    return [value for _, value in every]


def is_process_set_included(process_set_id: int) -> bool:
    one = _table.get(process_set_id)
    return bool(one is not None and one.included())


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set after init; every rank of the job calls it. Needs dynamic process sets to be on."""
    dynamic_process_sets("add_process_set")
    if isinstance(process_set, ProcessSet):
        return register(process_set)
    one = ProcessSet(process_set)
    return _known(one.ranks) or register(one)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Take a set away; every rank of the job calls it. False when it was not registered."""
    dynamic_process_sets("remove_process_set")
    return unregister(process_set)
