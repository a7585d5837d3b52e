"""The reader that make_reader and make_batch_reader give: rows and batches of a hora loader, in Petastorm's forms."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import warnings

import numpy as np

import hora
import hora.dataset
from hora.dataset._loader import Loader
from hora.dataset._read import Table

from . import _asked, _folders
from ._asked import LOCAL_DISK_CACHE, NULL_CACHE  # noqa: F401 (names of Petastorm's reader)
from ._columns import array, inferred, of_frame, values, view_of
from .errors import NoDataAvailableError
from .etl import rowgroup_indexing
from .fs_utils import get_filesystem_and_path_or_paths, source
from .ngram import NGram
from .predicates import PredicateBase, in_set
from .selectors import RowGroupSelectorBase
from .transform import transform_schema
from .utils import decode_value

MOST_ROWS = 1 << 16  # of a batch


@contextlib.contextmanager
def _no_rows_is_no_data():
    """Where a dataset opens and has no rows, or none that a filter wants, that is Petastorm's error for it."""
    try:
        yield
    except hora.HoraError as e:
        if "no row fits" in str(e) or "have no rows" in str(e):
            raise NoDataAvailableError(str(e)) from e
        raise


class Reader:
    """Rows or batches, epoch after epoch; made by make_reader and make_batch_reader."""

    def __init__(
        self, urls, schema, schema_fields, seed, shuffle_rows, shuffle_row_groups, shuffle_row_drop_partitions,
        predicate,
        rowgroup_selector, num_epochs, cur_shard, shard_count, shard_seed, cache, transform_spec, filters,
        is_batched_reader, index,
    ):  # fmt: skip
        if num_epochs is not None and (not isinstance(num_epochs, int) or num_epochs < 1):
            raise ValueError(f"iterations (num_epochs) must be positive integer or None, not {num_epochs!r}")
        if predicate is not None and not isinstance(predicate, PredicateBase):
            raise ValueError("predicate parameter is expected to be derived from PredicateBase")
        if rowgroup_selector is not None and not isinstance(rowgroup_selector, RowGroupSelectorBase):
            raise ValueError("rowgroup_selector parameter is expected to be derived from RowGroupSelectorBase")
        if shard_seed is not None:
            warnings.warn("shard_seed was deprecated and will be removed in future versions. Use seed.", stacklevel=3)
            seed = shard_seed if seed is None else seed
        if shuffle_row_drop_partitions < 1:
            raise ValueError("shuffle_row_drop_partitions must be positive integer")
        self._rank, self._size = _asked.shard(cur_shard, shard_count)
        self._paths = [_folders.seen_from_above(source(u)) for u in (urls if isinstance(urls, list) else [urls])]
        self._seed, self._shuffle, self._epochs, self.cache = (
            seed or 0,
            bool(shuffle_rows or shuffle_row_groups),
            num_epochs,
            cache,
        )
        self._predicate, self._transform, self.is_batched_reader = predicate, transform_spec, is_batched_reader
        self.last_row_consumed, self._wrong, self._nothing = False, None, False
        self.ngram = schema_fields if isinstance(schema_fields, NGram) else None
        self._filter, self._given = _asked.alternatives(filters), None
        if (
            isinstance(predicate, in_set)
            and predicate._values
            and all(type(v) in (int, str) for v in predicate._values)
        ):
            more = (
                predicate._field,
                "in",
                sorted(predicate._values, key=str),
            )  # the same, and equal steps on all ranks
            self._filter = [[*g, more] for g in self._filter] if self._filter else [[more]]
            self._predicate = None
        self._only = self._selected(urls, rowgroup_selector, index)
        self._open(schema, schema_fields)
        self._stopped, self._items = False, None
        self._one = threading.Lock()  # threads may share a reader: each item is one's

    # -- what is read

    def _selected(self, urls, selector, index):
        if selector is None:
            return ()
        indexes = rowgroup_indexing.get_row_group_indexes(get_filesystem_and_path_or_paths(urls, *index))
        missing = set(selector.get_index_names()) - set(indexes)
        if missing:
            raise ValueError(f"Some of required indexes {sorted(missing)} are not available in {sorted(indexes)}")
        chosen = sorted(selector.select_row_groups(indexes))
        if not chosen:
            raise NoDataAvailableError("the row group selector has chosen nothing")
        return chosen

    def _open(self, schema, schema_fields):
        common = {"source": self._paths, "batch": None, "global_batch": 1, "shuffle": self._shuffle, "seed": self._seed, "epoch": 0, "last": "short",
                  "ragged": (), "memory": "512MiB", "threads": None, "rank": self._rank, "size": self._size,
                  "only": self._only}  # fmt: skip
        with _no_rows_is_no_data():
            stored = Loader(**common, columns=None, nulls={"*": "mask"}, readable=True) if schema is None else None
        whole = schema or inferred(stored)
        if self.ngram:
            self.ngram.resolve_regex_field_names(whole)
            wanted = self.ngram.get_field_names_at_all_timesteps()
            view = whole.create_schema_view([f for f in whole.fields.values() if f.name in wanted])
            if not self.ngram.timestamp_overlap and self._predicate is not None:
                raise NotImplementedError(
                    "timestamp_overlap=False and a predicate exclude each other, as in Petastorm: leave one of them away"
                )
        else:
            view = view_of(whole, schema_fields)
        self._stored_schema = view
        columns = list(view.fields)
        if self._predicate is not None:
            asked = set(self._predicate.get_fields())
            self._wrong = _asked.unfit(asked, whole)
            columns += sorted(asked & set(whole.fields) - set(columns))
        self._read_schema = whole
        self.schema = transform_schema(view, self._transform) if self._transform else view
        self.transformed_schema = self.schema
        read = {"columns": columns, "nulls": {"*": "mask"}, "filter": self._filter or None, "transform": self._work}
        with _no_rows_is_no_data():
            self._loader = Loader(**common, **read)
            if self._predicate is not None and self._wrong is None:
                only = _folders.wanted(self._loader._row_groups(), self._paths, self._predicate, whole)
                if only is not None:  # the others are not opened, and ranks make equal steps
                    self._predicate, self._nothing = None, not only
                    self._loader = Loader(**common | {"only": only}, **read)
        if self._nothing:
            warnings.warn(
                "No matching data is available for loading: the predicate wants none of the folders' names",
                stacklevel=4,
            )
        groups = [g["rows"] for g in self._loader._row_groups() if g["rows"]]
        self._batches_of(max(1, min(MOST_ROWS, self._loader.rows // max(1, len(groups)))))

    def _batches_of(self, rows):
        if self.ngram is None:  # a step is no more than a rank's fair part, so that none goes without
            rows = max(1, min(rows, -(-self._loader.rows // self._size)))
        self._rows = rows
        self._loader.global_batch = rows * self._size
        self._loader.set_epoch(0)

    def _resize(self, rows):
        """Make batches of so many rows, before the first of them."""
        self._given = rows
        self._batches_of(rows)

    @property
    def stopped(self):
        """Whether stop() was called."""
        return self._stopped

    def __len__(self):
        """The rows of an epoch, of all shards together."""
        return self._loader.rows

    # -- a batch on its way, on the loader's thread

    def _work(self, batch):
        nulls = {n[:-5]: v for n, v in batch.items() if n.endswith(".null") and n[:-5] in batch and v.any()}
        table = Table({n: v for n, v in batch.items() if not n.endswith(".null")}, nulls, batch.rows)
        return self._frame(table) if self.is_batched_reader else self._decoded(table)

    def _decoded(self, table):
        """Rows as dicts, decoded, chosen and transformed."""
        rows, fields = [], self._read_schema.fields
        columns = {name: values(table, name) for name in table}
        for i in range(table.rows):
            row = {name: decode_value(fields[name], column[i]) for name, column in columns.items()}
            if self._predicate is not None and not self._predicate.do_include(
                {n: row[n] for n in self._predicate.get_fields()}
            ):
                continue
            row = {n: row[n] for n in self._stored_schema.fields}
            if self._transform is not None and self.ngram is None:
                row = self._transformed(row)
            rows.append(row)
        return rows

    def _transformed(self, row):
        row = self._transform.func(row) if self._transform.func else row
        return {n: row[n] for n in self.schema.fields}

    def _frame(self, table):
        """Arrays by name, of a frame of pandas where a predicate or a transform wants one."""
        if self._predicate is None and (self._transform is None or self._transform.func is None):
            return {n: array(table, n) for n in self.schema.fields}
        frame = table.to_pandas()
        if self._predicate is not None:
            frame = frame[self._included(frame[sorted(self._predicate.get_fields())])]
            frame = frame[list(self._stored_schema.fields)].reset_index(drop=True)
        if self._transform is not None:
            frame = self._transform.func(frame) if self._transform.func else frame
            frame = frame[[c for c in frame.columns if c not in self._transform.removed_fields]]
            if set(frame.columns) != set(self.schema.fields):
                raise ValueError(
                    f"Transformed result columns ({sorted(map(str, frame.columns))}) do not match required schema columns({sorted(self.schema.fields)})"
                )
        return {n: of_frame(frame[n], self.schema.fields[n]) for n in self.schema.fields}

    def _included(self, asked):
        """Which rows of a frame the predicate wants. What only looks at the folders' names is asked for each of them,
        not for columns."""
        if not set(asked.columns) <= _folders.named(self._loader._row_groups()):
            return np.asarray(self._predicate.do_include(asked), bool)
        keys = [tuple(row) for row in asked.itertuples(index=False)]
        of = {key: bool(self._predicate.do_include(dict(zip(asked.columns, key, strict=True)))) for key in set(keys)}
        return np.array([of[key] for key in keys], bool)

    # -- iterating

    def _epochs_of_items(self):
        some = False
        if self._nothing:
            return
        for epoch in itertools.count() if self._epochs is None else range(self._epochs):
            for item in self._one_epoch(epoch):
                some = True
                yield item
            if not some and self._epochs is None:
                return  # nothing fits: an endless search for it would hang

    def _one_epoch(self, epoch):
        if self.ngram is not None:
            yield from self._ngrams(epoch)
            return
        self._loader.set_epoch(epoch)
        row = self.schema._get_namedtuple()
        for batch in self._loader:
            if self.is_batched_reader:
                if len(next(iter(batch.values()), ())):
                    yield row(**batch)
            else:
                for one in batch:
                    yield row(**one)

    def _order(self, epoch):
        """This shard's row groups in an epoch's order."""
        numbers = [i for i, g in enumerate(self._loader._row_groups()) if g["rows"]]
        if self._shuffle:
            random.Random(f"{self._seed} {epoch}").shuffle(numbers)
        return numbers[self._rank :: self._size]

    def _groups_of_rows(self):
        numbers = self._order(0)
        yield from zip(numbers, self._loader._blocks(numbers), strict=True)

    def _ngrams(self, epoch):
        for rows in self._loader._blocks(self._order(epoch)):
            for found in self.ngram.form_ngram(rows, self._stored_schema):
                if self._transform is not None and self._transform.func:
                    found = self._transform.func(found)
                yield self.ngram.make_namedtuple(self.schema, found)

    def __iter__(self):
        return self

    def __next__(self):
        if self._stopped:
            raise RuntimeError(
                "Trying to read a sample after a reader created by make_reader/make_batch_reader has stopped."
            )
        if self._wrong is not None:
            raise self._wrong
        if self._items is None:
            self._items = self._epochs_of_items()
        try:
            with self._one:
                return next(self._items)
        except StopIteration:
            self.last_row_consumed = True
            raise
        except hora.HoraError as e:
            if e.__cause__ is not None and "transform=" in str(e):
                raise e.__cause__ from None  # the program's own, or a value that does not decode
            raise

    next = __next__

    def reset(self):
        """Begin again with the first epoch; at any time."""
        self.last_row_consumed, self._items = False, None

    @property
    def batched_output(self):
        return self.is_batched_reader

    @property
    def diagnostics(self):
        """What the threads did and who waited for whom, in seconds; see hora.dataset.Loader.why."""
        return {"output_queue_size": 0} | self._loader.why()

    def stop(self):
        """End reading."""
        if not self._stopped:
            self._stopped, self._items = True, None
            self._loader._turn += 1

    def join(self):
        """Wait for the end, which stop() has brought."""

    def cleanup_cache(self):
        """Let go of the cache's folder."""
        try:
            self.cache.cleanup()
        except OSError as e:
            print(f"Error cleaning cache: {e}")
        print("Cache cleanup complete.")

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.stop()
        self.join()
        with contextlib.suppress(OSError):
            self.cache.cleanup()
