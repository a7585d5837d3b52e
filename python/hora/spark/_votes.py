"""Many fitted models as one: their classes aligned, their votes weighed and counted."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import _members
from ._tables import Columns, Layout, columns_of, rows_of

VOTES = ("soft", "hard", "mean", "stack")


@dataclass
class Member:
    """One fitted model, as bytes until it is asked."""

    blob: bytes
    classes: np.ndarray | None = None  # what the columns of its probabilities stand for; None for values
    encoded: bool = False  # its answers are positions in `classes`, not labels
    subset: list[int] | None = None  # the columns of the matrix of features that it sees
    weight: float = 1.0

    @cached_property
    def asked(self) -> _members.Asked:
        return _members.known(pickle.loads(self.blob))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "asked"}


def proba(member: Member, layout: Layout, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """A model's probabilities, with a column for each of its classes."""
    x = layout.matrix(dict(columns), member.subset)
    found = member.asked.proba(x, layout.narrowed(dict(columns), member.subset))
    if found is not None and member.classes is not None and found.shape[1] != len(member.classes):
        if len(member.classes) == 1:  # some answer with two columns where they have seen one class
            return np.ones((len(x), 1))
        raise ArgumentError(
            f"a model answers with {found.shape[1]} probabilities a row, for {len(member.classes)} classes"
        )
    return found


def answer(member: Member, layout: Layout, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """A model's labels or values."""
    x = layout.matrix(dict(columns), member.subset)
    found = member.asked.answer(x, layout.narrowed(dict(columns), member.subset))
    found = found.reshape(len(x), -1)[:, 0] if found.ndim != 1 and found.size == len(x) else found
    if found.shape != (len(x),):
        raise ArgumentError(
            f"a model answers with an array of shape {found.shape} where {len(x)} rows were asked for; one value a row is wanted"
        )
    return member.classes[found.astype(int)] if member.encoded and member.classes is not None else found


def union(classes: Sequence[np.ndarray]) -> np.ndarray:
    """All classes that some model knows, in order."""
    kinds = {"text" if c.dtype.kind in "OUS" else "numbers" for c in classes}
    if len(kinds) > 1:
        raise ArgumentError(
            "some models answer with text and others with numbers as classes; number the labels 0, 1, … before fit, as xgboost and lightgbm want them"
        )
    return np.unique(np.concatenate(classes))


@dataclass
class Ensemble:
    """Fitted members and how they vote; knows nothing of Spark."""

    members: list[Member]
    layout: Layout
    label: str
    vote: str
    classes: np.ndarray | None = None
    final: bytes | None = None  # of vote "stack": the model that is asked with the members' answers
    report: list[dict[str, Any]] = field(default_factory=list)
    names: tuple[str, str] = ("prediction", "probability")  # of the columns that transform adds

    @cached_property
    def last(self) -> _members.Asked:
        assert self.final is not None
        return _members.known(pickle.loads(self.final))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "last"}

    @property
    def classifies(self) -> bool:
        return self.classes is not None

    def voting(self, vote: str) -> Ensemble:
        """The same members with another vote; raises where they cannot vote so."""
        if vote == self.vote:
            return self
        if vote not in VOTES:
            raise ArgumentError(f"vote is {vote!r}; it is one of {', '.join(VOTES)}")
        if vote == "stack" and self.final is None:
            raise ArgumentError("vote='stack' needs the model that weighs the others, which fit makes; fit with it")
        if (vote == "mean") == self.classifies and vote != "stack":
            what, else_ = ("classes", "'soft' or 'hard'") if self.classifies else ("values", "'mean'")
            raise ArgumentError(f"vote={vote!r}: the models predict {what}; say vote={else_}")
        return dataclasses.replace(self, vote=vote)

    def columns(self, table: Any, who: str) -> Columns:
        """What of a table the models are asked with."""
        if isinstance(table, np.ndarray) and not table.dtype.names and len(self.layout.names) == 1:
            table = {self.layout.names[0]: table}
        elif isinstance(table, np.ndarray) and not table.dtype.names and table.ndim == 2:
            if table.shape[1] != self.layout.width:
                raise ArgumentError(
                    f"{who}: the array has {table.shape[1]} columns where the models were fitted with {self.layout.width}"
                )
            cuts = np.cumsum([max(1, w) for w in self.layout.widths])[:-1]
            parts = np.split(table, cuts, axis=1)
            table = {
                n: p if w else p[:, 0] for n, w, p in zip(self.layout.names, self.layout.widths, parts, strict=True)
            }
        return columns_of(table, self.layout.names, who)

    def shares(self, columns: Columns) -> np.ndarray:
        """For each row the weighted votes of the classes, which sum to one."""
        assert self.classes is not None
        if self.vote == "stack":
            p = self.last.proba(self.stacked(columns), {})
            assert p is not None
            return p
        total = np.zeros((rows_of(columns), len(self.classes)))
        weights = sum(m.weight for m in self.members)
        for i, m in enumerate(self.members):
            if self.vote == "soft":
                p = proba(m, self.layout, columns)
                assert m.classes is not None
                if p is None:
                    raise ArgumentError(
                        f"model {i} answers without probabilities, so it cannot vote softly; say vote='hard'"
                    )
                total[:, np.searchsorted(self.classes, m.classes)] += p * m.weight
            else:
                said = answer(m, self.layout, columns)
                at = np.searchsorted(self.classes, said).clip(max=len(self.classes) - 1)
                if (self.classes[at] != said).any():
                    odd = said[self.classes[at] != said][0]
                    raise ArgumentError(
                        f"model {i} answers with {odd!r}, which is none of the classes {list(self.classes[:20])}"
                    )
                total[np.arange(len(said)), at] += m.weight
        return total / weights

    def stacked(self, columns: Columns) -> np.ndarray:
        """The members' answers beside each other, as the last model wants them."""
        return np.concatenate(
            [side_by_side(_told(m, self.layout, columns), m.classes, self.classes) for m in self.members], axis=1
        )

    def answers(self, columns: Columns) -> tuple[np.ndarray, np.ndarray | None]:
        """Predictions and, where classes are voted on, the shares."""
        if not self.classifies:
            if self.vote == "stack":
                return self.last.answer(self.stacked(columns), {}), None
            weights = np.array([m.weight for m in self.members])
            total = np.zeros(rows_of(columns))
            for m in self.members:
                total += m.weight * answer(m, self.layout, columns)
            return total / weights.sum(), None
        shares = self.shares(columns)
        assert self.classes is not None
        return self.classes[shares.argmax(axis=1)], shares


