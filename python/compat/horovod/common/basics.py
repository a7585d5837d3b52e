"""init, shutdown, ranks and what was built: the part of the surface that every framework module shares."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import hora
from hora import elastic, frontend

from . import process_sets as registry
from .exceptions import HorovodInternalError
from .process_sets import ProcessSet
from .switches import NotInitialized, Switches, dynamic_process_sets, fact, on_shutdown

__all__ = [
    "Adasum", "Average", "HorovodBasics", "Max", "Min", "NotInitialized", "Product", "Sum", "dynamic_process_sets",
    "on_shutdown",
]  # fmt: skip

Average, Sum, Adasum, Min, Max, Product = range(6)

# Our operators by Horovod's numbers.
OPERATORS = {
    Average: hora.AVERAGE,
    Sum: hora.SUM,
    Adasum: hora.ADASUM,
    Min: hora.MIN,
    Max: hora.MAX,
    Product: hora.PRODUCT,
}

OPERATOR_NAMES = {Average: "Average", Sum: "Sum", Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}


def _asked(name: str) -> Callable[..., int]:
    def ask(self: HorovodBasics) -> int:
        return fact(name)

    ask.__name__ = name
    ask.__doc__ = getattr(hora, name).__doc__
    return ask


class InitFailed(HorovodInternalError, ValueError):
    """init() did not join the job; Horovod's raises a ValueError, and elastic programs know the other class."""


