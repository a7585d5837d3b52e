"""The shared library: find it, check its version, declare it, call it, turn its failures into exceptions.

This is the only module that uses ctypes. The library is loaded by `init()`, not by `import hora`: a process that
forks before has nothing to lose.
"""

from __future__ import annotations

import array
import ctypes
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from ._find import library_path, why_not
from ._version import __version__
from .errors import BY_KIND, ForkedError, HoraError, InternalError, NotInitializedError, VersionError

ABI = 1
SLICE_MS = 50  # the longest that a call stays away from Python's signal handlers

c_int32, c_int64, c_uint32, c_uint64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64
c_char_p, c_void_p = ctypes.c_char_p, ctypes.c_void_p

# Every function of hora.h: what it answers, what it takes. tests/test_abi.py compares this with the header.
DECLARATIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hora_abi": (c_int32, ()),
    "hora_build": (c_char_p, ()),
    "hora_last_error": (c_char_p, ()),
    "hora_last_kind": (c_int32, ()),
    "hora_last_rank": (c_int32, ()),
    "hora_init": (c_int64, (c_char_p,)),
    "hora_shutdown": (c_int64, ()),
    "hora_info": (c_char_p, (c_uint64,)),
    "hora_group": (c_int64, (c_char_p,)),
    "hora_group_close": (c_int32, (c_uint64,)),
    "hora_abort": (c_int32, (c_uint64, c_char_p)),
    "hora_run": (c_int64, (c_uint64, c_char_p)),
    "hora_submit": (c_int32, (c_uint64, c_char_p, c_uint64, c_void_p)),
    "hora_plan": (c_int64, (c_uint64, c_char_p)),
    "hora_start": (c_int64, (c_uint64,)),
    "hora_start_async": (c_int64, (c_uint64,)),
    "hora_plan_close": (c_int32, (c_uint64,)),
    "hora_join": (c_int64, (c_uint64,)),
    "hora_wait": (c_int32, (c_uint64, c_uint32)),
    "hora_result": (c_int32, (c_uint64, c_void_p)),
    "hora_release": (c_int32, (c_uint64,)),
    "hora_buffer": (c_int64, (c_uint64, c_uint64)),
    "hora_register": (c_int64, (c_uint64, c_void_p, c_uint64, c_int32, c_uint64, c_uint32)),
    "hora_buffer_close": (c_int32, (c_uint64,)),
    "hora_news": (c_int32, ()),
    "hora_action": (c_int64, (c_char_p,)),
    "hora_gpu": (c_int64, (c_char_p,)),
    "hora_gpu_submit": (c_int64, (c_uint64, c_char_p, c_uint64, c_uint64)),
    "hora_gpu_wait": (c_int32, (c_uint64, c_uint64, c_uint64)),
    "hora_gpu_close": (c_int32, (c_uint64,)),
}


class Outcome(ctypes.Structure):
    """struct hora_outcome."""

    _fields_ = (
        ("size", c_uint32),
        ("ncount", c_uint32),
        ("value", c_int64),
        ("memory", c_void_p),
        ("bytes", c_uint64),
        ("buffer", c_uint64),
        ("counts", c_void_p),
    )


class OperationFailed(Exception):
    """A ticket's operation has failed with `error`; the ticket is still to be released."""

    def __init__(self, error: HoraError) -> None:
        super().__init__(error)
        self.error = error


class Memory:
    """Memory of the library's, given back when nothing refers to it any more."""

    __slots__ = ("__weakref__", "address", "handle", "nbytes")

    def __init__(self, address: int, nbytes: int, handle: int) -> None:
        self.address, self.nbytes, self.handle = address, nbytes, handle

    def view(self) -> memoryview:
        """The bytes; the view keeps this object alive."""
        raw = (ctypes.c_char * self.nbytes).from_address(self.address)
        raw._hora_memory = self  # type: ignore[attr-defined]
        return memoryview(raw).cast("B")

    def __del__(self) -> None:
        if self.handle and _lib is not None and _forked_after_load is False:
            _lib.hora_buffer_close(self.handle)


class Result:
    """What an ended operation left: `memory` (bytes or None), `counts` (elements from each rank), `value`."""

    __slots__ = ("counts", "memory", "value")

    def __init__(self, memory: Memory | None, counts: list[int], value: int) -> None:
        self.memory, self.counts, self.value = memory, counts, value


