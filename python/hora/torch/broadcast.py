"""Start equal: rank root's parameters and optimizer state on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import comm
from ..call import Call, Kind, Op
from ..group import Group
from ._tensor import code

__all__ = ["broadcast_optimizer_state", "broadcast_parameters", "broadcast_tensors"]


def broadcast_tensors(named: list[tuple[str, torch.Tensor]], root: int, group: Group) -> None:
    """Send root's tensors to all, in place, as one submission."""
    calls, after = [], []
    for name, t in named:
        host = t.detach()
        if host.device.type != "cpu" or not host.is_contiguous():
            host = host.to("cpu", copy=True).contiguous()
            after.append((t, host))
        p = host.data_ptr()
        calls.append(Call(
            Kind.BROADCAST, Op.SUM, code(host), root, p, p, host.numel(), name=f"broadcast.{name}", shape=list(t.shape),
            keep=host
        ))  # fmt: skip
    tickets = group.submit_many(calls, awaited=True) if calls else []
    error: BaseException | None = None
    for ticket in tickets:
        try:
            group.wait(ticket)
        except RuntimeError as e:
            error = error or e
        finally:
            group.release(ticket)
    if error is not None:
        raise error
    for t, host in after:
        t.detach().copy_(host)


def broadcast_parameters(params: Any, root_rank: int = 0, group: Group | None = None) -> None:
    """Send root's values of a state_dict, of named_parameters() or of a list of tensors to all ranks, in place.

    >>> hora.torch.broadcast_parameters(model.state_dict(), root_rank=0)
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__next__"):
        named = [p if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(params)]
    else:
        raise ValueError(f"invalid params of type: {type(params)}; give model.state_dict() or model.named_parameters()")
    group = comm.world() if group is None else group
    if group.size > 1:
        broadcast_tensors([(n, p) for n, p in named if isinstance(p, torch.Tensor)], root_rank, group)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int = 0, model: Any = None, group: Group | None = None
) -> None:
    """Send root's optimizer state (momentum, step counts, learning rates) to all ranks.

    The other ranks need no state of their own yet: its form comes from root too.
    """
    from ..objects import broadcast_object

    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "cannot broadcast torch.optim.LBFGS state: its history is not a table of tensors; give every rank the same start"
        )
    group = comm.world() if group is None else group
    if group.size == 1:
        return
    mine = optimizer.state_dict()
    tensors: list[torch.Tensor] = []
    form = strip(mine, tensors) if group.rank == root_rank else None
    form = broadcast_object(form, root_rank, group=group)
    if group.rank != root_rank:
        tensors = []
        state = fill(form, tensors)
    broadcast_tensors([(f"optimizer.{i}", t) for i, t in enumerate(tensors)], root_rank, group)
    if group.rank != root_rank:
        load(optimizer, state)


def load(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """optimizer.load_state_dict, but into the groups and tensors that are there: schedules and programs hold them."""
    groups, kept = optimizer.param_groups, optimizer.state
    optimizer.load_state_dict(state)
    with torch.no_grad():
        for old, new in zip(groups, optimizer.param_groups, strict=True):
            _into(old, new)
        _into(kept, optimizer.state)
    optimizer.param_groups, optimizer.state = groups, kept


def _into(old: dict, new: Mapping) -> None:
    """Make old equal to new, and keep what old is made of."""
    for key in [k for k in old if k not in new]:
        del old[key]
    for key, value in new.items():
        have = old.get(key)
        if isinstance(have, dict) and isinstance(value, dict):
            _into(have, value)
        elif isinstance(have, torch.Tensor) and _alike(have, value):
            have.copy_(value)
        else:
            old[key] = value


def _alike(a: torch.Tensor, b: Any) -> bool:
    return (
        isinstance(b, torch.Tensor)
        and a.shape == b.shape
        and a.dtype == b.dtype
        and a.layout == b.layout
        and not a.is_sparse
    )


class _Form:
    """A tensor's place in a state_dict: its element type and shape."""

    def __init__(self, t: torch.Tensor) -> None:
        self.dtype, self.shape = t.dtype, tuple(t.shape)


def strip(value: Any, tensors: list[torch.Tensor]) -> Any:
    """value with each tensor replaced by its form; the tensors in the order met."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Form(value)
    if isinstance(value, dict):
        return {k: strip(v, tensors) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(strip(v, tensors) for v in value) if type(value) in (list, tuple) else value
    return value


def fill(form: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(form, _Form):
        tensors.append(torch.empty(form.shape, dtype=form.dtype))
        return tensors[-1]
    if isinstance(form, dict):
        return {k: fill(v, tensors) for k, v in form.items()}
    if isinstance(form, (list, tuple)):
        return type(form)(fill(v, tensors) for v in form)
    return form
