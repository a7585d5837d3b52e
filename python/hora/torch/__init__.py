"""hora for PyTorch: the torch.distributed backend "hora", DistributedOptimizer and what goes with it.

>>> torch.distributed.init_process_group("hora")       # an existing DDP script: this word changed
>>> opt = hora.torch.DistributedOptimizer(opt)         # or a single-process script: this line added
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "ElasticSampler",
    "SyncBatchNorm",
    "TorchState",
    "accelerate",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "register",
]

_HOME = {
    "Compression": "compression",
    "DistributedOptimizer": "optimizer",
    "ElasticSampler": "sampler",
    "SyncBatchNorm": "sync_batch_norm",
    "TorchState": "state",
    "accelerate": "accelerate",
    "broadcast_optimizer_state": "broadcast",
    "broadcast_parameters": "broadcast",
}


def register() -> None:
    """Make `init_process_group("hora")` known to torch; torch's entry points call it, so does `import hora.torch`."""
    from .backend import register

    register()


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hora.torch' has no attribute {name!r}")
    module = importlib.import_module(f".{home}", __name__)
    value = getattr(module, name)
    globals()[name] = value
    return value


def _announce() -> None:
    """Tell torch about the backend if torch is there; a missing torch is reported when something is used."""
    try:
        import torch.distributed as dist
    except ImportError as missing:
        raise ImportError("import hora.torch: PyTorch is not installed; run `pip install torch` (2.4 or newer)") from missing
    if dist.is_available():
        register()


_announce()
