"""The shared library as Python sees it: its declarations, the calls that are made most often, addresses of memory.

This is the only module of the package that uses ctypes. `Calls` are seven ways into the library; the extension
module `_fast` has them without ctypes, and where it cannot be loaded (another Python than CPython, a tree that was
not built) nothing is lost but time.
"""

from __future__ import annotations

from ._only import fast as _fast  # isort: skip  # before ctypes, which refuses subinterpreters in words of its own

import array
import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

from ._find import why_not
from ._version import __version__
from .errors import VersionError

ABI = 1

_AGAIN = "pip install --force-reinstall --no-index --find-links dist hora, where dist is the folder with its wheel (make wheel)"

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

# Every function of hora_data.h.
DATA_DECLARATIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hora_data_next": (c_int32, (c_uint64, c_uint32, c_void_p)),
    "hora_data_release": (c_int32, (c_uint64,)),
}


# Those of bridges.h, declared when a framework's package asks for them. XLA alone calls hora_xla and hora_xla_text.
BRIDGES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hora_bridge_group": (c_int32, (c_uint64, c_uint64)),
    "hora_bridge_failure": (c_char_p, (c_char_p, c_void_p, c_void_p)),
    "hora_tf_open": (c_int32, ()),
    "hora_tf_xla": (c_int32, ()),
    "hora_xla_open": (c_int32, (c_uint32, c_uint32)),
    "hora_xla": (c_void_p, (c_void_p,)),
    "hora_xla_text_open": (c_int32, ()),
    "hora_xla_text": (None, (c_void_p, c_void_p, c_char_p, c_uint64, c_void_p)),
    "hora_arena": (c_int32, (c_char_p, c_uint64, c_void_p)),
}


def bridge(lib: Any) -> Any:
    """The library with the functions of bridges.h declared."""
    for name, (answer, arguments) in BRIDGES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = answer, arguments
    return lib


def bridge_failure(lib: Any, within: str) -> tuple[str, int, int]:
    """The text, kind and rank of the failure that a framework was told and tells with `within`, which has that text."""
    kind, rank = c_int32(), c_int32()
    given = within.replace("\0", " ").encode("utf-8", "replace")
    text = bridge(lib).hora_bridge_failure(given, ctypes.byref(kind), ctypes.byref(rank))
    return (text or b"").decode("utf-8", "replace"), kind.value, rank.value


_capsules: list[Any] = []  # what capsules point to; their names too must stay


def capsule(function: Any, name: str) -> Any:
    """A function of the library in Python's capsule, as frameworks take it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
    _capsules.append(name.encode())
    return make(ctypes.cast(function, c_void_p), _capsules[-1], None)


class Outcome(ctypes.Structure):
    """struct hora_outcome."""

    size: int
    ncount: int
    value: int
    memory: int | None
    bytes: int
    buffer: int
    counts: int | None

    _fields_ = (
        ("size", c_uint32),
        ("ncount", c_uint32),
        ("value", c_int64),
        ("memory", c_void_p),
        ("bytes", c_uint64),
        ("buffer", c_uint64),
        ("counts", c_void_p),
    )


class DataBatch(ctypes.Structure):
    """struct hora_batch."""

    _fields_ = (("size", c_uint32), ("rows", c_uint32), ("batch", c_uint64), ("memory", c_void_p), ("bytes", c_uint64))

    def __init__(self) -> None:
        super().__init__(size=ctypes.sizeof(self))
        self.reference = ctypes.byref(self)


def open_library(path: str) -> Any:
    """The library with all its functions declared; refuses another version and a foreign system with a sentence."""
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise VersionError(why_not(path, e)) from None
    try:
        abi = lib.hora_abi()
    except AttributeError:
        raise VersionError(f"load {path}: it is not hora's library; reinstall hora: {_AGAIN}") from None
    if abi != ABI:
        raise VersionError(
            f"load {path}: the library has interface {abi}, this package ({__version__}) needs {ABI}; reinstall hora: {_AGAIN}"
        )
    for name, (answer, arguments) in (DECLARATIONS | DATA_DECLARATIONS).items():
        function = getattr(lib, name, None)
        if function is None:
            raise VersionError(f"load {path}: the library has no {name}; reinstall hora: {_AGAIN}")
        function.restype, function.argtypes = answer, arguments
    return lib


def in_a_job(path: str) -> str | None:
    """Another copy of the library that this process has loaded and that is in a job: one of another folder, as a
    vendored package has."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as f:
            mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in f if "libhora" in line}
    except OSError:  # another system
        return None
    for other in sorted(mapped):
        try:
            if os.path.samefile(other, path):
                continue
            info = ctypes.CDLL(other, mode=os.RTLD_NOW | os.RTLD_NOLOAD).hora_info
        except (OSError, AttributeError):  # replaced on the disk, or no copy of it
            continue
        info.restype, info.argtypes = DECLARATIONS["hora_info"]
        if info(0):
            return other
    return None


