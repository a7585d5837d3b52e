"""Indexes from values to row groups."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from . import RowGroupIndexerBase


class _Indexer(RowGroupIndexerBase):
    def __init__(self, index_name, index_field):
        self._index_name, self._column_name = index_name, index_field
        self._index_data = self._empty()

    @property
    def index_name(self):
        return self._index_name

    @property
    def column_names(self):
        return [self._column_name]

    def _same(self, other):
        if type(other) is not type(self) or other.column_names != self.column_names:
            raise TypeError("only indexes of one kind and field are added")

    def _check(self, decoded_rows):
        if not decoded_rows:
            raise ValueError(f"Cannot build index for empty rows, column '{self._column_name}'")


class SingleFieldIndexer(_Indexer):
    """From each value of a field, or of its lists, to the row groups with it."""

    def _empty(self):
        return defaultdict(set)

    def __add__(self, other):
        self._same(other)
        for value, groups in other._index_data.items():
            self._index_data[value] |= set(groups)
        return self

    @property
    def indexed_values(self):
        return list(self._index_data)

    def get_row_group_indexes(self, value_key):
        return set(self._index_data.get(value_key, ()))

    def build_index(self, decoded_rows, piece_index):
        self._check(decoded_rows)
        for row in decoded_rows:
            value = row[self._column_name]
            if value is None:
                continue
            for v in value.ravel().tolist() if isinstance(value, np.ndarray) else [value]:
                self._index_data[v.item() if isinstance(v, np.generic) else v].add(piece_index)
        return self._index_data


class FieldNotNullIndexer(_Indexer):
    """The row groups that have a value of a field."""

    def _empty(self):
        return set()

    def __add__(self, other):
        self._same(other)
        self._index_data |= set(other._index_data)
        return self

    @property
    def indexed_values(self):
        return ["Field is Not Null"]

    def get_row_group_indexes(self, value_key=None):
        return set(self._index_data)

    def build_index(self, decoded_rows, piece_index):
        self._check(decoded_rows)
        if any(row[self._column_name] is not None for row in decoded_rows):
            self._index_data.add(piece_index)
        return self._index_data


def _restore(kind, state):
    """An index from what was saved of it."""
    made = (SingleFieldIndexer if kind == "SingleFieldIndexer" else FieldNotNullIndexer)(
        str(state["_index_name"]), str(state["_column_name"])
    )
    data = state["_index_data"]
    if kind == "SingleFieldIndexer":
        for value, groups in dict(data).items():
            made._index_data[value] |= {int(g) for g in groups}
    else:
        made._index_data |= {int(g) for g in data}
    return made
