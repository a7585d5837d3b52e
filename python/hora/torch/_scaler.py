"""torch's GradScaler with a wrapped optimizer: it looks for infinities in the reduced gradients, so that all ranks skip
the same steps."""

from __future__ import annotations

import functools
from typing import Any

from torch.amp import GradScaler

__all__ = ["teach"]


def teach() -> None:
    """Let GradScaler's `unscale_` and `step` reduce the gradients of a wrapped optimizer first; calling it again does
    nothing."""
    if not hasattr(GradScaler.step, "hora"):
        GradScaler.unscale_ = _unscale(GradScaler.unscale_)  # type: ignore[method-assign]
        GradScaler.step = _step(GradScaler.step)  # type: ignore[method-assign]


def _ready(scaler: Any, optimizer: Any) -> bool:
    """Whether this is a wrapped optimizer that is scaled; its gradients are reduced then."""
    if not hasattr(optimizer, "_hora_ready") or not scaler.is_enabled():
        return False
    optimizer._hora_ready()
    return True


def _unscale(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def unscale_(scaler: Any, optimizer: Any) -> None:
        ours = _ready(scaler, optimizer)
        inherited(scaler, optimizer)
        if ours:
            optimizer._hora_found(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())

    return unscale_


def _step(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not _ready(scaler, optimizer):
            return inherited(scaler, optimizer, *args, **kwargs)
        try:
            return inherited(scaler, optimizer, *args, **kwargs)
        finally:
            optimizer._hora_stepped()  # or it was skipped

    step.hora = True  # type: ignore[attr-defined]
    return step
