"""Equal starts, and Python objects between ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hora import objects

from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of, root_in
from ._errors import translated
from .mpi_ops import broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]


def _no_session(session: Any, call: str) -> None:
    if session is not None:
        raise NotImplementedError(f"{call}: sessions of TensorFlow 1 are not there yet; call it eagerly, without session=")


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Give the variables root's values, in one call.

    >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    broadcast_([v for v in variables if str(v.dtype) not in ("string", "<dtype: 'string'>")], root_rank, "broadcast_variables", process_set)


@translated
def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Every rank gets root's object."""
    _no_session(session, "broadcast_object")
    group = group_of(process_set)
    return objects.broadcast_object(obj, root_in(process_set, root_rank), group=group, name=name or "broadcast_object", named=True)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """broadcast_object with all but the object given."""
    _no_session(session, "broadcast_object_fn")
    return lambda obj: broadcast_object(obj, root_rank, None, name, process_set)


@translated
def allgather_object(obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Every rank gets the list of all ranks' objects, in rank order."""
    _no_session(session, "allgather_object")
    return objects.allgather_object(obj, group=group_of(process_set), name=name or "allgather_object", named=True)