def lacks(library: str, names: Sequence[str]) -> str:
    """The first of these functions that a library of this process has not; "" if it has all, or is not loaded."""
    try:
        found = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return ""
    return next((name for name in names if not hasattr(found, name)), "")


# -- the calls that are made most often


class Calls(NamedTuple):
    """hora_run, … as callables that lose no ticket, whatever a signal handler raises and where.

    Each takes last what the operation works on, and has put it into `flights` under the ticket when it answers one. The
    number that it answers looks after itself: when nothing refers to it any more, the ticket is released, or is one of
    the `orphans` while its operation goes on. Those of calls that wait (`run`, `start`, others where `awaited`) are
    True there.
    """

    run: Callable[[int, bytes, Any, bool], int]
    submit: Callable[[int, bytes, int, Any, bool], list[int] | None]  # None on failure
    start: Callable[[int, Any], int]
    start_async: Callable[[int, Any], int]
    wait: Callable[[int, int], int]
    release: Callable[[int], None]
    own: Callable[[Any, tuple[Any, ...], Any], int]  # any other function that answers a ticket


def by_ctypes(lib: Any, flights: dict[int, Any], orphans: dict[int, bool]) -> Calls:
    """The calls through ctypes.

    Handlers run between two steps of Python's: so the library's answer goes into a list within one step, and the list
    is known, with what is to be kept, before.
    """
    landing: dict[int, Any] = {}  # calls being made, by the id of their list

    class Ticket(int):
        __slots__ = ()
        awaited = False

        def __del__(self) -> None:
            let_go(int(self), self.awaited)

    class AwaitedTicket(Ticket):
        __slots__ = ()
        awaited = True

    def let_go(ticket: int, awaited: bool) -> None:
        if ticket not in flights:
            return
        if lib.hora_wait(ticket, 0) == 1:
            orphans.setdefault(ticket, awaited)
        else:
            lib.hora_release(ticket)
            flights.pop(ticket, None)
            orphans.pop(ticket, None)

    def fly(answers: list[int], call: Callable[[], Any], what: Any, keep: Any, awaited: bool) -> list[int]:
        key = id(answers)
        landing[key] = answers, what, keep
        try:
            call()
            made = []
            for ticket in answers:
                if ticket > 0:
                    flights[ticket] = what, keep
                made.append((AwaitedTicket if awaited else Ticket)(ticket) if ticket > 0 else ticket)
        except BaseException:
            for ticket in answers:
                if ticket > 0:
                    flights[ticket] = what, keep
                    orphans.setdefault(ticket, awaited)
            del landing[key]
            raise
        del landing[key]
        return made

    def one(function: Any, arguments: tuple[Any, ...], what: Any, keep: Any, awaited: bool) -> int:
        answers: list[int] = []
        return fly(answers, lambda: answers.extend(starmap(function, (arguments,))), what, keep, awaited)[0]

    def run(group: int, op: bytes, keep: Any, awaited: bool) -> int:
        return one(lib.hora_run, (group, op), op, keep, awaited)

    def submit(group: int, ops: bytes, n: int, keep: Any, awaited: bool) -> list[int] | None:
        tickets: Any = (c_uint64 * n)()
        bad: list[int] = []
        made = fly(
            tickets, lambda: bad.extend(starmap(lib.hora_submit, ((group, ops, n, tickets),))), ops, keep, awaited
        )
        return None if bad[0] < 0 else made

    return Calls(
        run=run,
        submit=submit,
        start=lambda plan, keep: one(lib.hora_start, (plan,), None, keep, True),
        start_async=lambda plan, keep: one(lib.hora_start_async, (plan,), None, keep, False),
        wait=lib.hora_wait,
        release=lambda ticket: let_go(int(ticket), False) if ticket in flights else lib.hora_release(ticket),
        own=lambda function, arguments, keep: one(function, arguments, arguments, keep, False),
    )


