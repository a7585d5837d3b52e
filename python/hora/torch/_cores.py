"""Whether communication has a core of its own on this rank."""

from __future__ import annotations

import os

from .. import comm

__all__ = ["free_core"]


def free_core() -> bool:
    """Whether this rank has a core besides the one that it computes on.

    Unbound ranks share all cores; a rank that is bound has those it is bound to.
    """
    total = os.cpu_count() or 1
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = total
    return (cores >= total and cores >= 2 * max(1, comm.local_size())) or 1 < cores < total
