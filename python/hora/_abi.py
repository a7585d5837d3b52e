"""The shared library as Python sees it: its declarations, the calls that are made most often, addresses of memory.

This is the only module of the package that uses ctypes. `Calls` are six functions of the library; the extension
module `_fast` has them without ctypes, and where it cannot be loaded (another Python than CPython, a tree that was
not built) nothing is lost but time.
"""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ._find import why_not
from ._version import __version__
from .errors import VersionError

try:
    from . import _fast
except ImportError:
    _fast = None  # type: ignore[assignment]

ABI = 1

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


# Those of bridges.h, declared when a framework's package asks for them. hora_xla is only ever called by XLA.
BRIDGES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hora_bridge_group": (c_int32, (c_uint64, c_uint64)),
    "hora_bridge_failure": (c_char_p, (c_void_p, c_void_p)),
    "hora_xla_open": (c_int32, (c_uint32, c_uint32)),
    "hora_xla": (c_void_p, (c_void_p,)),
}


def bridge(lib: Any) -> Any:
    """The library with the functions of bridges.h declared."""
    for name, (answer, arguments) in BRIDGES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = answer, arguments
    return lib


def bridge_failure(lib: Any) -> tuple[str, int, int]:
    """The text, kind and rank of the last failure that a framework was told."""
    kind, rank = c_int32(), c_int32()
    text = bridge(lib).hora_bridge_failure(ctypes.byref(kind), ctypes.byref(rank))
    return (text or b"").decode("utf-8", "replace"), kind.value, rank.value


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


def open_library(path: str) -> Any:
    """The library with all its functions declared; refuses another version and a foreign system with a sentence."""
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


# -- the calls that are made most often


class Calls(NamedTuple):
    """hora_run, … as callables. `submit` answers the tickets, or None on failure; the rest answer what C answers."""

    run: Callable[[int, bytes], int]
    submit: Callable[[int, bytes, int], list[int] | None]
    start: Callable[[int], int]
    start_async: Callable[[int], int]
    wait: Callable[[int, int], int]
    release: Callable[[int], int]


def by_ctypes(lib: Any) -> Calls:
    """The calls through ctypes."""
    hora_submit = lib.hora_submit

    def submit(group: int, ops: bytes, n: int) -> list[int] | None:
        tickets = (c_uint64 * n)()
        return None if hora_submit(group, ops, n, tickets) < 0 else list(tickets)

    return Calls(lib.hora_run, submit, lib.hora_start, lib.hora_start_async, lib.hora_wait, lib.hora_release)


def calls(lib: Any) -> Calls:
    """The calls, the shortest way there is."""
    if _fast is None:
        return by_ctypes(lib)
    _fast.bind(*(ctypes.cast(getattr(lib, f"hora_{name}"), c_void_p).value or 0 for name in Calls._fields))
    return Calls(*(getattr(_fast, name) for name in Calls._fields))


def shortcut(slow: Any, ended: Callable[[int, Any, Any], None], codes: dict[Any, int], default: Any, signature: str) -> Any:
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


def take(lib: Any, ticket: int) -> tuple[int, int, int, list[int], int] | None:
    """What an ended ticket left: address, bytes and handle of memory, counts, value; None on failure."""
    out = Outcome(size=ctypes.sizeof(Outcome))
    if lib.hora_result(ticket, ctypes.byref(out)) < 0:
        return None
    counts = list((c_int64 * out.ncount).from_address(out.counts)) if out.ncount else []
    return out.memory or 0, out.bytes, out.buffer, counts, out.value


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
