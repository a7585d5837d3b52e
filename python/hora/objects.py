"""Python objects between ranks. Pickles travel only over connections that have proved the job's secret."""

from __future__ import annotations

import pickle
from typing import Any

from . import comm
from .errors import ArgumentError
from .group import Group, group_of

__all__ = ["allgather_object", "broadcast_object", "gather_object"]


def _dump(obj: Any) -> bytes:
    try:
        return pickle.dumps(obj, protocol=5)
    except Exception as plain:
        try:
            import cloudpickle
        except ImportError:
            raise ArgumentError(
                f"send object: {type(obj).__name__} cannot be pickled: {plain}; installing cloudpickle may help"
            ) from plain
        try:
            return cloudpickle.dumps(obj, protocol=5)
        except Exception as e:
            raise ArgumentError(f"send object: {type(obj).__name__} cannot be pickled: {e}") from e


def broadcast_object(
    obj: Any = None, root: int = 0, *, group: Group | None = None, name: str | None = None, named: bool = False
) -> Any:
    """Every rank gets root's object.

    >>> hora.broadcast_object({"lr": 0.1} if hora.rank() == 0 else None)
    {'lr': 0.1}
    """
    g = group_of(group)
    mine = _dump(obj) if g.rank == root else b""
    names = (name + ".sz", name + ".t") if name else (None, None)
    size = comm.broadcast(len(mine), root, group=g, name=names[0], named=named)
    data = bytearray(mine) if g.rank == root else bytearray(size)
    comm.broadcast(data, root, out=data, group=g, name=names[1], named=named)
    return obj if g.rank == root else pickle.loads(data)


def allgather_object(
    obj: Any, *, group: Group | None = None, name: str | None = None, named: bool = False
) -> list[Any]:
    """Every rank gets the list of all ranks' objects.

    >>> hora.allgather_object({"rank": hora.rank()})
    [{'rank': 0}, {'rank': 1}]
    """
    g = group_of(group)
    mine = _dump(obj)
    names = (name + ".sz", name + ".t") if name else (None, None)
    sizes = comm.allgather(len(mine), sizes=[1] * g.size, group=g, name=names[0], named=named)
    data = memoryview(comm.allgather(mine, sizes=sizes, group=g, name=names[1], named=named))
    return _split(data, sizes, g, obj)


def gather_object(obj: Any, root: int = 0, *, group: Group | None = None) -> list[Any] | None:
    """`root` gets the list of all ranks' objects, the others None.

    >>> reports = hora.gather_object(f"rank {hora.rank()} is well")
    >>> if hora.rank() == 0: assert reports == ["rank 0 is well", "rank 1 is well"]
    """
    g = group_of(group)
    mine = _dump(obj)
    sizes = comm.allgather(len(mine), sizes=[1] * g.size, group=g)
    data = comm.gather(mine, root, sizes=sizes, group=g)
    return None if data is None else _split(memoryview(data), sizes, g, obj)


def _split(data: memoryview, sizes: list[int], g: Group, own: Any) -> list[Any]:
    objects, at = [], 0
    for r, n in enumerate(sizes):
        objects.append(own if r == g.rank else pickle.loads(data[at : at + n]))
        at += n
    return objects
