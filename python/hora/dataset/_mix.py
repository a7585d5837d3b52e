"""mix(): several data as one, by weight."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ._loader import Loader
from ._source import sources as names_of
from ._views import Batch


def mix(
    sources: Mapping[str, Any],
    *,
    columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    batch: int | None = None,
    global_batch: int | None = None,
    rows: int | None = None,
    origin: str | None = None,
    shuffle: bool | str = True,
    seed: int = 0,
    epoch: int = 0,
    last: str = "short",
    nulls: Mapping[str, Any] | None = None,
    ragged: Sequence[str] = (),
    memory: int | str = "512MiB",
    threads: int | None = None,
    filter: Any = None,
    decode: Mapping[str, Any] | None = None,
    transform: Callable[[Batch], Any] | None = None,
    on_error: str = "raise",
    rank: int | None = None,
    size: int | None = None,
) -> Mixture:
    """Open several data as one sequence of rows, in which each has as many as its weight says.

    `sources` names each member with its source and its weight: `{"web": ("data/web", 0.7), "code": ("data/code",
    0.3)}`. In every 1,000 rows, counted from the beginning or from the last change of weights, members have exactly
    their shares, and in between they differ from them by a row or two. A member that ends begins its next epoch, one
    that does not goes on in the mixture's next epoch; `rows` is how long that is, and without it, until the first
    member would begin anew. `origin` names an array that says for each row which member it is of. `last` is "short",
    "drop" or "wrap". Everything else is as in `open`; all members must have the columns that are read.

    >>> loader = hora.dataset.mix({"web": ("data/web", 0.7), "code": ("data/code", 0.3)}, batch=256, seed=1)
    """
    return Mixture(
        sources, rows, origin, columns, batch, global_batch, shuffle, seed, epoch, last, nulls, ragged, memory, threads,
        rank, size,
        filter, decode, transform, on_error,
    )  # fmt: skip


class Mixture(Loader):
    """A Loader of several data; made by `mix`. `weights` are the present ones, `set_weights` changes them at a step."""

    def __init__(self, sources: Mapping[str, Any], rows: int | None, origin: str | None, *rest: Any) -> None:
        if not isinstance(sources, Mapping) or not sources:
            raise ArgumentError(
                'mix data: give a dict from names to (source, weight), as {"web": ("data/web", 0.7), "code": ("data/code", 0.3)}'
            )
        if rows is not None and rows < 1:
            raise ArgumentError(f"mix data: rows={rows}; an epoch has one row or more")
        self._members = list(sources)
        self._epoch_rows, self._origin = rows, origin
        super().__init__(sources, *rest)

    def _sources(self, source: Any) -> dict[str, Any]:
        parts = []
        for name, member in source.items():
            if not isinstance(name, str) or not isinstance(member, (tuple, list)) or len(member) != 2:
                raise ArgumentError(f"mix data: {name!r} is {member!r}; give a name with (source, weight)")
            parts.append({"name": name, "weight": _weight(name, member[1]), "source": names_of(member[0], self)})
        if self.last == "pad":
            raise ArgumentError('mix data: last="pad" is for data that have an end; use "short", "drop" or "wrap"')
        return {"source": [], "mix": parts, "rows": self._epoch_rows or 0, "origin": self._origin or ""}

    @property
    def weights(self) -> dict[str, float]:
        """The members' weights as they were given, by name."""
        return {m["name"]: float(m["weight"]) for m in self.state_dict()["mix"]}

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Give the members other weights from the next batch on. All ranks do it at the same step; a member left out
        keeps its own."""
        unknown = set(weights) - set(self._members)
        if unknown:
            raise ArgumentError(
                f"weigh a mixture: there is no member {min(unknown)!r}; there are: {', '.join(self._members)}"
            )
        texts = {m["name"]: m["weight"] for m in self.state_dict()["mix"]} | {
            n: _weight(n, w) for n, w in weights.items()
        }
        self._handle.act(
            "data_weigh", weights=[texts[n] for n in self._members], epoch=self.epoch, position=self.position
        )
        self._changes += 1

    def state_dict(self) -> dict[str, Any]:
        """Where the job stands: the weights, and each member's place. Equal on all ranks, for any number of them."""
        self._remember()
        state: dict[str, Any] = self._handle.act("data_state", at=True, epoch=self.epoch, position=self.position)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called, with its weights, any number of ranks and any batch size."""
        if "mix" not in state:
            raise ArgumentError(
                "go on from saved state: it is of data alone and not of a mixture; give what a mixture's state_dict() answered"
            )
        super().load_state_dict(state)
        self.rows = self._state["rows"]

    def _takes(self, rows: int, rank: int, size: int) -> bool:
        return rows > rank  # a step's rows are dealt one by one


def _weight(name: str, weight: Any) -> str:
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 <= float(weight) < float("inf"):
        raise ArgumentError(f"mix data: the weight of {name!r} is {weight!r}; give a number, 0 for a member that rests")
    number = float(weight)
    return repr(int(number)) if number.is_integer() else repr(number)
