"""Equal starts, and Python objects between ranks."""

from __future__ import annotations

import collections.abc
from typing import Any

import cloudpickle
import torch

import hora
from hora.torch import broadcast as _broadcast

from ..common.process_sets import ProcessSet, global_process_set
from ._handles import group_of, internal
from .mpi_ops import allgather, broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Send root's parameters (a state_dict, or a list of tensors or of (name, tensor)) to all ranks, in place."""
    if isinstance(params, dict):
        pass
    elif not isinstance(params, (list, collections.abc.ItemsView)) and not hasattr(params, "__next__"):
        raise ValueError(
            f"invalid params of type: {type(params)}; give model.state_dict() or list(model.named_parameters())"
        )
    group = group_of(global_process_set)
    try:
        _broadcast.broadcast_parameters(params if isinstance(params, dict) else list(params), root_rank, group)
    except hora.HoraError as error:
        raise internal(error) from error


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None) -> None:
    """Send root's optimizer state to all ranks.

    An optimizer that has none yet makes it first, as Horovod's does: by a step with gradients of zero, which stay. Here
    the parameters do not move in it. `model` tells which parameters of SGD have sparse gradients.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "cannot broadcast torch.optim.LBFGS state: its history is not a table of tensors; start every rank equally"
        )
    group = group_of(global_process_set)
    if not optimizer.state_dict()["state"]:
        _fresh(optimizer, model)
    if group.size == 1:
        return
    tensors: list[torch.Tensor] = []
    form = _broadcast.strip(optimizer.state_dict(), tensors) if group.rank == root_rank else None
    form = broadcast_object(form, root_rank, "optimizer_state")
    if group.rank == root_rank:
        state = None
    else:
        tensors = []
        state = _broadcast.fill(form, tensors)
    try:
        _broadcast.broadcast_tensors([(f"optimizer.{i}", t) for i, t in enumerate(tensors)], root_rank, group)
    except hora.HoraError as error:
        raise internal(error) from error
    if state is not None:
        _broadcast.load(optimizer, state)


def _fresh(optimizer: torch.optim.Optimizer, model: Any) -> None:
    """Make the optimizer's first state."""
    sparse = (
        {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.sparse}
        if model is not None
        else set()
    )
    params = [p for g in optimizer.param_groups for p in g["params"] if p.requires_grad]
    before = [p.detach().clone() for p in params]
    for p in params:
        thin = isinstance(optimizer, torch.optim.SparseAdam) or (
            isinstance(optimizer, torch.optim.SGD) and id(p) in sparse
        )
        p.grad = None  # one of another layout may not be replaced directly
        p.grad = torch.zeros_like(p.detach()).to_sparse() if thin else torch.zeros_like(p.detach())
    inner = getattr(type(optimizer), "_hora_inner", type(optimizer))
    try:
        inner.step(optimizer)  # a wrapped one's own step would wait for the other ranks
    except TypeError:
        return  # its step wants a closure, and there is none to give
    with torch.no_grad():
        for p, value in zip(params, before, strict=True):
            p.copy_(value)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Every rank gets root's object."""
    name = name or "broadcast_object"  # not the type's name: the other ranks may hold None
    mine = (
        hora.rank() == root_rank
    )  # a set of one makes the calls too: each takes a number, and calls without a name are matched by theirs
    data = bytearray(cloudpickle.dumps(obj)) if mine else bytearray()
    size = torch.tensor([len(data)], dtype=torch.int64)
    broadcast_(size, root_rank, f"{name}.sz", process_set)
    if not mine:
        data = bytearray(int(size))
    broadcast_(torch.frombuffer(data, dtype=torch.uint8), root_rank, f"{name}.t", process_set)
    return obj if mine else cloudpickle.loads(data)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Every rank gets the list of all ranks' objects, in rank order."""
    name = name or type(obj).__name__
    payload = torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)
    sizes = allgather(torch.tensor([payload.numel()], dtype=torch.int64), f"{name}.sz", process_set).tolist()
    whole = allgather(payload, f"{name}.t", process_set)
    return [cloudpickle.loads(_bytes(part)) for part in whole.split(sizes)]


def _bytes(part: torch.Tensor) -> bytearray:
    data = bytearray(part.numel())
    if data:
        torch.frombuffer(data, dtype=torch.uint8).copy_(part)
    return data
