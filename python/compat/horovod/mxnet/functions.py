"""Equal starts, and Python objects between ranks."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from hora import comm, objects

from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of, root_in, translated
from .mpi_ops import _array

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


@translated
def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Every rank gets root's object."""
    root = root_in(process_set, root_rank)
    return objects.broadcast_object(obj, root, group=group_of(process_set), name=name or "broadcast_object", named=True)


@translated
def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """All ranks' objects, in their order."""
    return list(objects.allgather_object(obj, group=group_of(process_set), name=name or "allgather_object", named=True))


@translated
def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Send root's parameters to all ranks, in one call: a dict of arrays, or of a gluon block's `collect_params()`.

    Parameters whose shapes are not known before the first pass are an error; call it after that.
    """
    if not isinstance(params, (dict, mx.gluon.parameter.ParameterDict)):
        raise ValueError(f"invalid params of type: {type(params)}")
    held = []
    for name, p in sorted(params.items()):
        if isinstance(p, mx.gluon.parameter.Parameter):
            try:
                held.append(p.data())
            except mx.gluon.parameter.DeferredInitializationError:
                raise ValueError(
                    f"broadcast_parameters: {name} has no shape yet; call it when a batch has gone through the model"
                ) from None
        else:
            held.append(p)
    if not held:
        return
    root = root_in(global_process_set, root_rank)
    got = comm.broadcast([_array(t) for t in held], root, name=f"{prefix or ''}parameters", named=True)
    for t, a in zip(held, got, strict=True):
        t[:] = a
