"""A table's rows, as equal, shuffled, resumable batches on every rank.

>>> import hora, hora.dataset
>>> hora.init()
>>> loader = hora.dataset.open("data/train", columns={"x": ["a", "b"], "y": "label"}, batch=256, seed=1)
>>> for epoch in range(10):
...     loader.set_epoch(epoch)
...     for batch in loader:
...         batch["x"], batch["y"]      # NumPy: float32[256, 2], int64[256]

Files are read and decoded by threads of this process; no workers are started. The order is a function of the seed, the
epoch and the position: it does not depend on how many ranks there are, and `state_dict()` is all that going on takes.
"""

from __future__ import annotations

from ._loader import Loader, TorchLoader, open
from ._mix import Mixture, mix
from ._read import Table, read
from ._sampler import Sampler, pack, sampler
from ._views import Batch, Ragged, TextLists, Texts
from ._write import write

__all__ = [
    "Batch",
    "Loader",
    "Mixture",
    "Ragged",
    "Sampler",
    "Table",
    "TextLists",
    "Texts",
    "TorchLoader",
    "mix",
    "open",
    "pack",
    "read",
    "sampler",
    "write",
]
