"""Arrays over a batch's memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np

HEADER = 5  # rows, padded, epoch, position, held
NULL_TEXT = (1 << 32) - 1


class Batch(dict[str, Any]):
    """The arrays of a batch by name. They are views of memory that stays theirs as long as one of them is there.

    `rows` is how many there are, `padded` how many of them, at the end, repeat others (last="pad").
    """

    padded = 0
    rows = 0


class _Items(Sequence[Any]):
    """Items of different lengths behind each other: item i lies in `data` from `ends[i]` to `ends[i + 1]`."""

    word = "item"
    data: Any
    ends: Any

    def _item(self, i: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> list[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"{self.word} {i} of {len(self)}")
        return self._item(i)


class Texts(_Items):
    """A column of texts or bytes: `data` and `ends` are NumPy views, an item is made when it is asked for.

    Item i is `data[ends[i]:ends[i + 1]]`: a str, or a memoryview for bytes. `numpy.asarray` and `list` make all of
    them.
    """

    word = "text"

    def __init__(self, data: Any, ends: Any, binary: bool) -> None:
        self.data, self.ends, self.binary = data, ends, binary

    def _item(self, i: int) -> Any:
        part = memoryview(self.data)[self.ends[i] : self.ends[i + 1]]
        return part if self.binary else str(part, "utf-8")

    def tolist(self) -> list[Any]:
        """All of them, as str or bytes."""
        whole, ends = self.data.tobytes(), self.ends.tolist()
        parts = [whole[a:b] for a, b in pairwise(ends)]
        return parts if self.binary else [p.decode() for p in parts]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self))) if self.binary else iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = np.empty(len(self), dtype=object)
        array[:] = self.tolist()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"<{len(self)} {'binaries' if self.binary else 'texts'} of {len(self.data)} bytes>"


class Ragged(_Items):
    """A column of lists of different lengths: `data` and `ends` are NumPy views, item i is `data[ends[i]:ends[i +
    1]]`."""

    word = "list"

    def __init__(self, data: Any, ends: Any) -> None:
        self.data, self.ends = data, ends

    def _item(self, i: int) -> Any:
        return self.data[self.ends[i] : self.ends[i + 1]]

    def tolist(self) -> list[list[Any]]:
        """All of them, as Python's lists."""
        return [self[i].tolist() for i in range(len(self))]

    def __repr__(self) -> str:
        return f"<{len(self)} lists of {len(self.data)} {self.data.dtype} in all>"


class TextLists(_Items):
    """A column of lists of texts or bytes: an item is a list of str or bytes, None where a text is null.

    The item's texts lie behind each other from `ends[i]` to `ends[i + 1]` of `data`: each with its length before it, as
    four bytes, little end first; a length of 2³² - 1 is that of a null.
    """

    word = "list"

    def __init__(self, data: Any, ends: Any, binary: bool) -> None:
        self.data, self.ends, self.binary = data, ends, binary

    def _item(self, i: int) -> list[Any]:
        return self._parse(self.data[self.ends[i] : self.ends[i + 1]].tobytes())

    def _parse(self, part: bytes) -> list[Any]:
        out: list[Any] = []
        at = 0
        while at < len(part):
            n = int.from_bytes(part[at : at + 4], "little")
            at += 4
            if n == NULL_TEXT:
                out.append(None)
                continue
            text = part[at : at + n]
            out.append(text if self.binary else text.decode())
            at += n
        return out

    def tolist(self) -> list[list[Any]]:
        """All of them, as Python's lists."""
        whole = self.data.tobytes()
        return [self._parse(whole[a:b]) for a, b in pairwise(self.ends.tolist())]

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = np.empty(len(self), dtype=object)
        array[:] = self.tolist()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"<{len(self)} lists of {'binaries' if self.binary else 'texts'}>"


Maker = Callable[[memoryview, int, Batch], None]


