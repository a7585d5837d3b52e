"""Which rows a reader answers."""

from __future__ import annotations

import abc
import collections.abc
import hashlib
import sys


class PredicateBase(abc.ABC):
    """What a predicate can do."""

    @abc.abstractmethod
    def get_fields(self):
        """The names of the fields that it looks at."""

    @abc.abstractmethod
    def do_include(self, values):
        """Whether a row is in; values are those of the fields, by name."""


class in_set(PredicateBase):
    """A field has one of some values."""

    def __init__(self, inclusion_values, predicate_field):
        self._values, self._field = set(inclusion_values), predicate_field

    def get_fields(self):
        return {self._field}

    def do_include(self, values):
        value = values[self._field]
        return value.isin(self._values) if hasattr(value, "isin") else value in self._values


class in_intersection(PredicateBase):
    """A field that is a list has one of some values in it."""

    def __init__(self, inclusion_values, _predicate_field):
        self._values, self._field = set(inclusion_values), _predicate_field

    def get_fields(self):
        return {self._field}

    def do_include(self, values):
        value = values[self._field]
        if not isinstance(value, collections.abc.Iterable):
            raise ValueError(f"Predicate field {self._field} is no list")
        return not self._values.isdisjoint(value)


class in_lambda(PredicateBase):
    """A function of fields says it; with a state it is the function's second argument."""

    def __init__(self, predicate_fields, predicate_func, state_arg=None):
        if not isinstance(predicate_fields, list):
            raise ValueError("Predicate fields should be a list")
        self._fields, self._func, self._state = predicate_fields, predicate_func, state_arg

    def get_fields(self):
        return set(self._fields)

    def do_include(self, values):
        given = [values[f] for f in self._fields]
        return self._func(*given, self._state) if self._state is not None else self._func(*given)


class in_negate(PredicateBase):
    """Not what another says."""

    def __init__(self, predicate):
        if not isinstance(predicate, PredicateBase):
            raise ValueError("Predicate is not nested from PredicateBase")
        self._predicate = predicate

    def get_fields(self):
        return self._predicate.get_fields()

    def do_include(self, values):
        said = self._predicate.do_include(values)
        return ~said if hasattr(said, "dtype") and getattr(said, "ndim", 0) else not said


class in_reduce(PredicateBase):
    """What a function, as `any` or `all`, makes of the answers of several."""

    def __init__(self, predicate_list, reduce_func):
        for p in predicate_list:
            if not isinstance(p, PredicateBase):
                raise ValueError("Predicate is not nested from PredicateBase")
        self._predicates, self._reduce = predicate_list, reduce_func

    def get_fields(self):
        return set().union(*(p.get_fields() for p in self._predicates))

    def do_include(self, values):
        said = [p.do_include(values) for p in self._predicates]
        if said and getattr(said[0], "ndim", 0) and self._reduce in (any, all):  # of a frame's rows
            import numpy as np

            return (np.logical_or if self._reduce is any else np.logical_and).reduce(said)
        return self._reduce(said)


def _string_to_bucket(string, bucket_num):
    return int(hashlib.md5(string.encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % bucket_num


class in_pseudorandom_split(PredicateBase):
    """A field's text falls into one of several subsets, by fractions; the same text always into the same."""

    def __init__(self, fraction_list, subset_index, predicate_field):
        if subset_index >= len(fraction_list):
            raise ValueError("subset_index is out of range")
        self._field = predicate_field
        self._low = sum(fraction_list[:subset_index]) * (sys.maxsize - 1)
        self._high = sum(fraction_list[: subset_index + 1]) * (sys.maxsize - 1)

    def get_fields(self):
        return {self._field}

    def do_include(self, values):
        if self._field not in values:
            raise ValueError(f"Tested values does not have split key: {self._field}")
        value = values[self._field]
        if hasattr(value, "map"):
            return value.map(lambda v: self._has(v))
        return self._has(value)

    def _has(self, value):
        return self._low <= _string_to_bucket(str(value), sys.maxsize) < self._high