_lib: Any = None
_load_lock = threading.Lock()
_forked_after_load = False
world: dict[str, Any] | None = None  # rank, size, …; None while there is none. _world.py sets it
age = 0  # which life of the world this is: plans of another are void
in_flight: dict[int, Any] = {}  # ticket → what its operation reads and writes
orphans: list[int] = []  # tickets whose handle was dropped before they ended


def load() -> Any:
    """Load the library once; refuse another version, a musl system and a forked child with a sentence."""
    global _lib
    if _forked_after_load:
        raise no_world()
    if _lib is not None:
        return _lib
    with _load_lock:
        if _lib is None:
            _lib = _open(library_path())
    return _lib


def _open(path: str) -> Any:
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise VersionError(why_not(path, e)) from None
    try:
        abi = lib.hora_abi()
    except AttributeError:
        raise VersionError(f"load {path}: it is not hora's library; reinstall hora: pip install --force-reinstall hora") from None
    if abi != ABI:
        raise VersionError(
            f"load {path}: the library has interface {abi}, this package ({__version__}) needs {ABI}; "
            "reinstall hora: pip install --force-reinstall hora"
        )
    for name, (answer, arguments) in DECLARATIONS.items():
        function = getattr(lib, name, None)
        if function is None:
            raise VersionError(f"load {path}: the library has no {name}; reinstall hora: pip install --force-reinstall hora")
        function.restype, function.argtypes = answer, arguments
    return lib


def _after_fork_in_child() -> None:
    global _forked_after_load, world, _load_lock
    _load_lock = threading.Lock()
    if _lib is not None:
        _forked_after_load = True
        world = None
        in_flight.clear()
        orphans.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def no_world() -> HoraError:
    if _forked_after_load:
        return ForkedError(
            f"use hora in process {os.getpid()}: it is a forked child, and hora's threads live in its parent only; "
            "start it with multiprocessing's spawn or forkserver method (or call hora in the parent)"
        )
    return NotInitializedError("use hora: it is not initialized; call hora.init() first")


def failure(doing: str = "") -> HoraError:
    """The exception for this thread's last failed call."""
    text = _lib.hora_last_error().decode("utf-8", "replace")
    error = BY_KIND.get(_lib.hora_last_kind(), InternalError)(text or doing or "hora failed without a reason")
    if hasattr(error, "rank"):
        error.rank = _lib.hora_last_rank()  # type: ignore[attr-defined]
    return error


# -- tickets


def wait(ticket: int, timeout: float | None = None) -> bool:
    """True once the ticket's operation has ended well, False after `timeout` seconds, OperationFailed when it failed.

    Python's signal handlers run between slices of 50 ms.
    """
    if _forked_after_load:
        raise no_world()
    hora_wait = _lib.hora_wait
    if timeout is None:
        while True:
            r = hora_wait(ticket, SLICE_MS)
            if r <= 0:
                break
    else:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            r = hora_wait(ticket, min(SLICE_MS, max(0, int(left * 1000 + 0.999))))
            if r <= 0 or left <= 0:
                break
    if r == 0:
        return True
    if r < 0:
        raise OperationFailed(failure())
    return False


def poll(ticket: int) -> bool:
    """Whether the ticket's operation has ended, well or not."""
    if _forked_after_load:
        raise no_world()
    return _lib.hora_wait(ticket, 0) <= 0


def release(ticket: int) -> None:
    """Forget a ticket."""
    if not _forked_after_load:
        if ticket in in_flight and _lib.hora_wait(ticket, 0) == 1:
            orphans.append(ticket)  # it still reads its arguments: release it when it has ended
            return
        in_flight.pop(ticket, None)
        _lib.hora_release(ticket)


def finish(ticket: int, keep: Any = None) -> None:
    """Wait for a ticket and release it, keeping `keep` alive if an exception (Ctrl-C) cuts the wait short."""
    try:
        wait(ticket)
    except OperationFailed as failed:
        _lib.hora_release(ticket)
        raise failed.error from None
    except BaseException:
        in_flight[ticket] = keep
        orphans.append(ticket)
        raise
    _lib.hora_release(ticket)


def result(ticket: int) -> Result:
    """What the ended operation of a ticket left behind."""
    out = Outcome(size=ctypes.sizeof(Outcome))
    if _lib.hora_result(ticket, ctypes.byref(out)) < 0:
        raise failure()
    counts = list((c_int64 * out.ncount).from_address(out.counts)) if out.ncount else []
    memory = Memory(out.memory or 0, out.bytes, out.buffer) if out.buffer else None
    return Result(memory, counts, out.value)


