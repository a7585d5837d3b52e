"""Functions that rows or batches go through on their way to the program."""

from __future__ import annotations

import warnings

from .unischema import Unischema, UnischemaField


def edit_field(name, numpy_dtype, shape, nullable=False):
    """A field as edit_fields= takes it."""
    return name, numpy_dtype, shape, nullable


class TransformSpec:
    """A function, and what it does to the schema.

    `func` takes a row as a dict (make_reader) or a frame of pandas (make_batch_reader). `edit_fields` are fields that
    it changes or adds; `removed_fields` are gone afterwards; `selected_fields` are all that is left, in that order.
    """

    def __init__(self, func=None, edit_fields=None, removed_fields=None, selected_fields=None):
        if removed_fields is not None and selected_fields is not None:
            raise ValueError("User can only specify one of removed_fields and selected_fields in TransformSpec.")
        self.func = func
        self.edit_fields = edit_fields or []
        self.removed_fields = removed_fields or []
        self.selected_fields = selected_fields


def transform_schema(schema, transform_spec):
    """The schema after a transform."""
    unknown = set(transform_spec.removed_fields) - set(schema.fields)
    if unknown:
        warnings.warn(
            f"remove_fields specified some field names that are not part of the schema: {sorted(unknown)}; they are ignored",
            stacklevel=2,
        )
    fields = {name: f for name, f in schema.fields.items() if name not in transform_spec.removed_fields}
    for edited in transform_spec.edit_fields:
        name, dtype, shape, nullable = (
            edited if not isinstance(edited, UnischemaField) else (*edited[:3], edited.nullable)
        )
        fields[name] = UnischemaField(name, dtype, shape, None, nullable)
    if transform_spec.selected_fields is not None:
        missing = [n for n in transform_spec.selected_fields if n not in fields]
        if missing:
            warnings.warn(
                f"selected_fields specified some field names that are not part of the schema: {missing}; they are ignored",
                stacklevel=2,
            )
        fields = {n: fields[n] for n in transform_spec.selected_fields if n in fields}
    return Unischema(f"{schema._name}_transformed", list(fields.values()))
