"""hora: collectives for training on many processes, for NumPy, PyTorch, JAX and anything with a buffer.

>>> import hora, numpy as np
>>> hora.init()
>>> hora.allreduce(np.ones(3))          # every rank gets the sum
array([2., 2., 2.])

What examples print is what each of two ranks prints: `hora run -np 2 python program.py`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if os.environ.get("HORA_LEGACY"):
    from . import _legacy

    _legacy.install()
if "HORA_RANK" in os.environ and "JAX_COORDINATOR_ADDRESS" in os.environ and "_hora_jax" not in sys.modules:
    from . import _hora_jax as _hora_jax  # where no hora_jax.pth has loaded it: a copy of the package alone

from . import _world
from ._report import report
from ._version import __version__
from .buffer import Buffer, buffer
from .comm import (
    Group,
    Op,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    counters,
    cross_rank,
    cross_size,
    gather,
    host,
    init,
    is_initialized,
    join,
    local_rank,
    local_size,
    rank,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
    world,
)
from .errors import (
    ArgumentError,
    ClosedError,
    DeadlineError,
    DrainedError,
    FinishedError,
    ForkedError,
    HoraError,
    InternalError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    SettingsError,
    VersionError,
)
from .handle import Handle, wait_all
from .objects import allgather_object, broadcast_object, gather_object

if TYPE_CHECKING:  # loaded by __getattr__
    from . import dataset as dataset
    from . import elastic as elastic
    from ._run import run as run

SUM = Op.SUM
AVERAGE = Op.AVERAGE
PRODUCT = Op.PRODUCT
MIN = Op.MIN
MAX = Op.MAX
AND = Op.AND
OR = Op.OR
XOR = Op.XOR
ADASUM = Op.ADASUM

__all__ = [
    "ADASUM",
    "AND",
    "AVERAGE",
    "MAX",
    "MIN",
    "OR",
    "PRODUCT",
    "SUM",
    "XOR",
    "ArgumentError",
    "Buffer",
    "ClosedError",
    "DeadlineError",
    "DrainedError",
    "FinishedError",
    "ForkedError",
    "Group",
    "Handle",
    "HoraError",
    "InternalError",
    "MismatchError",
    "NotInitializedError",
    "Op",
    "PeerLostError",
    "SettingsError",
    "VersionError",
    "__version__",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "buffer",
    "counters",
    "cross_rank",
    "cross_size",
    "gather",
    "gather_object",
    "host",
    "init",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "rank",
    "recv",
    "reduce",
    "reduce_scatter",
    "report",
    "run",
    "scatter",
    "send",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "wait_all",
    "world",
]


def _exists(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(f"{__name__}.{name}") is not None


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: they need more of the standard library than a first step should wait for.
    if name == "run":
        from ._run import run

        return run
    if name in ("dataset", "elastic", "jax", "keras", "spark", "tensorflow", "torch") and _exists(name):
        import importlib

        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'hora' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_world.look_beside()
