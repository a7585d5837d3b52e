"""The job this process is in: joining, leaving, groups, registered memory."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from typing import Any

from . import _abi, _lib
from ._find import find
from ._version import __version__
from .errors import DrainedError, FinishedError, HoraError, InternalError, MismatchError, SettingsError, VersionError

EXIT_WAIT = 2.0  # seconds that the end of the program waits for the others to be told

_named = False  # whether a foreign horovod has been named; once is enough


def init(settings: dict[str, Any]) -> None:
    """Join the job; see hora.init."""
    if _lib.world is not None:
        return
    lib = _lib.load()
    other = _abi.in_a_job(find())
    if other:
        raise VersionError(
            f"init: this process has two copies of hora's library, and {other} is in a job already; {find()} would join it as the same rank. "
            "Use the package that was initialized, and remove the other one (pip list, sys.path, HORA_LIBRARY)"
        )
    _look_for_foreign()
    given = {}
    for key, value in settings.items():
        if isinstance(value, bool):
            value = int(value)
        elif not isinstance(value, (str, int, float, os.PathLike)):
            raise SettingsError(f"init: setting {key}={value!r} must be text or a number")
        given[key] = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    asked = json.dumps({"env": dict(os.environ), "settings": given}).encode()
    try:
        ticket = _lib.own("hora_init", asked)
        if ticket < 0:
            raise _lib.failure("init")
        if ticket:
            _lib.finish(ticket)
    except FinishedError as error:  # all is well: the program ends with 0
        print(f"hora: {error}: nothing is left to do for this worker", file=sys.stderr, flush=True)
        raise SystemExit(0) from error
    except DrainedError as error:
        print(f"hora: {error}", file=sys.stderr, flush=True)
        raise SystemExit(0) from error
    except HoraError:
        raise
    except BaseException:  # Ctrl-C, or whatever else a signal handler raises
        lib.hora_shutdown()
        raise
    _enter()
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _enter() -> None:
    """A new life of the world begins for this package."""
    _lib.age += 1
    _lib.world = _read(0)


def _look_for_foreign() -> None:
    """Warn when the horovod that this program has imported is not the one of hora-compat."""
    version = getattr(sys.modules.get("horovod"), "__version__", "+hora")
    if not version.endswith("+hora"):
        _name_foreign(f"init: horovod {version}", 5)


def look_beside() -> None:
    """Warn when hora-compat is installed beside this package and another horovod's files lie over its own.

    Every import pays for this: one look at a folder, and where hora-compat is, two small files.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.isdir(os.path.join(here, f"hora_compat-{__version__}.dist-info")):
        return
    for name in ("horovod", "spark_tensorflow_distributor"):
        try:
            with open(os.path.join(here, name, "__init__.py"), "rb") as f:
                ours = b'+hora"' in f.read(65536)
        except OSError:  # none at all: its import says so
            continue
        if not ours:
            _name_foreign(f"import hora: another {name}", 4, name.replace("_", "-"))


def _name_foreign(what: str, level: int, package: str = "horovod") -> None:
    global _named
    if _named:
        return
    _named = True
    import warnings

    warnings.warn(
        f"{what} is installed over hora-compat and does not use hora; run "
        f"`pip uninstall -y {package}`, then `pip install --force-reinstall --no-deps --no-index --find-links dist hora-compat` (dist: the folder with the wheels)",
        RuntimeWarning,
        stacklevel=level,
    )


def shutdown(timeout: float | None = None) -> None:
    """Leave the job; see hora.shutdown."""
    if _lib.world is None:
        return
    _lib.world = None
    ticket = _lib.own("hora_shutdown")
    if ticket < 0:
        raise _lib.failure("shutdown")
    try:
        if ticket and timeout is None:
            _lib.finish(ticket)
        elif ticket and not _lib.wait(ticket, timeout):
            return
    except (HoraError, _lib.OperationFailed):
        _forget()
        raise
    _forget()


def _forget() -> None:
    """The library has ended all that was in flight."""
    _lib.in_flight.clear()
    _lib.orphans.clear()


def _at_exit() -> None:
    """Tell the others that this rank has left, unless it ends by an exception: then they are to know it as lost."""
    if getattr(sys, "last_value", None) is not None or _lib.world is None:
        return
    try:
        shutdown(EXIT_WAIT)
    except _lib.OperationFailed as failed:
        if isinstance(failed.error, MismatchError):  # what the program computed may be wrong: it must not end well
            print(f"hora: {failed.error}", file=sys.stderr, flush=True)
            _act("exit", code=1)
    except HoraError:  # nobody is left to be told
        pass


# -- elastic jobs


def is_elastic() -> bool:
    """Whether this process keeps its place in the job over several epochs."""
    return bool(_lib.world and _lib.world.get("elastic"))


