"""Datasets as files: their schemas, and indexes of their row groups."""

from __future__ import annotations

import abc


class RowGroupIndexerBase(abc.ABC):
    """What an index of row groups can do."""

    @abc.abstractmethod
    def __add__(self, other): ...

    @property
    @abc.abstractmethod
    def index_name(self): ...

    @property
    @abc.abstractmethod
    def column_names(self): ...

    @property
    @abc.abstractmethod
    def indexed_values(self): ...

    @abc.abstractmethod
    def get_row_group_indexes(self, value_key):
        """The numbers of the row groups with a value."""

    @abc.abstractmethod
    def build_index(self, decoded_rows, piece_index):
        """Take a row group's rows into the index."""
