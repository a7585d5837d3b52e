"""Petastorm's names on hora.dataset: the same files, arguments and loaders, read by threads of this process.

Batches come in an order that does not depend on the number of workers or ranks, and every rank gets equally many rows.
The pages docs/petastorm.md tells what is different, and how a program comes to do without these names.
"""

from ._refuse import alone as _alone

_alone()

from .errors import NoDataAvailableError  # noqa: E402
from .reader import make_batch_reader, make_reader  # noqa: E402
from .transform import TransformSpec  # noqa: E402

__version__ = "0.13.1"  # whose names these are

__all__ = ["NoDataAvailableError", "TransformSpec", "make_batch_reader", "make_reader"]
