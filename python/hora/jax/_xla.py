"""The library's handler in XLA: which way into a compiled program this jaxlib has, and where its header says things
stand.

Every way hands an ordered effect's token through the call: XLA keeps to the order of tokens, and to none of a side
effect.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib
import numpy
from jax._src import core
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

from .. import _abi, _bridge, _find, _framework, _lib, _verdict
from ..errors import VersionError

TARGET = "hora"
OLDEST = (0, 4, 31)  # before, JAX has other tokens
TYPED = (0, 5, 0)  # before, jaxlib ends the process when a handler of the typed interface is given a token


class Way(NamedTuple):
    """How a call gets into a program: `register` tells XLA of the handler, `lower` writes the call and gives the token
    after it, and its results."""

    register: Callable[[], None]
    lower: Callable[..., tuple[Any, list[Any]]]


_lock = threading.Lock()
_way: Way | None = None
_open = False


def check() -> None:
    """Choose the way, or refuse what has none. What has to be tried is tried in another process, which that may end."""
    global _way
    releases = [(m.__name__, m.__version__, _framework.version(m.__version__)) for m in (jax, jaxlib)]
    for name, said, found in releases:
        if found < OLDEST:
            raise VersionError(
                f"import hora.jax: {name} {said} is too old; hora.jax needs {'.'.join(map(str, OLDEST))} or newer "
                f"(NumPy-style calls on JAX arrays outside jit work with any: hora.allreduce(x))"
            )
    if all(found >= TYPED for _, _, found in releases):
        _way = typed
        return
    why = _verdict.shared(_tried_with(), _tried, _TRY_S * 2)
    if why:
        raise VersionError(
            f"import hora.jax: jax {jax.__version__} with jaxlib {jaxlib.__version__} failed when hora tried its calls in another "
            f"process: {why}; install jax {'.'.join(map(str, TYPED))} or newer"
        )
    _way = text


# A process that XLA may end leaves no file as large as itself where the program was started.
_NO_CORE = """
import resource

resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
"""
# The package without its __init__, which would try again; and no folder that this process has not.
_TRY = """
import sys
from importlib.util import find_spec, module_from_spec

sys.path[:] = filter(None, sys.path)
sys.modules["hora.jax"] = module_from_spec(find_spec("hora.jax"))
from hora.jax import _trial

_trial.main()
"""
_TRY_S = 120  # on a machine that is busy with other ranks' imports


def _tried_with() -> str:
    """All that the trial's end may depend on: a kept one holds for exactly this."""
    files = [_find.find(), jaxlib.__file__, *sorted(map(str, Path(__file__).parent.glob("*.py")))]
    found = [os.stat(f) for f in files if f and os.path.exists(f)]
    return repr((
        jax.__version__, jaxlib.__version__, sys.version, sys.executable, len(os.sched_getaffinity(0)),
        os.environ.get("XLA_FLAGS", ""), _TRY, [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in found],
    ))  # fmt: skip


def _tried() -> str:
    """What is wrong with the older interface here, "" if nothing is."""
    if os.environ.get("HORA_JAX_TRIAL"):  # where what is called Python is a program that imports this
        return "it is being tried"
    if not sys.executable or getattr(sys, "frozen", False):
        return "there is no Python to run"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HORA_", "HOROVOD_")) or k == "HORA_LIBRARY"}
    env |= {
        "HORA_JAX_TRIAL": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_PLATFORM_NAME": "cpu",
        "JAX_TRACEBACK_FILTERING": "off",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", _NO_CORE + _TRY],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and done.stdout.endswith("well\n"):
        return ""
    return ([line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"])[-1]


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


def _layouts(avals: Any) -> list[Any]:
    # Layouts are given because releases differ in what they make of a token's.
    return [(), *(tuple(range(a.ndim - 1, -1, -1)) for a in avals)]


def _register_typed() -> None:
    _bridge.address("hora_xla_open")(*layout(_header()))
    ffi().register_ffi_target(TARGET, ffi().pycapsule(_bridge.address("hora_xla")), platform="cpu")


def _lower_typed(ctx: Any, token: Any, args: Any, call: tuple[int, ...], name: str) -> tuple[Any, list[Any]]:
    rule = ffi().ffi_lowering(
        TARGET,
        has_side_effect=True,
        result_shapes=None,  # given, as the layouts are
        operand_layouts=_layouts(ctx.avals_in),
        result_layouts=_layouts(ctx.avals_out),
    )
    inner = ctx.replace(avals_in=[core.abstract_token, *ctx.avals_in], avals_out=[core.abstract_token, *ctx.avals_out])
    after, *results = rule(inner, token, *args, call=numpy.array(call, dtype=numpy.int64), name=name)
    return after, results


def _register_text() -> None:
    from jax._src.lib import xla_client

    if _bridge.address("hora_xla_text_open")() != 0:
        raise _lib.failure("register operations with XLA")
    handler = _abi.capsule(_bridge.address("hora_xla_text"), "xla._CUSTOM_CALL_TARGET")
    xla_client.register_custom_call_target(TARGET, handler, platform="cpu")


_STATUS_RETURNING_UNIFIED = 3


def _lower_text(ctx: Any, token: Any, args: Any, call: tuple[int, ...], name: str) -> tuple[Any, list[Any]]:
    arrays = [(a.dtype.name, int(b.size), a.shape) for a, b in zip(ctx.avals_in, ctx.avals_out)]  # noqa: B905 - what only answers has no arrays
    made = mlir.custom_call(
        TARGET,
        result_types=[
            mlir.token_type(),
            *(ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(a.dtype)) for a in ctx.avals_out),
        ],
        operands=[token, *args],
        backend_config=_bridge.text(call, 0, arrays, name),
        has_side_effect=True,
        api_version=_STATUS_RETURNING_UNIFIED,
        operand_layouts=_layouts(ctx.avals_in),
        result_layouts=_layouts(ctx.avals_out),
    )
    after, *results = made.results
    return after, results


typed, text = Way(_register_typed, _lower_typed), Way(_register_text, _lower_text)


def recovered() -> None:
    """Let calls run again after one that failed: by the older interface they do not by themselves (xla_text.c)."""
    if _open and _way is text:
        _bridge.address("hora_xla_text_open")()


def lower(ctx: Any, token: Any, args: Any, call: tuple[int, ...], name: str) -> tuple[Any, list[Any]]:
    """One call in a program: the token after it, and its results."""
    global _open
    assert _way is not None, "check() has not been called"
    with _lock:
        if not _open:
            _way.register()
            _open = True
    return _way.lower(ctx, token, args, call, name)