def calls(lib: Any, flights: dict[int, Any], orphans: dict[int, bool]) -> Calls:
    """The calls, the shortest way there is."""
    if _fast is None:
        return by_ctypes(lib, flights, orphans)
    at = [
        ctypes.cast(getattr(lib, f"hora_{name}"), c_void_p).value or 0
        for name in ("run", "submit", "start", "start_async", "wait", "release")
    ]
    _fast.bind(at[0], at[1], at[2], at[3], at[4], at[5], flights, orphans)
    return Calls(*(getattr(_fast, name) for name in Calls._fields))


def shortcut(slow: Any, ended: Callable[[int], None], codes: dict[Any, int], default: Any, signature: str) -> Any:
    """allreduce in C, where it is there: it takes what it can and leaves the rest to `slow`."""
    if _fast is None:
        return slow
    doc = f"allreduce{signature}\n--\n\n{slow.__doc__}"
    return _fast.shortcut(slow, ended, codes, default, doc.encode(), slow.__module__)


def accept(kind: type, exchange: Any = None) -> None:
    """From now on arrays of this class may go through `shortcut`: by their buffer, or by DLPack's exchange table."""
    if _fast is not None:
        _fast.accept(kind, exchange)


# -- memory


def view(address: int, nbytes: int, owner: Any) -> memoryview:
    """Memory at an address; the view keeps its owner alive."""
    raw = (ctypes.c_char * nbytes).from_address(address)
    raw._hora_memory = owner  # type: ignore[attr-defined]
    return memoryview(raw).cast("B")


def take(lib: Any, ticket: int, out: Outcome) -> bool:
    """Have what an ended ticket left written into `out`, which its maker keeps: memory is lost nowhere. False on
    failure."""
    out.size = ctypes.sizeof(Outcome)
    return lib.hora_result(ticket, ctypes.byref(out)) >= 0


def counts(out: Outcome) -> list[int]:
    """The counts in an outcome, until its ticket is released."""
    return list((c_int64 * out.ncount).from_address(out.counts)) if out.ncount and out.counts else []


def int64s(values: Sequence[int] | None) -> tuple[int, Any]:
    """The address of values as int64, and what keeps it valid."""
    if values is None:
        return 0, None
    a = array.array("q", values)
    return a.buffer_info()[0], a


def text(value: str | bytes | None, room: int = 0) -> tuple[int, Any]:
    """The address of a NUL-terminated text, and what keeps it valid; with room for so many bytes, the end included."""
    given = value.encode() if isinstance(value, str) else value or b""
    b = ctypes.create_string_buffer(given, max(room, len(given) + 1))
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


def names(ops: bytes) -> list[bytes]:
    """The names of packed operations, whose memory is still there."""
    found = []
    size = int.from_bytes(ops[:4], sys.byteorder)
    for at in range(size, len(ops) + 1, size):
        address = int.from_bytes(ops[at - 8 : at], sys.byteorder)  # hora_op's last field
        if address:
            found.append(ctypes.string_at(address))
    return found


capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.argtypes, capsule_pointer.restype = (ctypes.py_object, c_char_p), c_void_p


def end_with_parent(signal: int) -> None:
    """Have the system send this process a signal when the one that forked it ends. Linux."""
    ctypes.CDLL(None).prctl(1, signal)  # PR_SET_PDEATHSIG
