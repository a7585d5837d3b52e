"""Factors of a reduction, and gradients that take no part in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..call import Op


def predivided(op: Op, factor: float, size: int) -> tuple[Op, float, float]:
    """The operator, prescale and postscale of an average that divides by `factor` before the sum and by the rest
    afterwards."""
    if factor == 1.0:
        return op, 1.0, 1.0
    if op is not Op.AVERAGE:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    return Op.SUM, 1.0 / factor, factor / size


def apart(
    grads: Sequence[Any], local: Sequence[bool], reduce: Callable[[list[Any]], Sequence[Any]], own: Callable[[Any], Any]
) -> list[Any]:
    """Reduce the gradients that are not `local`, in one call; a local one becomes own(gradient). None stays None."""
    reduced = iter(reduce([g for g, stays in zip(grads, local, strict=True) if not stays]))
    return [(g if g is None else own(g)) if stays else next(reduced) for g, stays in zip(grads, local, strict=True)]
