"""Gradients of several ranks, whatever framework made them: which of them travel together, and what ranks agree on
first.

Nothing here imports a framework, and nothing moves a byte of a gradient. The framework packages tell this one what
their gradients are (an element type and place as anything that compares, a size in bytes, a name), and give it one
function, which answers each number's greatest value over the ranks.

layout   which gradients share a bucket, where each begins in it, what a bucket is called
terms    sparseness, bucket size and an optimizer's number, agreed on by all ranks; buckets that differ are an error on
each
passes   backward passes before a step: how many there were, which gradient has come
factors  prescale, postscale and what Horovod calls predividing; gradients that stay each rank's own
faults   the sentences for what goes wrong between ranks
"""

from __future__ import annotations

from .factors import apart, predivided
from .faults import cut_short, differs_in_shape
from .layout import assign, label, split, starts
from .passes import Passes
from .terms import Terms, agree, check_buckets

__all__ = [
    "Passes", "Terms", "agree", "apart", "assign", "check_buckets", "cut_short", "differs_in_shape", "label",
    "predivided", "split", "starts",
]  # fmt: skip