def news() -> int:
    """0: none; 1: workers come or go; 2: this rank is to leave. Raises why the epoch is over when it is."""
    r = foresight()
    return r if r <= 2 else 0


def foresight() -> int:
    """news(), and before there is any: 3: workers are on their way; 4: ranks were asked to leave; 5: both. Nothing has
    to follow from those."""
    world_info()
    r = _lib.load().hora_news()
    if r < 0:
        raise _lib.failure()
    return r


def next_epoch() -> None:
    """Leave the present epoch and join the next one; groups and plans of the old one are closed."""
    world_info()
    try:
        ticket = _act("next")
        _lib.world = None
        _lib.finish(ticket)
    except HoraError:
        raise
    except BaseException:  # Ctrl-C, or whatever else a signal handler raises
        _lib.world = None
        _lib.load().hora_shutdown()
        raise
    _forget()
    _enter()


def finish_elastic() -> bool:
    """Wait until every rank has finished its work; False when the epoch broke before that."""
    return not is_elastic() or _lib.outcome(_act("finish")).value == 1


def drain(reason: str) -> None:
    """Let news() say from now on that this rank is to leave; one that waits for an epoch leaves at once."""
    if is_elastic() or _lib.world is None:
        with contextlib.suppress(HoraError):  # it has left
            _act("drain", reason=reason)


def recovered(seconds: float, steps: int, cause: str) -> None:
    """Tell the job's report what the end of an epoch cost this rank; steps are -1 where nobody counts them."""
    if is_elastic():
        _act("recovered", nanos=int(seconds * 1e9), steps=steps, reason=cause)


def leave_elastic(reason: str) -> None:
    """Leave before the work is done: this rank is replaced, or the others go on without it."""
    if not is_elastic():
        shutdown()
        return
    ticket = _act("leave", reason=reason)
    _lib.world = None
    if ticket:
        _lib.finish(ticket)


def _act(action: str, **settings: Any) -> int:
    ticket = _lib.own("hora_action", json.dumps({"action": action, **settings}).encode())
    if ticket < 0:
        raise _lib.failure()
    return ticket


def world_info() -> dict[str, Any]:
    """rank, size, local_rank, … of the world; raises when there is none."""
    if _lib.world is None:
        raise _lib.no_world()
    return _lib.world


def place() -> dict[str, Any]:
    """The same for who only asks where this process is: in a forked child it is what it was in the parent."""
    return _lib.world or _lib.parents or world_info()


def info(group: int) -> dict[str, Any]:
    """What the library says about a group, as of now."""
    world_info()
    return _read(group)


def _read(group: int) -> dict[str, Any]:
    text = _lib.load().hora_info(group)
    if not text:
        raise _lib.failure()
    return json.loads(text)


def group_open(ranks: list[int], tag: str, timeout: float | None) -> int:
    """Make a group together with its other members; the handle."""
    world_info()
    ticket = _lib.own("hora_group", json.dumps({"ranks": ranks, "tag": tag, "timeout": timeout or 0}).encode())
    if ticket < 0:
        raise _lib.failure()
    return _lib.outcome(ticket).value


def group_close(handle: int) -> None:
    """Give a group back."""
    if _lib.world is not None:
        _lib.load().hora_group_close(handle)


def abort(group: int, reason: str) -> None:
    """End what is pending in a group."""
    world_info()
    if _lib.load().hora_abort(group, reason.encode()) < 0:
        raise _lib.failure()


def allocate(group: int, nbytes: int) -> _lib.Memory:
    """Memory that every rank of this host maps; every rank of the group asks for it together."""
    world_info()
    ticket = _lib.own("hora_buffer", group, nbytes)
    if ticket < 0:
        raise _lib.failure()
    memory = _lib.outcome(ticket).memory
    if memory is None:
        raise InternalError("allocate buffer: the library gave no memory")
    return memory


def register(group: int, address: int, nbytes: int, fd: int, offset: int, named: bool, keep: Any = None) -> _lib.Memory:
    """Have the group's other ranks on this host map memory that this process mapped from fd; they all call this
    together.

    It ends when the answer is collected; the memory must stay mapped until then. `named` is for operations matched by
    name: they do not know what is registered for the others.
    """
    world_info()
    ticket = _lib.own("hora_register", group, address, nbytes, fd, offset, 1 if named else 0, keep=keep)
    if ticket < 0:
        raise _lib.failure()
    memory = _lib.outcome(ticket).memory
    if memory is None:
        raise InternalError("register memory: the library gave no handle")
    return memory


def timeline(action: str, **settings: Any) -> None:
    """Start or stop writing a timeline."""
    world_info()
    _act(action, **settings)


def parts(name: str, of: list[str]) -> None:
    """What the operation of that name is made of: timelines show it."""
    if _lib.world is not None:
        _act("parts", name=name, parts=", ".join(of))


def build() -> str:
    """Version and build of the library, one line."""
    return _lib.load().hora_build().decode()
