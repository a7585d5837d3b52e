"""Rows that follow each other in time, together."""

from __future__ import annotations

import re
from itertools import pairwise

from .unischema import UnischemaField


class NGram:
    """As many consecutive rows as there are keys in `fields`, each with its own fields.

    `fields` maps consecutive whole numbers to lists of fields or expressions. Rows follow each other when
    `timestamp_field` grows by `delta_threshold` at most. N-grams lie within a row group. Without `timestamp_overlap` no
    row is in two.
    """

    def __init__(self, fields, delta_threshold, timestamp_field, timestamp_overlap=True):
        if not isinstance(fields, dict) or not fields or not all(isinstance(k, int) for k in fields):
            raise ValueError("Fields attribute must be a dictionary with consecutive integers as keys")
        if not all(isinstance(v, list) for v in fields.values()):
            raise ValueError("Each field value must be a list of UnischemaField objects or regular expressions")
        for f in (f for v in fields.values() for f in v):
            if not isinstance(f, (tuple, str)):
                raise ValueError("All field values must be of type UnischemaField or regular expressions")
        if delta_threshold is None or not hasattr(delta_threshold, "__le__") or isinstance(delta_threshold, str):
            raise ValueError("delta_threshold must be a number")
        if not isinstance(timestamp_field, (tuple, str)):
            raise ValueError("timestamp_field must be of type UnischemaField or a regular expression")
        if not isinstance(timestamp_overlap, bool):
            raise ValueError("timestamp_overlap must be of type bool")
        self._fields, self._delta_threshold = dict(fields), delta_threshold
        self._timestamp_field, self.timestamp_overlap = timestamp_field, timestamp_overlap

    @property
    def length(self):
        return max(self._fields) - min(self._fields) + 1

    @property
    def fields(self):
        return self._fields

    @property
    def delta_threshold(self):
        return self._delta_threshold

    def resolve_regex_field_names(self, schema):
        """Replace expressions by the schema's fields."""
        self._fields = {k: self.convert_fields(schema, v) for k, v in self._fields.items()}
        (self._timestamp_field,) = self.convert_fields(schema, [self._timestamp_field])

    def convert_fields(self, unischema, field_list):
        out = []
        for f in field_list:
            found = [f] if isinstance(f, tuple) else [u for n, u in unischema.fields.items() if re.fullmatch(f, n)]
            if not found:
                raise ValueError(f"no field of the schema fits {f!r}")
            out += [UnischemaField(*u) for u in found if u not in out]
        return out

    def get_field_names_at_timestep(self, timestep):
        return [f.name for f in self._fields.get(timestep, [])]

    def get_field_names_at_all_timesteps(self):
        return {f.name for v in self._fields.values() for f in v} | {self._timestamp_field.name}

    def get_schema_at_timestep(self, schema, timestep):
        return schema.create_schema_view(
            [schema.fields[n] for n in self.get_field_names_at_timestep(timestep) if n in schema.fields]
        )

    def form_ngram(self, data, schema):
        """All n-grams of some rows (dicts, in the order of time), as dicts from key to row."""
        first, at, result, last = min(self._fields), self._timestamp_field.name, [], None
        for i in range(len(data) - self.length + 1):
            rows = data[i : i + self.length]
            times = [r[at] for r in rows]
            if any(a > b for a, b in pairwise(times)):
                raise NotImplementedError(f"NGram assumes that the data is sorted by {at} field which is not the case")
            if not self.timestamp_overlap and last is not None and times[0] <= last:
                continue
            if any(b - a > self._delta_threshold for a, b in pairwise(times)):
                continue
            result.append(
                {first + k: {n: r[n] for n in self.get_field_names_at_timestep(first + k)} for k, r in enumerate(rows)}
            )
            last = times[-1]
        return result

    def make_namedtuple(self, schema, ngram_as_dicts):
        return {k: self.get_schema_at_timestep(schema, k).make_namedtuple(**row) for k, row in ngram_as_dicts.items()}

    def __eq__(self, other):
        return isinstance(other, NGram) and all(
            getattr(self, a) == getattr(other, a)
            for a in ("fields", "delta_threshold", "_timestamp_field", "timestamp_overlap")
        )

    def __ne__(self, other):
        return not self == other

    __hash__ = None
