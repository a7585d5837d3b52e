"""What init() decided, for this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import hora

__all__ = ["NotInitialized", "Switches", "dynamic_process_sets", "fact", "on_shutdown"]


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


def fact(name: str) -> int:
    """What hora says of this process's place: rank, size, local_rank, … Data loaders' workers ask too, and get their
    parent's."""
    try:
        return getattr(hora, name)()
    except hora.ForkedError:
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
