"""The library's handler in XLA: which jaxlib can carry it, and where jaxlib's own header says things stand."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import jax
import jaxlib

from .. import _bridge
from ..errors import VersionError

TARGET = "hora"
OLDEST = (0, 5, 0)  # before, jaxlib ends the process when a handler is given a token

_lock = threading.Lock()
_open = False


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


def check() -> None:
    """Refuse what cannot work, by the versions alone: trying it would end the process."""
    for module in (jax, jaxlib):
        found = module.__version__
        if _version(found) < OLDEST:
            raise VersionError(
                f"import hora.jax: {module.__name__} {found} is too old; hora.jax needs 0.5.0 or newer "
                f"(NumPy-style calls on JAX arrays outside jit work with any: hora.allreduce(x))"
            )


def ffi() -> Any:
    """JAX's module for foreign functions."""
    found = getattr(jax, "ffi", None)
    if found is None:  # its first place
        from jax.extend import ffi as found  # type: ignore[no-redef]
    return found


def _header() -> str:
    return (Path(ffi().include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()


def layout(header: str) -> tuple[int, int]:
    """The interface's minor version, and the place of XLA_FFI_Error_Create in its table of functions."""
    minor = re.search(r"#define\s+XLA_FFI_API_MINOR\s+(\d+)", header)
    table = re.search(r"struct XLA_FFI_Api \{(.*?)\n\};", header, flags=re.S)
    functions = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", table[1]) if table else []
    if minor is None or "XLA_FFI_Error_Create" not in functions:
        raise VersionError(
            f"import hora.jax: the header of jaxlib {jaxlib.__version__} does not say what hora looks for; "
            "it is newer than this hora: update hora, or install an older jaxlib (docs/compatibility.md)"
        )
    return int(minor[1]), functions.index("XLA_FFI_Error_Create")


def register() -> None:
    """Tell XLA of the handler, once."""
    global _open
    with _lock:
        if _open:
            return
        _bridge.address("hora_xla_open")(*layout(_header()))
        ffi().register_ffi_target(TARGET, ffi().pycapsule(_bridge.address("hora_xla")), platform="cpu")
        _open = True
