"""Which row groups a reader reads, by indexes that were built before."""

from __future__ import annotations

import abc


class RowGroupSelectorBase(abc.ABC):
    """What a selector can do."""

    @abc.abstractmethod
    def get_index_names(self):
        """The indexes that it needs."""

    @abc.abstractmethod
    def select_row_groups(self, index_dict):
        """The numbers of the row groups, from the indexes by name."""


class SingleIndexSelector(RowGroupSelectorBase):
    """Row groups that one of some values is in."""

    def __init__(self, index_name, values_list):
        self._name, self._values = index_name, values_list

    def get_index_names(self):
        return [self._name]

    def select_row_groups(self, index_dict):
        return set().union(*(index_dict[self._name].get_row_group_indexes(v) for v in self._values))


class _Several(RowGroupSelectorBase):
    def __init__(self, single_index_selectors):
        self._selectors = single_index_selectors

    def get_index_names(self):
        return [name for s in self._selectors for name in s.get_index_names()]


class IntersectIndexSelector(_Several):
    """Row groups that all of some selectors choose."""

    def select_row_groups(self, index_dict):
        return set.intersection(*(set(s.select_row_groups(index_dict)) for s in self._selectors))


class UnionIndexSelector(_Several):
    """Row groups that one of some selectors chooses."""

    def select_row_groups(self, index_dict):
        return set().union(*(s.select_row_groups(index_dict) for s in self._selectors))
