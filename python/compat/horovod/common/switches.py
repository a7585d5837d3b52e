"""What init() decided, for this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import hora

__all__ = ["NotInitialized", "Switches", "dynamic_process_sets", "fact", "on_shutdown"]

# What a process knows of its place in the job.
FACTS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


class NotInitialized(ValueError, RuntimeError):
    """A call came before hvd.init() or after hvd.shutdown()."""

    def __init__(self) -> None:
        super().__init__("Horovod has not been initialized; use hvd.init().")


class Switches:
    """What init() decided; one per process, as Horovod has one engine per process."""

    dynamic = False
    sets = False  # whether there may be process sets: all ranks of a job say the same
    exit_hook = False
    at_shutdown: ClassVar[list[Callable[[], None]]] = []
    facts: ClassVar[dict[str, int]] = {}  # of this life of the job, for forked children


def fact(name: str) -> int:
    """One of FACTS. Data loaders' workers ask too: in a forked child it is what it was in the parent."""
    try:
        return getattr(hora, name)()
    except hora.ForkedError:
        if name in Switches.facts:
            return Switches.facts[name]
        raise
    except hora.NotInitializedError:
        raise NotInitialized() from None


def on_shutdown(f: Callable[[], None]) -> None:
    """Call f at every shutdown (a framework module forgets its handles)."""
    Switches.at_shutdown.append(f)


def dynamic_process_sets(call: str) -> None:
    """Raise unless process sets may change now."""
    if not hora.is_initialized():
        raise NotInitialized()
    if not Switches.dynamic:
        raise ValueError(
            f"{call}: dynamic process sets are off; call hvd.init(process_sets='dynamic') or set HOROVOD_DYNAMIC_PROCESS_SETS=1"
        )
