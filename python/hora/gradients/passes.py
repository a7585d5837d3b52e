"""Backward passes before a step: how many there were, and which gradients have come."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any


class Passes:
    """Counts backward passes as a whole, and gradient by gradient where buckets are sent while they come.

    `per_step` passes are added up before the gradients are reduced. Nothing here locks: who counts on several threads
    does.
    """

    __slots__ = ("_came", "made", "per_step")

    def __init__(self, per_step: int) -> None:
        self.per_step = per_step
        self.made = 0  # since the last reduction
        self._came: dict[Hashable, int] = {}  # gradient → passes that brought it

    def restart(self, per_step: int | None = None) -> None:
        """Nothing has come, as in another life of the world; or count to another number from now on."""
        self.per_step = self.per_step if per_step is None else per_step
        self.made = 0
        self._came = {}

    def ended(self) -> None:
        """A backward pass has ended."""
        self.made += 1
        if self.made > self.per_step:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally."
            )

    def came(self, gradient: Hashable, name: Callable[[], Any], sent: bool) -> bool:
        """Whether this gradient is complete now; `sent` says that its bucket is on its way already."""
        n = self._came[gradient] = self._came.get(gradient, 0) + 1
        if n > self.per_step and sent:
            raise AssertionError(
                f"The gradient of {name()} was computed more than backward_passes_per_step times before call to step(), "
                "and may be on its way to the other ranks already. Increase backward_passes_per_step to accumulate gradients locally."
            )
        return n == self.per_step

    def reduced(self) -> None:
        """The passes so far count no more."""
        self.made = 0

    def collected(self) -> None:
        """Every gradient is to come anew."""
        self._came.clear()

    @property
    def full(self) -> bool:
        """Whether the passes of a step have been made."""
        return self.made >= self.per_step

    @staticmethod
    def refuse_zeroing() -> None:
        """Raise for zero_grad() between a backward pass and its step."""
        raise AssertionError(
            "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
            "optimizer.synchronize(). This is prohibited as it can cause a race condition. Where another loss runs through these "
            "parameters, as a GAN's does, call requires_grad_(False) on their model for it."
        )
