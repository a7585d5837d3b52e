"""Equal starts, and Python objects between ranks, which no graph has a part in: `session` is of no effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hora import objects
from hora.tensorflow.graphs import plain_graph

from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of, root_in
from ._errors import translated
from .mpi_ops import broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Give the variables root's values, in one call; in a graph of TensorFlow 1, the operation that does.

    >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    held = [v for v in variables if str(v.dtype) not in ("string", "<dtype: 'string'>", "<dtype: 'string_ref'>")]
    got = broadcast_(held, root_rank, "broadcast_variables", process_set) if held else []
    return tf.group(got) if plain_graph() else None


@translated
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Every rank gets root's object."""
    group = group_of(process_set)
    return objects.broadcast_object(
        obj, root_in(process_set, root_rank), group=group, name=name or "broadcast_object", named=True
    )


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """broadcast_object with all but the object given."""
    return lambda obj: broadcast_object(obj, root_rank, None, name, process_set)


@translated
def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank gets the list of all ranks' objects, in rank order."""
    return objects.allgather_object(obj, group=group_of(process_set), name=name or "allgather_object", named=True)
