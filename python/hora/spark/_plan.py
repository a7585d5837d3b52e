"""Who is fitted on what: rows and columns of a table, dealt to the members of an ensemble."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ._tables import Layout

WHO = "PartitionEnsemble.fit"
VALIDATION_ROWS = 10_000  # at most: they go to every worker


def check(settings: dict[str, Any]) -> None:
    """What can be said about the settings before there is a table."""
    n, vote, weight, min_rows = (settings[k] for k in ("n", "vote", "weight", "min_rows"))
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"{WHO}: n is {n!r}; give the number of models, 1 or more")
    if vote not in ("soft", "hard", "mean", "stack"):
        raise ArgumentError(f"{WHO}: vote is {vote!r}; it is one of 'soft', 'hard', 'mean' and 'stack'")
    if weight not in ("rows", "validation"):
        raise ArgumentError(f"{WHO}: weight is {weight!r}; it is 'rows' or 'validation'")
    if min_rows is not None and min_rows < 1:
        raise ArgumentError(f"{WHO}: min_rows is {min_rows}; give 1 or more, or None to merge nothing")
    if not 0 < settings["validation"] < 1:
        raise ArgumentError(
            f"{WHO}: validation is {settings['validation']!r}; give the part of the rows to hold out, as 0.1"
        )
    if settings["feature_subsets"] is not None and not by_columns(settings):
        raise ArgumentError(f"{WHO}: feature_subsets goes with by='columns' or by='both'; by is {settings['by']!r}")


def by_columns(settings: dict[str, Any]) -> bool:
    return settings["by"] in ("columns", "both")


def holds_out(settings: dict[str, Any]) -> bool:
    """Whether some rows are for validation."""
    return settings["weight"] == "validation" or settings["vote"] == "stack"


def feature_names(settings: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The columns of features: those named, else `features`, else all but the label and the column to split by."""
    given = settings["features"]
    if given is not None:
        return [given] if isinstance(given, str) else list(given)
    if "features" in names:
        return ["features"]
    others = {settings["label"], *settings["extra"]}
    if settings["by"] not in ("rows", "columns", "both"):
        others.add(settings["by"])
    found = [n for n in names if n not in others]
    if not found:
        raise ArgumentError(f"{WHO}: the table has no column but {', '.join(sorted(others))}; features need some")
    return found


def subsets(settings: dict[str, Any], layout: Layout) -> list[list[int] | None]:
    """For each member the columns of the matrix of features that it sees; None is all."""
    n, given = settings["n"], settings["feature_subsets"]
    if not by_columns(settings):
        return [None] * n
    width = layout.width
    if isinstance(given, (list, tuple)):
        if not given:
            raise ArgumentError(f"{WHO}: feature_subsets is empty; give a list of columns for each model, or None")
        found = [layout.find(s, f"{WHO}: feature_subsets") for s in given]
        for i, s in enumerate(found):
            if not s:
                raise ArgumentError(f"{WHO}: feature_subsets[{i}] names no column")
        if len(found) > n:
            raise ArgumentError(
                f"{WHO}: feature_subsets has {len(found)} subsets for n={n} models; raise n, or give fewer"
            )
        return [found[i % len(found)] for i in range(n)]
    if given is None:
        size = max(1, -(-width // 2))
    elif isinstance(given, float):
        if not 0 < given <= 1:
            raise ArgumentError(f"{WHO}: feature_subsets is {given}; a part of the columns lies between 0 and 1")
        size = max(1, round(given * width))
    else:
        size = int(given)
        if not 1 <= size <= width:
            raise ArgumentError(f"{WHO}: feature_subsets asks for {size} columns of {width}")
    return _random_subsets(n, size, width, settings["seed"])


def _random_subsets(n: int, size: int, width: int, seed: int) -> list[list[int] | None]:
    """Subsets of equal size, dealt from shuffled decks so that no column is in many more of them than another."""
    source = np.random.default_rng(seed)
    found: list[list[int] | None] = []
    deck: list[int] = []
    for _ in range(n):
        hand: list[int] = []
        kept: list[int] = []
        while len(hand) < size:
            if not deck:
                deck = source.permutation(width).tolist()
            card = deck.pop()
            (kept if card in hand else hand).append(card)
        deck += kept
        found.append(sorted(hand))
    return found


def merge(counts: Sequence[int], min_rows: int | None, what: str) -> list[list[int]]:
    """Which partitions each member is fitted on: one each, but that small ones join the next until they have
    min_rows."""
    if min_rows is None:
        empty = [i for i, c in enumerate(counts) if not c]
        if empty:
            some = ", ".join(map(str, empty[:10])) + (", …" if len(empty) > 10 else "")
            raise ArgumentError(
                f"{WHO}: {len(empty)} of {len(counts)} partitions ({some}) have no rows, {what}; lower n, or say min_rows=1 to merge them"
            )
        return [[i] for i in range(len(counts))]
    found: list[list[int]] = []
    open_: list[int] = []
    for i in range(len(counts)):
        open_.append(i)
        if sum(counts[k] for k in open_) >= min_rows:
            found.append(open_)
            open_ = []
    if open_ and found:
        found[-1] += open_
    elif open_ and sum(counts):
        found.append(open_)
    if not found:
        raise ArgumentError(f"{WHO}: the table has no rows")
    return found


def tell_tiny(report: Sequence[dict[str, Any]]) -> None:
    """Warns of members that were fitted on far fewer rows than the others, or of one class where others have more."""
    rows = sorted(r["rows"] for r in report)
    usual = rows[len(rows) // 2]
    tiny = [r for r in report if r["rows"] * 10 < usual]
    if tiny:
        some = ", ".join(f"{r['partition']} ({r['rows']})" for r in tiny[:10])
        warnings.warn(
            f"PartitionEnsemble: {len(tiny)} of {len(report)} partitions have less than a tenth of the usual {usual:,} rows: {some}; "
            "min_rows= merges such",
            stacklevel=4,
        )
    noted = [r for r in report if r["remark"]]
    if noted:
        some = "; ".join(f"partition {r['partition']}: {r['remark']}" for r in noted[:5])
        warnings.warn(
            f"PartitionEnsemble: {some}" + (f"; and {len(noted) - 5} more" if len(noted) > 5 else ""), stacklevel=4
        )


def deal_values(values: np.ndarray, n: int) -> np.ndarray:
    """The partition of each row where a column says it: its values, in order, are dealt to the partitions in turn."""
    _, at = np.unique(values.astype(str) if values.dtype.kind == "O" else values, return_inverse=True)
    return at.reshape(-1) % n
