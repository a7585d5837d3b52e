"""open() and what it answers."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError, ClosedError
from ._arguments import fields, keys, local, null_values, place, size_of, threads_of, whole
from ._calls import Handle, Reader
from ._source import conditions, sources
from ._views import HEADER, Batch, makers, to_torch
from ._work import Work

_END = object()
TOLD = 16  # batches that may be held before their holder is told


def open(
    source: Any,
    *,
    columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    batch: int | None = None,
    global_batch: int | None = None,
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
) -> Loader:
    """Open Parquet files as batches for this rank.

    `source` is a file, a folder, a pattern (`data/*.parquet`), an http address, or a list of these. `columns` names the
    columns that are wanted; as a dict it names a batch's arrays, and a list of columns of one type becomes one matrix
    `[rows, columns]`. `batch` is how many rows each rank gets in a step, `global_batch` how many all of them get
    together.

    `shuffle` is True (within what `memory` holds for the whole job), "full" (exactly; all must fit) or False (the order
    of the files). `last` says what becomes of an end that fills no step: "short", "drop", "pad" (with rows from the
    beginning) or "wrap" (with rows of the next epoch, which leaves them out). `nulls` says for each array what a null
    becomes: "nan", "mask" (a second array, `NAME.null`), "error" or a value; floats and dates become NaN and NaT where
    nothing is said, in others a null is an error. `filter` is a list of comparisons that all hold for the rows that are
    read, as `[("label", "in", [1, 2]), ("size", ">", 0.5)]`; of a list of such lists one holds. `decode` names columns
    of JPEG and PNG images: `{"image": "rgb"}`. `transform` is a function from a batch to a batch; it runs on a thread,
    ahead of the training. `on_error="skip"` leaves damaged row groups out, the same ones on all ranks. `ragged` names
    lists that have different lengths even where they look equally long.

    >>> loader = hora.dataset.open("data/train", batch=256, seed=1)
    """
    return Loader(
        source, columns, batch, global_batch, shuffle, seed, epoch, last, nulls, ragged, memory, threads, rank, size,
        filter, decode, transform, on_error,
    )  # fmt: skip


class Loader:
    """Batches of this rank, epoch after epoch; made by `open`.

    Iterating goes through one epoch: the one that `set_epoch` said, or the one after the last that was finished.
    After `load_state_dict` it goes on at the very row.
    """

    def __init__(
        self, source: Any, columns: Any, batch: int | None, global_batch: int | None, shuffle: Any, seed: int,
        epoch: int,
        last: str, nulls: Mapping[str, Any] | None, ragged: Sequence[str], memory: int | str, threads: int | None,
        rank: int | None, size: int | None, filter: Any = None, decode: Mapping[str, Any] | None = None,
        transform: Callable[[Batch], Any] | None = None, on_error: str = "raise",
        only: Sequence[int] = (), readable: bool = False,
    ) -> None:  # fmt: skip
        if (batch is None) == (global_batch is None):
            raise ArgumentError(
                "open data: give batch= (rows of each rank in a step) or global_batch= (rows of all of them)"
            )
        batch = None if batch is None else whole("batch", batch, None)
        global_batch = None if global_batch is None else whole("global_batch", global_batch, None)
        if any(n is not None and n < 1 for n in (batch, global_batch)):
            raise ArgumentError("open data: a batch has one row or more")
        if (rank is None) != (size is None):
            raise ArgumentError("open data: rank= and size= are given together")
        if rank is not None and size is not None and not 0 <= rank < size:
            raise ArgumentError(f"open data: rank={rank} of size={size}; ranks are 0 to {size - 1}")
        self.batch, self.global_batch, self.last = batch, global_batch, last
        self._place = None if rank is None or size is None else (rank, size)
        if last not in ("short", "drop", "pad", "wrap"):
            raise ArgumentError(f'open data: last={last!r}; use "short", "drop", "pad" or "wrap"')
        modes: dict[str | int | None, str] = {True: "window", False: "none", None: "none", "full": "full"}
        if not isinstance(shuffle, (bool, str, int, type(None))) or shuffle not in modes:
            raise ArgumentError(f'open data: shuffle={shuffle!r}; use True, False or "full"')
        if on_error not in ("raise", "skip"):
            raise ArgumentError(f'open data: on_error={on_error!r}; use "raise" or "skip"')
        where = self._where()
        threads = threads_of(where[1]) if threads is None else whole("threads", threads, 1)
        seed, epoch = whole("seed", seed, None), whole("epoch", epoch)
        self._work = Work(decode, transform, threads, on_error == "skip")
        self._handle = Handle(
            **self._sources(source), filter=conditions(filter), skip=on_error == "skip", only=list(only),
            readable=readable,
            fields=fields(columns, ragged), ragged=list(ragged), nulls=null_values(nulls), shuffle=modes[shuffle],
            seed=seed & ((1 << 64) - 1), memory=size_of(memory), threads=threads, env=keys(), **local(),
        )  # fmt: skip
        about = self._handle.about
        self.rows: int = about["rows"]
        self.mixing: str = about["mixing"]
        self.fields: list[dict[str, Any]] = about["fields"]
        self._left: list[str] = about["left"] or []
        self._state: dict[str, Any] = about["state"] | {"epoch": epoch}
        self._begun = False  # the epoch is to go on where the state says, not to begin anew
        self._said = True  # somebody said which epoch comes next
        self._turn = 0  # which iteration is the present one
        self._told = self._kept = False
        self._said_once = ""
        self._listed = 0
        self._changes = 0  # how often what is to be read has changed within an epoch

    def _sources(self, source: Any) -> dict[str, Any]:
        """What the library is told of the source."""
        return {"source": sources(source, self)}

    # -- where we are

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, or of the next one."""
        return self._state["epoch"]

    @property
    def position(self) -> int:
        """How many of the epoch's rows all ranks together have been handed."""
        return self._state["pos"]

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next. One that a loaded state stands in goes on; any other begins."""
        epoch = whole("epoch", epoch)
        if epoch != self.epoch or not self._begun:
            self._state |= {"epoch": epoch, "pos": 0}
            self._begun = False
        self._said = True
        self._turn += 1

    def state_dict(self) -> dict[str, Any]:
        """Where the job stands in its data, as numbers for a checkpoint: equal on all ranks, for any number of them.

        The rows of the batch that was handed out last count as done.
        """
        self._remember()
        return dict(self._state)

    def _remember(self) -> None:
        """Once: the list of the files is kept, for the message that a state of other data gets."""
        if not self._kept:
            self._kept = True
            self._handle.act("data_remember")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called, with any number of ranks and any batch size."""
        self._state = self._handle.act("data_state", state=dict(state))
        self._begun, self._said = True, False
        self._turn += 1

    # -- batches

    def _where(self) -> tuple[int, int]:
        return self._place or place()

    def _whole(self, size: int) -> int:
        return self.global_batch or (self.batch or 1) * size

    def __len__(self) -> int:
        """How many batches this rank gets until the end of the epoch."""
        rank, size = self._where()
        step = self._whole(size)
        steps, rest = divmod(self.rows - self._next()[1], step)
        each = steps * self._takes(step, rank, size)
        if not rest or self.last == "drop":
            return each
        if self.last != "short":  # an epoch with fewer rows than a step is filled up to twice itself
            return each + self._takes(min(step, rest + self.rows), rank, size)
        return each + self._takes(rest, rank, size)

    def _takes(self, rows: int, rank: int, size: int) -> bool:
        """Whether a rank has a part of so many rows; there may be more ranks than rows."""
        return rows * (rank + 1) // size > rows * rank // size

    def _next(self) -> tuple[int, int]:
        """Epoch and position that iterating begins with."""
        epoch, position = self.epoch, self.position
        over = position >= self.rows
        if self._begun and not (over and not self._said):
            return epoch, position
        return (epoch if self._said or not over else epoch + 1), 0

    def __iter__(self) -> Iterator[Batch]:
        epoch, position = self._next()
        self._turn += 1
        self._state |= {"epoch": epoch, "pos": position}
        make = makers(self._seek())
        self._begun = self._said = False
        return self._batches(self._turn, make)

    def _seek(self) -> Any:
        """Begin to read where the state says; answers where each array lies in a batch's memory."""
        rank, size = self._where()
        return self._handle.act(
            "data_seek",
            epoch=self.epoch,
            position=self.position,
            rank=rank,
            size=size,
            batch=self._whole(size),
            last=self.last,
        )

    def _batches(self, turn: int, make: list[Any]) -> Iterator[Batch]:
        state, begun = self._state, self._state["epoch"]
        changes = None
        while changes != self._changes:
            if changes is not None:
                make = makers(self._seek())
            changes = self._changes
            raw = self._raw(turn, make)
            items = self._work.run(raw, _END) if self._work else iter(raw, _END)
            for batch, state["epoch"], state["pos"] in items:
                yield batch
                batch = None
                self._mine(turn)
                if changes != self._changes:
                    break
        end = self._handle.act("data_state")  # the last batch need not say it: a step may have no rows for this rank
        state["epoch"], state["pos"] = end["epoch"], end["pos"]
        if state["epoch"] != begun:
            self._begun = self._said = True  # last="wrap" has begun the next one
        self._tell()

    def _row_groups(self) -> list[dict[str, Any]]:
        """File, row_group and rows of each row group; what `only` and `_blocks` number."""
        return self._handle.act("data_blocks")

    def _blocks(self, numbers: Sequence[int]) -> Iterator[Batch]:
        """Some row groups, a batch each, in this order and for this process alone; the state stays what it is."""
        if not numbers:
            return
        self._turn += 1
        turn = self._turn
        layout = self._handle.act(
            "data_seek", epoch=0, position=0, rank=0, size=1, batch=1, last="short", blocks=list(numbers)
        )
        raw = self._raw(turn, makers(layout))
        for batch, _, _ in self._work.run(raw, _END) if self._work else iter(raw, _END):
            yield batch

    def _raw(self, turn: int, make: list[Any]) -> Callable[..., Any]:
        """What answers the next batch, with the epoch and position after it: None where it is not there yet, _END at
        the end."""
        reader, unpack = Reader(self._handle), struct.Struct(f"={HEADER}q").unpack_from

        def raw(wait: bool = True) -> Any:
            self._mine(turn)
            memory = reader.next(wait)
            if memory is None or isinstance(memory, bool):
                return _END if memory is None else None
            rows, padded, epoch, position, held = unpack(memory)
            batch = Batch()
            batch.rows = rows
            for m in make:
                m(memory, rows, batch)
            if padded:
                batch.padded = padded
            if held > TOLD and not self._told:
                self._hold(held)
            return batch, epoch, position

        return raw

    def _mine(self, turn: int) -> None:
        if turn != self._turn:
            raise ClosedError(
                "iterate over data: another iteration, another epoch or a loaded state has ended this one"
            )

    def _quiet(self) -> Iterator[Batch]:
        """The batches of an epoch for whoever keeps all of them."""
        self._told = True
        return iter(self)

    @property
    def skipped(self) -> list[dict[str, Any]]:
        """What on_error="skip" has left out so far: file, row_group (-1: all of it), rows, why; and images that are
        damaged."""
        return self._handle.act("data_skipped") + [{"why": why} for why in self._work.dropped]

    def _tell(self) -> None:
        told = self._handle.act("data_told")
        if told and told != self._said_once:
            self._said_once = told
            warnings.warn(told, stacklevel=3)
        left_out = self.skipped if self._work.skip else []
        if len(left_out) > self._listed:
            self._listed = len(left_out)
            warnings.warn(
                f"{len(left_out)} damaged parts of the data were left out; loader.skipped lists them; the first: {left_out[0]['why']}",
                stacklevel=3,
            )

    def _hold(self, held: int) -> None:
        self._told = True
        warnings.warn(
            f"{held} batches of hora.dataset are held at a time: each keeps its memory until its arrays are gone; "
            "copy what is kept, or drop batches when they are used",
            ResourceWarning,
            stacklevel=3,
        )

    def torch(self) -> TorchLoader:
        """The same batches as torch tensors over the same memory."""
        return TorchLoader(self)

    def tensorflow(self, signature: Any = None) -> Any:
        """The same batches as a tf.data.Dataset, epoch after epoch of this loader. With `transform` or `decode` say
        their `signature`."""
        from ._frameworks import tensorflow

        return tensorflow(self, signature)

    def jax(self, sharding: Any = None) -> Any:
        """The same batches as arrays of JAX; with a sharding each rank's part is its part of one global array."""
        from ._frameworks import JaxLoader

        return JaxLoader(self, sharding)

    def why(self) -> dict[str, float]:
        """Seconds since the epoch began here: what threads did, and who waited for whom.

        `fetch`, `decode`, `gather` are work; `caller_waited` is how long this program waited for batches,
        `blocks_awaited` how long copying waited for decoded data, `caller_awaited` how long a ready batch waited for
        this program. `blocks_read` is no time: it says how many row groups, or parts of such, were read and decoded
        here.
        """
        return self._handle.act("data_why")

    def __repr__(self) -> str:
        about = self._handle.about
        return f"<hora.dataset.Loader {self.rows} rows in {about['files']} files, {about['blocks']} row groups; {self.mixing}>"


class Wrapped:
    """A Loader whose batches are of a framework. It is the same loader, with the same state."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def state_dict(self) -> dict[str, Any]:
        """See Loader.state_dict."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See Loader.load_state_dict."""
        self.loader.load_state_dict(state)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.loader!r}>"


class TorchLoader(Wrapped):
    """A Loader whose batches hold torch tensors; made by `Loader.torch`. It is the same loader, with the same state."""

    def __iter__(self) -> Iterator[Batch]:
        return map(to_torch, self.loader)