def _told(m: Member, layout: Layout, columns: Columns) -> np.ndarray:
    found = proba(m, layout, columns) if m.classes is not None else None
    return answer(m, layout, columns) if found is None else found


def side_by_side(told: np.ndarray, own: np.ndarray | None, classes: np.ndarray | None) -> np.ndarray:
    """One member's answers with a column for each class of all, or one of values."""
    if classes is None or own is None:
        return told.reshape(len(told), -1).astype(float)
    found = np.zeros((len(told), len(classes)))
    if told.ndim == 2:
        found[:, np.searchsorted(classes, own)] = told
    else:  # labels
        found[np.arange(len(told)), np.searchsorted(classes, told)] = 1
    return found


def assemble(
    outcomes: Sequence[dict[str, Any]], settings: dict[str, Any], layout: Layout, truth: np.ndarray | None
) -> Ensemble:
    """The ensemble of what the partitions came to. `truth` are the labels of the validation rows, where there are
    some."""
    members, classes = [], [o["classes"] for o in outcomes if o["classes"] is not None]
    if classes and len(classes) != len(outcomes):
        raise ArgumentError(
            "some partitions' models answer with classes and others with values; let base return one kind of model"
        )
    whole = union(classes) if classes else None
    for o in outcomes:
        weight = float(o["rows"]) if settings["weight"] == "rows" else max(float(o["score"]), 1e-9)
        members.append(Member(o["blob"], o["classes"], o["encoded"], o["subset"], weight))
    report = [
        {k: o[k] for k in ("partition", "merged", "rows", "seconds", "memory", "remark", "score", "host")}
        for o in outcomes
    ]
    for r, m in zip(report, members, strict=True):
        r["classes"] = None if m.classes is None else m.classes.tolist()
    found = Ensemble(
        members,
        layout,
        settings["label"],
        settings["vote"],
        whole,
        None,
        report,
        (settings["prediction"], settings["probability"]),
    )
    if settings["vote"] == "stack":
        assert truth is not None
        found.final = _fit_last(outcomes, whole, truth, settings.get("final"))
    return found


def _fit_last(outcomes: Sequence[dict[str, Any]], classes: np.ndarray | None, truth: np.ndarray, last: Any) -> bytes:
    given = np.concatenate([side_by_side(o["told"], o["classes"], classes) for o in outcomes], axis=1)
    if last is None:
        try:
            from sklearn.linear_model import LogisticRegression, Ridge
        except ImportError:
            raise ArgumentError(
                "vote='stack' needs scikit-learn for the model that weighs the others; run `pip install scikit-learn`"
            ) from None
        last = Ridge(alpha=1e-3) if classes is None else LogisticRegression(max_iter=1000)
    if classes is not None:
        unseen = sorted(set(classes.tolist()) - set(truth.tolist()))
        if unseen:  # the last model would have no column for them
            raise ArgumentError(
                f"vote='stack': the {len(truth)} validation rows have none of class {unseen[0]!r}; raise validation=, or vote softly"
            )
    last.fit(given, truth)
    return pickle.dumps(last)
