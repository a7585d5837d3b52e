"""The sentences for what goes wrong with gradients between ranks."""

from __future__ import annotations

from ..errors import MismatchError


def differs_in_shape(error: MismatchError) -> MismatchError:
    """The error of a bucket that ranks brought in different shapes, with the reason that is likely."""
    said = str(error)
    if "tensor shapes" in said:
        said = f"{said.rstrip('.')}; a parameter that is frozen has no gradient: set requires_grad alike on every rank."
    return MismatchError(said)


def cut_short(what: str, by: str, of: str, rank: int, then: str) -> RuntimeError:
    """The error of every call of `what` after an exception, `by`, has ended one on this rank alone; `then` is its state
    and the way out."""
    return RuntimeError(f"{what}: {by} cut {of} short on rank {rank}, {then} on every rank, or end the job.")
