"""Where the shared library lies, and why it cannot be loaded."""

from __future__ import annotations

import os


def find() -> str:
    """Where the shared library lies: beside this file, or where HORA_LIBRARY says."""
    return os.environ.get("HORA_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libhora.so")


def why_not(path: str, e: OSError) -> str:
    """What to say about a library that the system refuses."""
    if not os.path.exists(path):
        return f"load {path}: there is no such file; install the wheel of hora, or in a source tree run `make python`"
    libc = ""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        pass
    if not libc.startswith("glibc"):
        return f"load {path}: hora's wheels need glibc 2.17 or newer and this system has another C library (musl?); use an image with glibc ({e})"
    return f"load {path}: {e}"