class HorovodBasics:
    """The calls that need no tensor; every framework module re-exports one object's methods."""

    Average, Sum, Adasum, Min, Max, Product = Average, Sum, Adasum, Min, Max, Product

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        pass

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Join the job; calling it again while initialized does nothing.

        `comm` may be a list of ranks that is the whole world. `process_sets` is a list, or "dynamic".
        """
        if hora.is_initialized():
            if registry.global_process_set.group is None:
                registry.start([])
            return
        self._refuse_modes(comm)
        sets: list[ProcessSet] = []
        if isinstance(process_sets, str):
            if process_sets.lower() != "dynamic":
                raise ValueError(f"init: process_sets={process_sets!r}: give a list of ProcessSet, or 'dynamic'")
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        elif process_sets is not None:
            sets = list(process_sets)
            if any(not isinstance(s, ProcessSet) for s in sets):
                raise ValueError("init: process_sets must be a list of horovod ProcessSet objects")
        try:
            # All calls here are by name. How long init() waits for a rank has a bound, its way to the first call has
            # none.
            hora.init(named=True)
        except hora.SettingsError as error:
            raise ValueError(str(error)) from error
        except hora.HoraError as error:
            raise InitFailed(str(error)) from error
        world = hora.size()
        if isinstance(comm, (list, tuple)) and comm and sorted(comm) != list(range(world)):
            hora.shutdown()
            raise ValueError(
                f"init: comm={list(comm)} is not the whole job of {world} ranks; start a job of that size, or use process_sets"
            )
        Switches.dynamic = os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "0") not in ("", "0", "false", "False")
        Switches.sets = Switches.dynamic or bool(sets)
        try:
            if Switches.sets and frontend.is_elastic():
                self._settle(None, sets)
            else:
                registry.start(sets)
        except (
            Exception
        ) as error:  # half of the sets are no start: the other ranks hear of it, and init() may come again
            self.shutdown()
            if isinstance(error, hora.HoraError) and not isinstance(error, ValueError):
                raise InitFailed(str(error)) from error
            raise
        if not Switches.exit_hook:
            Switches.exit_hook = True
            atexit.register(self._at_exit)

    @staticmethod
    def _refuse_modes(comm: Any) -> None:
        if comm is not None and not isinstance(comm, (list, tuple)):
            raise ValueError(
                "init: an MPI communicator needs Horovod's MPI mode, which hora does not have; call hvd.init() without it, "
                "and start with `hora run` or mpirun"
            )
        for name in ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"):
            if os.environ.get(name, "").lower() == "mpi":
                raise ValueError(
                    f"init: {name}=mpi asks for Horovod's MPI mode, which hora does not have; unset it (mpirun itself works)"
                )

    def shutdown(self) -> None:
        """Leave the job; init() afterwards joins anew."""
        if not hora.is_initialized():
            return
        for f in Switches.at_shutdown:
            f()
        registry.stop()
        try:
            hora.shutdown()
        except hora.MismatchError as error:
            # Calls here are matched by name, so one that only some ranks made has met no other one: Horovod's shutdown
            # says nothing of it, and who asks for its result hears why there is none.
            print(f"hora: warning: {error}", file=sys.stderr, flush=True)

    def _at_exit(self) -> None:
        """Leave, unless the program ends by an exception: then the others are to know this rank as lost."""
        if getattr(sys, "last_value", None) is None:
            self.shutdown()

    def rejoin(self) -> None:
        """Go on in the job's next epoch: with the ranks that are left, and those that replace the others."""
        kept = registry.stop(keep=True)
        if not frontend.is_elastic():
            given = Switches.sets
            self.shutdown()
            self.init()
            Switches.sets = given or Switches.sets
            if Switches.sets:
                registry.resume(kept)
            return
        for f in Switches.at_shutdown:
            f()
        self._next_epoch()
        self._settle(kept, [])

    def _next_epoch(self) -> None:
        try:
            elastic.next_epoch()
        except hora.HoraError as error:
            raise RuntimeError(f"go on in the next epoch: {error}") from error

    def _settle(self, kept: list[tuple[int, ProcessSet]] | None, given: Sequence[ProcessSet]) -> None:
        """Have the same process sets as the others, in the first epoch in which none of them is lost meanwhile."""
        while True:
            registry.start([])
            try:
                if Switches.sets:
                    registry.resume(kept, given)
                return
            except (hora.PeerLostError, hora.ClosedError):
                registry.stop(keep=True)
                self._next_epoch()

    def is_initialized(self) -> bool:
        """Whether init() has been called; in a forked child, whether it had been in the parent."""
        try:
            fact("rank")
        except (NotInitialized, hora.ForkedError):
            return False
        return True

    rank = _asked("rank")
    size = _asked("size")
    local_rank = _asked("local_rank")
    local_size = _asked("local_size")
    cross_rank = _asked("cross_rank")
    cross_size = _asked("cross_size")

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        return self.local_size() * self._hosts() == self.size() and self._agree_local_size()

    def _hosts(self) -> int:
        return max(1, -(-self.size() // max(1, self.local_size())))

    def _agree_local_size(self) -> bool:
        hosts = frontend.hosts()
        if hosts is None:
            return True
        counts = {hosts.count(h) for h in hosts}
        return len(counts) <= 1

    def mpi_threads_supported(self) -> bool:
        """Any thread may call hora."""
        if not hora.is_initialized():
            raise NotInitialized()
        return True

    def mpi_enabled(self) -> bool:
        return False

    def mpi_built(self) -> bool:
        return False

    def gloo_enabled(self) -> bool:
        return True

    def gloo_built(self) -> bool:
        return True

    def nccl_built(self) -> int:
        return 0

    def ddl_built(self) -> bool:
        return False

    def ccl_built(self) -> bool:
        return False

    def cuda_built(self) -> bool:
        return False

    def rocm_built(self) -> bool:
        return False

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Begin to write what every operation does; rank 0 writes the file."""
        if not hora.is_initialized():
            raise NotInitialized()
        if not os.environ.get("HOROVOD_TIMELINE"):
            raise ValueError(
                "start_timeline: the timeline is off; set HOROVOD_TIMELINE=DYNAMIC before hvd.init() to start and stop it"
            )
        try:
            hora.start_timeline(file_path, mark_cycles=mark_cycles)
        except hora.HoraError as error:
            raise ValueError(f"start_timeline: {error}") from error

    def stop_timeline(self) -> None:
        """Finish the file."""
        if not hora.is_initialized():
            raise NotInitialized()
        if not os.environ.get("HOROVOD_TIMELINE"):
            raise ValueError(
                "stop_timeline: the timeline is off; set HOROVOD_TIMELINE=DYNAMIC before hvd.init() to start and stop it"
            )
        try:
            hora.stop_timeline()
        except hora.HoraError as error:
            raise ValueError(f"stop_timeline: {error}") from error

    # -- names that scripts reach for although they were private

    def _process_set_table(self) -> dict[int, ProcessSet]:
        if not hora.is_initialized():
            raise NotInitialized()
        return registry.table()

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        return {number: list(s.ranks or []) for number, s in self._process_set_table().items()}

    def _add_process_set_impl(self, ranks: Sequence[int]) -> int:
        return registry.add_process_set(ranks).process_set_id

    def _remove_process_set_impl(self, process_set_id: int) -> int | None:
        one = self._process_set_table().get(process_set_id)
        return process_set_id if one is not None and registry.remove_process_set(one) else None

    def _process_set_rank(self, process_set_id: int) -> int:
        return self._known(process_set_id).rank()

    def _process_set_size(self, process_set_id: int) -> int:
        return self._known(process_set_id).size()

    def _known(self, process_set_id: int) -> ProcessSet:
        one = self._process_set_table().get(process_set_id)
        if one is None:
            raise ValueError(f"Process set {process_set_id} does not exist; add it first")
        return one