def makers(layout: list[dict[str, Any]]) -> list[Maker]:
    """What makes each array of a batch from its memory and rows."""
    return [m for field in layout for m in _makers(field)]


def _makers(field: dict[str, Any]) -> Iterator[Maker]:
    name, at = field["name"], field["at"]
    columns = field["count"]
    if field["item"] > 0:
        yield _lists(name, at, field["text"], np.dtype(field["type"]))
    elif field["text"] >= 0:
        yield _text(name, at, field["text"], field["type"] == "binary", TextLists if field["item"] else Texts)
    else:
        yield _fixed(name, at, np.dtype(field["type"]), columns)
    if field["mask"]:
        yield _fixed(name + ".null", field["mask_at"], np.dtype(bool), columns)


def _fixed(name: str, at: int, dtype: Any, columns: int) -> Maker:
    ndarray = np.ndarray

    def make(memory: memoryview, rows: int, batch: Batch) -> None:
        batch[name] = ndarray((rows, columns) if columns else rows, dtype, memory, at)

    return make


def _text(name: str, at: int, header: int, binary: bool, kind: type[Texts | TextLists]) -> Maker:
    def make(memory: memoryview, rows: int, batch: Batch) -> None:
        begin, length = struct.unpack_from("=qq", memory, header * 8)
        ends = np.ndarray(rows + 1, np.int64, memory, at)
        batch[name] = kind(np.ndarray(length, np.uint8, memory, begin), ends, binary)

    return make


def _lists(name: str, at: int, header: int, dtype: Any) -> Maker:
    def make(memory: memoryview, rows: int, batch: Batch) -> None:
        begin, length = struct.unpack_from("=qq", memory, header * 8)
        ends = np.ndarray(rows + 1, np.int64, memory, at)
        ends //= dtype.itemsize  # the library counts bytes
        batch[name] = Ragged(np.ndarray(length // dtype.itemsize, dtype, memory, begin), ends)

    return make


def to_torch(batch: Batch) -> Batch:
    """The same memory as torch tensors; dates become their int64 numbers, texts stay what they are."""
    import torch

    out = Batch()
    out.padded, out.rows = batch.padded, batch.rows
    for name, array in batch.items():
        if isinstance(array, Ragged):
            numbers = array.data.view(np.int64) if array.data.dtype.kind in "mM" else array.data
            array = Ragged(torch.from_numpy(numbers), torch.from_numpy(array.ends))
        elif isinstance(array, np.ndarray):
            kind = array.dtype.kind
            if kind in "mM":
                array = array.view(np.int64)
            elif kind == "V":
                array = array.view(np.uint8).reshape(len(array), array.dtype.itemsize)
            array = torch.from_numpy(array)
        out[name] = array
    return out


def join(parts: list[Any]) -> Any:
    """Arrays, texts or lists of one column, one after the other, in memory of their own."""
    first = parts[0]
    if not isinstance(first, (Texts, TextLists, Ragged)):
        return np.concatenate(parts)
    before = np.cumsum([0] + [len(p.data) for p in parts[:-1]])
    ends = np.concatenate([first.ends[:1]] + [p.ends[1:] + b for p, b in zip(parts, before, strict=True)])
    data = np.concatenate([p.data for p in parts])
    return Ragged(data, ends) if isinstance(first, Ragged) else type(first)(data, ends, first.binary)


def take(column: Any, rows: Any) -> Any:
    """Some rows of a column, in memory of their own."""
    if isinstance(column, list):
        return [column[i] for i in rows]
    if not isinstance(column, (Texts, TextLists, Ragged)):
        return column[rows]
    pieces = [column.data[column.ends[i] : column.ends[i + 1]] for i in rows]
    ends = np.cumsum([0] + [len(p) for p in pieces])
    data = np.concatenate(pieces) if pieces else column.data[:0]
    return Ragged(data, ends) if isinstance(column, Ragged) else type(column)(data, ends, column.binary)
