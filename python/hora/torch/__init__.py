"""hora for PyTorch: the torch.distributed backend "hora", DistributedOptimizer and what goes with it.

>>> torch.distributed.init_process_group("hora")       # an existing DDP script: this word changed
>>> opt = hora.torch.DistributedOptimizer(opt)         # or a single-process script: this line added

What is here; `help(hora.torch.DistributedOptimizer)` explains its arguments, and likewise for the others:

DistributedOptimizer       an optimizer whose step() uses the gradients of all ranks
Compression                what its compression= may be: none, fp16, bf16, int8, powersgd
broadcast_parameters       rank 0's weights on all ranks
broadcast_optimizer_state  rank 0's momentum, step counts and learning rates on all ranks
accelerate                 put DistributedDataParallel's buckets into memory that the ranks of a host share
SyncBatchNorm              batch normalization over the batches of all ranks
TorchState                 what elastic training keeps: models, optimizers, samplers, plain values
ElasticSampler             a sampler that goes on in mid-epoch when ranks come and go
register                   make torch know the backend; importing this module does
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded by __getattr__
    from .broadcast import broadcast_optimizer_state as broadcast_optimizer_state
    from .broadcast import broadcast_parameters as broadcast_parameters
    from .compression import Compression as Compression
    from .ddp import accelerate as accelerate
    from .optimizer import DistributedOptimizer as DistributedOptimizer
    from .sampler import ElasticSampler as ElasticSampler
    from .state import TorchState as TorchState
    from .sync_batch_norm import SyncBatchNorm as SyncBatchNorm

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
    "accelerate": "ddp",
    "broadcast_optimizer_state": "broadcast",
    "broadcast_parameters": "broadcast",
}

_OLDEST = (2, 4)  # the torch that `make matrix` begins with


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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _announce() -> None:
    """Tell torch about the backend; a torch that is missing or too old is one sentence."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError as missing:
        if missing.name not in ("torch", "torch.distributed"):
            raise  # torch is there, and says itself what it lacks
        raise ImportError(
            "import hora.torch: PyTorch is not installed; run `pip install torch` (2.4 or newer)"
        ) from missing
    version = getattr(sys.modules["torch"], "__version__", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < _OLDEST:
        raise ImportError(
            f"import hora.torch: PyTorch {version} is too old; run `pip install --upgrade torch` (2.4 or newer)"
        )
    if dist.is_available():
        register()


_announce()
