"""Messages from training functions to the driver."""

from __future__ import annotations

import os
import sys

__all__ = ["log_to_driver"]

_MAX = 4000


def log_to_driver(message: object) -> None:
    """Print a message on the driver, from any rank; longer than 4000 characters is cut."""
    text = str(message)
    if len(text) > _MAX:
        text = text[:_MAX] + "…"
    rank, word = os.environ.get("HOROVOD_RANK"), os.environ.get("HORA_SPARK_WORD")
    if rank is not None and word is None:  # with HorovodRunner lines have their rank before them already
        text = f"[{rank}] {text}"
    # The driver knows these lines by the word, and takes it away.
    print("\n".join((word or "") + line for line in text.split("\n")), file=sys.stdout, flush=True)
