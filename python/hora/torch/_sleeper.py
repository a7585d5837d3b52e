"""DDP's reducer put to sleep, and the averager of _reducer.py in its place."""

from __future__ import annotations

import copyreg
import weakref
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..group import Group
from ._dynamo import skip
from ._reducer import Averager, _Bucket
from ._tensor import CODES

__all__ = ["fits", "install"]

# Smaller than DDP's buckets, so that a first one goes early where a rank overlaps.
_BUCKET_BYTES = 8 << 20

_grad_enabled = torch.is_grad_enabled
_profiled = getattr(torch.autograd, "_profiler_enabled", lambda: True)


class Sleeper:
    """What stands in the place of DDP's reducer. What it cannot answer wakes the reducer, for good."""

    def __init__(self, model: DistributedDataParallel, own: Averager, reducer: Any) -> None:
        self._model = weakref.ref(model)
        self._own = own
        self._reducer = reducer

    def prepare_for_forward(self) -> None:
        pass

    def _rebuild_buckets(self) -> bool:
        model = self._model()
        if model is not None and model._join_config.enable:
            return self.wake()._rebuild_buckets()
        self._own.check()
        return False

    def prepare_for_backward(self, outputs: Any) -> None:
        self._own.expect()

    def _check_reducer_finalized(self) -> None:
        self._own.check()

    def _remove_autograd_hooks(self) -> None:
        """Leave the module to another wrapper, also after a backward pass that failed."""
        self._own.close()
        self._reducer._remove_autograd_hooks()

    def wake(self) -> Any:
        """Give the model back to its reducer; every rank comes here at the same point."""
        self._own.check()
        self._own.close()
        model = self._model()
        if model is not None:
            model.__class__ = DistributedDataParallel
            model.reducer = self._reducer
        return self._reducer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(type(self._reducer), name):
            raise AttributeError(f"DDP's reducer has no {name}")
        return getattr(self.wake(), name)


class _Model(DistributedDataParallel):
    """A model whose reducer sleeps. It copies and pickles as DDP's own class, to a model that is not accelerated."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if type(self) is _Model and self._join_config.enable:
            self.reducer.wake()
        if type(self) is not _Model or self.modules_buffers or not self._lazy_init_ran or _profiled():
            return DistributedDataParallel.forward(
                self, *inputs, **kwargs
            )  # woken, this method may be kept by who wrapped it
        # What DDP does for a model without buffers, but for its accounts.
        own = self.reducer._own
        if _grad_enabled():
            own.check()
        if own.overlap:
            with self._inside_ddp_forward():  # a compiler cuts the graph at the buckets
                out = self._modules["module"](*inputs, **kwargs)
        else:
            out = self._modules["module"](*inputs, **kwargs)
        if self.require_backward_grad_sync and _grad_enabled():
            own.expect()
        return out

    def register_comm_hook(self, state: object, hook: Any) -> None:
        self.reducer.wake()
        self.register_comm_hook(state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.reducer.wake()
        self._register_builtin_comm_hook(comm_hook_type)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg._reconstructor, (DistributedDataParallel, object, None), self.__getstate__()  # type: ignore[attr-defined]


_Model.__name__ = _Model.__qualname__ = DistributedDataParallel.__name__
_Model.__module__ = DistributedDataParallel.__module__


def fits(model: DistributedDataParallel) -> bool:
    """Whether averaging at the end is all that the model's reducer was asked to do."""
    settings = vars(model)
    asked = (
        "find_unused_parameters", "static_graph", "mixed_precision", "device_ids", "lazy_bucket_allocation",
        "_delay_all_reduce_params",
        "_use_python_reducer", "_require_manual_backward_finalization", "_comm_hooks", "buffer_hook",
    )  # fmt: skip
    if (
        type(model) is not DistributedDataParallel
        or any(settings.get(name) for name in asked)
        or model._join_config.enable
    ):
        return False
    if "_comm_hooks" not in settings or "modules_buffers" not in settings or "_lazy_init_ran" not in settings:
        return False  # a torch that we do not know
    if torch.distributed.get_debug_level() != torch.distributed.DebugLevel.OFF:
        return False  # what the reducer writes is wanted
    params, sparse = model._build_params_for_reducer()
    return not any(sparse) and all(
        p.device.type == "cpu" and p.layout is torch.strided and p.is_floating_point() and p.dtype in CODES
        and type(p.data) is torch.Tensor and not hasattr(p, "_in_backward_optimizers")
        for p in params
    )  # fmt: skip


def install(model: DistributedDataParallel, group: Group, overlap: bool, seconds: float | None) -> None:
    """Put the model's reducer to sleep and average in its place."""
    params, _ = model._build_params_for_reducer()
    names = {p: name for name, p in model.module.named_parameters()}
    limit = min(_BUCKET_BYTES, int(model.bucket_bytes_cap))
    own = Averager(group, params, names, model.gradient_as_bucket_view, overlap, seconds, limit)
    model.reducer = Sleeper(model, own, model.reducer)
    model.__class__ = _Model
    weakref.finalize(model, _leave, own).atexit = False


def _leave(own: Averager) -> None:
    try:
        own.close()
    except Exception:  # the library is gone or the process is a forked child: nothing to give back
        pass


skip(Averager, Sleeper, _Bucket)