def outcome(ticket: int) -> Result:
    """Wait for a ticket, take what it left and release it."""
    try:
        wait(ticket)
        return result(ticket)
    except OperationFailed as failed:
        raise failed.error from None
    finally:
        _lib.hora_release(ticket)


def reap() -> None:
    """Release tickets whose handles were dropped, once they have ended."""
    for ticket in orphans[:]:
        if _lib.hora_wait(ticket, 0) <= 0:
            _lib.hora_release(ticket)
            in_flight.pop(ticket, None)
            orphans.remove(ticket)


# -- operations


def run(group: int, op: bytes, keep: Any) -> None:
    """Run a packed hora_op; waits when it could not end inline."""
    if world is None:
        raise no_world()
    ticket = _lib.hora_run(group, op)
    if ticket:
        if ticket < 0:
            raise failure()
        finish(ticket, keep)


def begin(group: int, op: bytes, keep: Any) -> int:
    """Run a packed hora_op for its budget: 0 when it has ended, else its ticket."""
    if world is None:
        raise no_world()
    ticket = _lib.hora_run(group, op)
    if ticket > 0:
        in_flight[ticket] = keep
    elif ticket < 0:
        raise failure()
    return ticket


def submit(group: int, ops: bytes, n: int, keep: Any) -> list[int]:
    """Submit n packed hora_op and return their tickets."""
    if world is None:
        raise no_world()
    if orphans:
        reap()
    tickets = (c_uint64 * n)()
    if _lib.hora_submit(group, ops, n, tickets) < 0:
        raise failure()
    if keep is None:
        return list(tickets)
    answer = list(tickets)
    for ticket in answer:
        in_flight[ticket] = keep
    return answer


def plan(group: int, op: bytes) -> int:
    if world is None:
        raise no_world()
    handle = _lib.hora_plan(group, op)
    if handle < 0:
        raise failure()
    return handle


def start(handle: int, keep: Any = None) -> None:
    """Run a plan; waits when it could not end inline."""
    if world is None:
        raise no_world()
    ticket = _lib.hora_start(handle)
    if ticket:
        if ticket < 0:
            raise failure()
        finish(ticket, keep)


def start_async(handle: int) -> int:
    if world is None:
        raise no_world()
    ticket = _lib.hora_start_async(handle)
    if ticket < 0:
        raise failure()
    return ticket


def plan_close(handle: int) -> None:
    if _lib is not None and not _forked_after_load:
        _lib.hora_plan_close(handle)


def join(group: int) -> int:
    if world is None:
        raise no_world()
    ticket = _lib.hora_join(group)
    if ticket < 0:
        raise failure()
    return ticket


# -- arguments


def int64s(values: Sequence[int] | None) -> tuple[int, Any]:
    """The address of values as int64, and what keeps it valid."""
    if values is None:
        return 0, None
    a = array.array("q", values)
    return a.buffer_info()[0], a


def text(value: str | bytes | None) -> tuple[int, Any]:
    """The address of a NUL-terminated text, and what keeps it valid."""
    if value is None:
        return 0, None
    b = ctypes.create_string_buffer(value.encode() if isinstance(value, str) else value)
    return ctypes.addressof(b), b


def readable(x: Any) -> int:
    """Where the memory of a contiguous buffer begins, read-only ones included. The caller keeps x alive."""
    raw = (ctypes.c_byte * _PY_BUFFER)()
    _get_buffer(x, raw, 0x38)  # PyBUF_C_CONTIGUOUS
    address = c_void_p.from_buffer(raw).value or 0
    _release_buffer(raw)
    return address


_PY_BUFFER = 96  # more than sizeof(Py_buffer), whose first field is the address
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = (ctypes.py_object, c_void_p, ctypes.c_int), ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = (c_void_p,), None


def copy(to: int, source: int, nbytes: int) -> None:
    """Copy memory between two addresses."""
    ctypes.memmove(to, source, nbytes)


def peek(address: int, n: int) -> bytes:
    """A copy of n bytes at an address."""
    return ctypes.string_at(address, n)


capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.argtypes, capsule_pointer.restype = (ctypes.py_object, c_char_p), c_void_p
