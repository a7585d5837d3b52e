"""The exceptions that hora raises, one class for each thing a program can do about it."""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "ClosedError",
    "DeadlineError",
    "DrainedError",
    "FinishedError",
    "ForkedError",
    "HoraError",
    "InternalError",
    "MismatchError",
    "NotInitializedError",
    "PeerLostError",
    "SettingsError",
    "VersionError",
]


class HoraError(RuntimeError):
    """Whatever goes wrong inside hora; the classes below say what to do about it."""


class ArgumentError(HoraError, ValueError):
    """This rank's own call is wrong (type, shape, read-only, not contiguous); nothing was sent."""


class NotInitializedError(HoraError):
    """A call came before `hora.init()` or after `hora.shutdown()`."""


class MismatchError(HoraError):
    """The ranks asked for different things; every rank gets the same sentence and may go on."""


class PeerLostError(HoraError, ConnectionError):
    """Another rank has ended or cannot be reached; `rank` and `host` name it."""

    rank: int = -1
    host: str = ""


class DeadlineError(HoraError, TimeoutError):
    """An operation or a wait took longer than its timeout."""


class ClosedError(HoraError):
    """The group was closed or aborted while the operation was pending."""


class FinishedError(HoraError):
    """An elastic job's work was done before this worker could take part: nothing is left to do."""


class DrainedError(HoraError):
    """This worker was asked to leave an elastic job while it waited for the next epoch, and has left."""


class ForkedError(NotInitializedError):
    """The process is a forked child of one that had loaded hora; only a spawned one may use it."""


class SettingsError(HoraError, ValueError):
    """What the environment or the arguments of `hora.init` say cannot be used."""


class VersionError(HoraError, ImportError):
    """The shared library and this package are of different versions."""


class InternalError(HoraError):
    """A fault of hora itself; please report it with its text."""


# Numbers are those of enum hora_kind in hora.h.
BY_KIND: dict[int, type[HoraError]] = {
    1: ArgumentError,
    2: NotInitializedError,
    3: MismatchError,
    4: PeerLostError,
    5: DeadlineError,
    6: ClosedError,
    7: ForkedError,
    8: SettingsError,
    9: InternalError,
    10: HoraError,
    11: FinishedError,
    12: DrainedError,
}
