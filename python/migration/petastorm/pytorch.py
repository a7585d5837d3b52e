"""Batches of torch tensors from a reader."""

from __future__ import annotations

import collections.abc
import decimal
import logging
import random

import numpy as np
import torch
from torch.utils.data.dataloader import default_collate

logger = logging.getLogger(__name__)


def _sanitize_pytorch_types(row_as_dict):
    """Change values, in place, to types that torch has."""
    for name, value in row_as_dict.items():
        if isinstance(value, np.ndarray):
            if value.dtype == np.bool_:
                row_as_dict[name] = value.astype(np.uint8)
            elif value.dtype == np.uint16:
                row_as_dict[name] = value.astype(np.int32)
            elif value.dtype == np.uint32:
                row_as_dict[name] = value.astype(np.int64)
            elif value.dtype.kind in "SUO":
                raise TypeError(f"Pytorch does not support arrays of string or object classes. Found in field {name}.")
        elif isinstance(value, np.bool_):
            row_as_dict[name] = np.uint8(value)
        elif value is None:
            raise TypeError(f"Pytorch does not support nullable fields. Found None in {name}")


def decimal_friendly_collate(batch):
    """torch's default_collate, but decimals and texts stay lists."""
    first = batch[0]
    if isinstance(first, (decimal.Decimal, str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: decimal_friendly_collate([row[key] for row in batch]) for key in first}
    if isinstance(first, collections.abc.Sequence):
        return [decimal_friendly_collate(column) for column in zip(*batch, strict=True)]
    if isinstance(first, np.datetime64):
        return torch.as_tensor(np.array(batch, "M8[ns]").view(np.int64))
    return default_collate(batch)


class LoaderBase:
    """What the loaders have in common: one pass at a time; a second one begins the reader anew."""

    def __init__(self):
        self._in_iter = None
        self._error = None

    def __iter__(self):
        if self._error is not None:
            raise RuntimeError(
                f"Cannot start a new iteration because last time iteration failed with error {self._error!r}."
            )
        if self._in_iter:
            raise RuntimeError(
                "You must finish a full pass of Petastorm DataLoader before making another pass from the beginning. "
                "If you do need to terminate early and restart from beginning, please re-create the reader and the data loader."
            )
        if self._in_iter is not None:
            self.reader.reset()
            logger.warning("Start a new pass of Petastorm DataLoader, reset underlying Petastorm reader to position 0.")
        self._in_iter = True
        try:
            yield from self._iter_impl()
        except Exception as e:
            self._error = e
            logger.error("Iteration on Petastorm DataLoader raise error: %r", e)
            raise
        finally:
            self._in_iter = False

    def _iter_impl(self):
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.reader.stop()
        self.reader.join()


class _Shuffled:
    """Items that leave in another order than they came in: one of `capacity` that wait, by chance."""

    def __init__(self, capacity):
        self._capacity, self._items, self._chance = capacity, [], random.Random()

    def put(self, item):
        """The item that leaves, as a list of one or none."""
        self._items.append(item)
        return self._pop() if len(self._items) >= self._capacity else []

    def _pop(self):
        i = self._chance.randrange(len(self._items))
        self._items[i], self._items[-1] = self._items[-1], self._items[i]
        return [self._items.pop()]

    def rest(self):
        while self._items:
            yield from self._pop()


class DataLoader(LoaderBase):
    """Batches of `batch_size` rows, collated; of any reader. With a shuffling queue rows are mixed once more."""

    def __init__(self, reader, batch_size=1, collate_fn=decimal_friendly_collate, shuffling_queue_capacity=0):
        super().__init__()
        self.reader, self.batch_size, self.collate_fn = reader, batch_size, collate_fn
        self.shuffling_queue_capacity = shuffling_queue_capacity
        if getattr(reader, "ngram", None) is not None and reader.batched_output:
            raise NotImplementedError("n-grams are read with make_reader")

    def _rows(self):
        for item in self.reader:
            if getattr(self.reader, "ngram", None) is not None:
                rows = {k: v._asdict() for k, v in item.items()}
                for row in rows.values():
                    _sanitize_pytorch_types(row)
                yield rows
                continue
            row = item._asdict()
            _sanitize_pytorch_types(row)
            if self.reader.batched_output:
                names = list(row)
                for values in zip(*row.values(), strict=True):
                    yield dict(zip(names, values, strict=True))
            else:
                yield row

    def _mixed(self):
        if self.shuffling_queue_capacity <= 0:
            yield from self._rows()
            return
        queue = _Shuffled(self.shuffling_queue_capacity)
        for row in self._rows():
            yield from queue.put(row)
        yield from queue.rest()

    def _whole(self):
        """Whether the reader's batches are this loader's: then no row is touched in Python."""
        return (
            self.shuffling_queue_capacity <= 0 and getattr(self.reader, "batched_output", False)
            and getattr(self.reader, "_given", None) == self.batch_size and self.collate_fn is decimal_friendly_collate
        )  # fmt: skip

    def _iter_impl(self):
        if self._whole():
            for item in self.reader:
                columns = item._asdict()
                _sanitize_pytorch_types(columns)
                yield {n: _tensor(v) for n, v in columns.items()}
            return
        batch = []
        for row in self._mixed():
            batch.append(row)
            if len(batch) == self.batch_size:
                yield self.collate_fn(batch)
                batch = []
        if batch:
            yield self.collate_fn(batch)


def _tensor(values):
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        values = values.view(np.int64)
    return torch.as_tensor(values)


class BatchedDataLoader(LoaderBase):
    """Batches of `batch_size` rows, made of whole tensors; for numbers only. `transform_fn` makes a column a tensor."""

    def __init__(self, reader, batch_size=1, transform_fn=None, shuffling_queue_capacity=0):
        super().__init__()
        self.reader, self.batch_size, self.shuffling_queue_capacity = reader, batch_size, shuffling_queue_capacity
        self.transform_fn = transform_fn or torch.as_tensor

    def _columns(self):
        for item in self.reader:
            row = item._asdict()
            _sanitize_pytorch_types(row)
            if not self.reader.batched_output:
                row = {n: np.expand_dims(np.asarray(v), 0) for n, v in row.items()}
            yield {n: _as(self.transform_fn, v) for n, v in row.items()}

    def _iter_impl(self):
        held, rows = [], 0
        least = max(
            self.batch_size,
            self.shuffling_queue_capacity + self.batch_size - 1 if self.shuffling_queue_capacity > 0 else 0,
        )
        pool = None
        for columns in self._columns():
            held.append(columns)
            rows += len(next(iter(columns.values())))
            if rows < least:
                continue
            pool, held = _joined(([pool] if pool else []) + held), []
            while rows >= least:
                batch, pool = self._cut(pool, rows)
                rows -= self.batch_size
                yield batch
        pool = _joined(([pool] if pool else []) + held) if pool or held else None
        while rows > 0:
            batch, pool = self._cut(pool, rows)
            rows -= self.batch_size
            yield batch

    def _cut(self, pool, rows):
        n = min(self.batch_size, rows)
        if self.shuffling_queue_capacity > 0:
            order = torch.randperm(rows)
            return {k: v[order[:n]] for k, v in pool.items()}, {k: v[order[n:]] for k, v in pool.items()}
        return {k: v[:n] for k, v in pool.items()}, {k: v[n:] for k, v in pool.items()}


def _as(transform, values):
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        values = values.view(np.int64)
    return transform(values)


def _joined(parts):
    return parts[0] if len(parts) == 1 else {k: torch.cat([p[k] for p in parts]) for k in parts[0]}


class InMemBatchedDataLoader:
    """The first `rows_capacity` rows of a reader, held in memory and gone through `num_epochs` times."""

    def __init__(
        self, reader, batch_size=1, transform_fn=None, num_epochs=1, seed=0, rows_capacity=1024, shuffle=False
    ):
        self._batch_size, self._num_epochs, self._seed, self._shuffle = batch_size, num_epochs, seed, shuffle
        self._done, parts, rows = False, [], 0
        for columns in BatchedDataLoader(reader, transform_fn=transform_fn)._columns():
            parts.append(columns)
            rows += len(next(iter(columns.values())))
            if rows >= rows_capacity:
                break
        reader.stop()
        reader.join()
        if not parts:
            raise ValueError("the reader has no rows to hold")
        self._buffer = {k: v[:rows_capacity] for k, v in _joined(parts).items()}
        self._rows = min(rows, rows_capacity)

    def __iter__(self):
        if self._done:
            raise RuntimeError(
                "InMemBatchedDataLoader couldn't be used multiple times: say how often it goes through its rows with num_epochs="
            )
        self._done = True
        for epoch in range(self._num_epochs):
            order = None
            if self._shuffle:
                order = torch.randperm(self._rows, generator=torch.Generator().manual_seed(self._seed + epoch))
            for i in range(0, self._rows, self._batch_size):
                part = slice(i, i + self._batch_size)
                yield {k: v[part] if order is None else v[order[part]] for k, v in self._buffer.items()}

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb): ...
