"""What the benchmarks in Python check: that calls gave the right result while they were timed, and that training ended
where it should.

The data are those of the programs in peers/: whole numbers with a prime period, other ones at each rank, index, turn
and array, so that a call that does nothing, divides by the wrong number or takes one array for another is seen. Sums
over a few ranks are exact.
"""

from __future__ import annotations

import time

import numpy as np

PERIOD = 251
WARM = 2  # untimed calls before each part

# How far a parameter's way may be from the reference's: a part of the length of the way itself. Ranks add in another
# order than one process on the joined batch does, and gradients of 64 samples differ by some 1e-6 for that, which
# training carries on; a wrong divisor changes the way by half of it or more, two gradients that are exchanged by about
# all of it.
BOUND = 0.01


class Wrong(AssertionError):
    """A benchmark's call or training that came out wrong: its figure is none."""


class Data:
    """The arrays (NumPy views) that one call works on, in place."""

    def __init__(self, arrays: list[np.ndarray], rank: int, size: int) -> None:
        self.arrays, self.rank, self.size = arrays, rank, size
        longest = max(a.size for a in arrays)
        self.wheel = (np.arange(longest + PERIOD, dtype=np.int64) * 7 % PERIOD + 1).astype(np.float32)

    def of(self, rank: int, turn: int, which: int) -> np.ndarray:
        start = (turn * 13 + rank * 101 + which * 29) % PERIOD
        return self.wheel[start : start + self.arrays[which].size]

    def fill(self, turn: int) -> None:
        for i, a in enumerate(self.arrays):
            np.copyto(a, self.of(self.rank, turn, i))

    def right(self, turn: int, scale: float, everything: bool) -> bool:
        """Whether each array holds the sum over all ranks times scale: every element, or some sixty, lest the ranks
        drift apart."""
        for i, a in enumerate(self.arrays):
            step = 1 if everything or a.size <= 64 else a.size // 61
            want = sum(self.of(r, turn, i)[::step] for r in range(self.size)) * np.float32(scale)
            if not np.array_equal(a[::step], want):
                return False
        return True


def timed(call, data: Data, scale: float, times: int, first: int, barrier) -> tuple[list[float], bool]:
    """Seconds of each of `times` calls and whether all results were right: the inputs are rewritten and the ranks
    brought together before each, and every element is checked in the calls before the timed ones and in the last.
    `first` is the number of the first turn."""
    took, right = [], True
    clock = time.perf_counter
    for turn in range(-WARM, times):
        data.fill(first + turn)
        barrier()
        begun = clock()
        call()
        ended = clock()
        right &= data.right(first + turn, scale, turn < 0 or turn == times - 1)
        if turn >= 0:
            took.append(ended - begun)
    return took, right


def apart(start: list[np.ndarray], mine: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """How far training is from where the reference got, by parameter: of the length of the reference's way, the most. A
    parameter that hardly moved is held to a hundredth of the longest way."""
    ways = [float(np.linalg.norm(r - s)) for s, r in zip(start, reference, strict=True)]
    floor = max(ways) / 100
    if not floor > 0:
        raise Wrong("the reference has not trained at all")
    return max(float(np.linalg.norm(m - r)) / max(w, floor) for m, r, w in zip(mine, reference, ways, strict=True))
