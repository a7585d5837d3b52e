"""Between Parquet, Petastorm's schemas and NumPy: schemas of files and parts of schemas, columns as values and as
arrays."""

from __future__ import annotations

import itertools
import warnings

import numpy as np

from hora.dataset._read import with_holes
from hora.dataset._views import Ragged, TextLists, Texts

from .unischema import Unischema, UnischemaField, match_unischema_fields


def view_of(schema, schema_fields):
    """The part of a schema that schema_fields asks for."""
    if schema_fields is None:
        return schema
    if isinstance(schema_fields, (str, dict)) or not hasattr(schema_fields, "__iter__"):
        raise ValueError("Fields must be either None, an iterable collection of Unischema fields or an NGram object")
    chosen = list(schema_fields)
    names = {f.name for f in chosen if isinstance(f, tuple)} | {
        f.name for f in match_unischema_fields(schema, [f for f in chosen if isinstance(f, str)])
    }
    schema.create_schema_view([f for f in chosen if isinstance(f, tuple)])  # complains of fields that are none of it
    if not names:
        raise RuntimeError(
            f"No fields matching the criteria '{chosen}' were found in the dataset. It has {', '.join(schema.fields)}."
        )
    view = Unischema(f"{schema._name}_view", [f for f in schema.fields.values() if f.name in names])
    return view


def inferred(loader):
    """A schema of what a loader finds in files that have none."""
    fields, inner = [], {}
    for f in loader.fields:
        kind = f["type"]
        if "." in f["name"]:  # of a struct, a map or a list of structs; and a row's fields have names of Python's
            inner.setdefault(f["name"].partition(".")[0], []).append(f["name"])
            continue
        if kind == "string":
            dtype = np.str_
        elif kind == "binary" or kind.startswith("V"):
            dtype = np.bytes_
        elif kind.startswith("datetime64"):
            dtype = np.datetime64
        else:
            dtype = np.dtype(kind).type
        shape = (None,) if f["item"] or f["count"] else ()
        fields.append(UnischemaField(f["name"], dtype, shape, None, True))
    for name, parts in inner.items():
        warnings.warn(
            f"Column {name!r} has fields of its own and is left out, as in Petastorm; hora.dataset.open reads {', '.join(parts)}",
            stacklevel=5,
        )
    for why in loader._left:
        warnings.warn(f"Column {why}. It is left out.", stacklevel=5)
    return Unischema("inferred_schema", fields)


def values(table, name):
    """A column's stored values, one by one, None where there is none."""
    null = table.nulls.get(name)
    if null is None:
        return list(table[name])
    if null.ndim == 1:
        return [None if n else v for v, n in zip(table[name], null, strict=True)]
    rows = table[name]
    if rows.dtype.kind in "iub":  # stay what they are, so that a null among them is none of the field's values
        rows = rows.astype(object)
    return [None if n else v for v, n in zip(with_holes(rows, null), null.all(1), strict=True)]


def array(table, name):
    """A column as Petastorm's batches have it."""
    column, null = table[name], table.nulls.get(name)
    if isinstance(column, Texts):
        if null is None:
            return np.array(column.tolist(), dtype=object if column.binary else np.str_)
        values = np.asarray(column)
        values[null] = None
        return values
    if isinstance(column, TextLists):
        return _matrix(column.tolist())
    if isinstance(column, Ragged):
        out = np.empty(len(column), object)
        for i in range(len(column)):
            out[i] = column[i]
        return out
    if column.dtype.kind == "M":
        column = column.astype("M8[ns]")
    return column if null is None else with_holes(column, null)


def _matrix(lists):
    """Lists of texts: a matrix where all are equally long."""
    if len({len(v) for v in lists}) == 1:
        return np.array(
            lists,
            dtype=object
            if None in itertools.chain(*lists) or isinstance(next(itertools.chain(*lists), ""), bytes)
            else np.str_,
        )
    out = np.empty(len(lists), object)
    out[:] = [np.array(v, dtype=object) for v in lists]
    return out


def of_frame(column, field):
    """A column of a frame as an array of what the field says."""
    values = column.to_numpy()
    if field.shape and values.dtype == object and len(values):
        first = np.asarray(values[0])
        if all(np.shape(v) == first.shape for v in values):
            stacked = np.stack(values)
            fixed = list(field.shape)
            if None not in fixed and stacked.shape[1:] != tuple(fixed):
                if stacked[0].size != np.prod(fixed, dtype=int):
                    raise ValueError(f"field {field.name} must be the shape {field.shape}, not {stacked.shape[1:]}")
                stacked = stacked.reshape(len(stacked), *fixed)
            return stacked
        return values
    if values.dtype == object or values.dtype.kind in "OT":
        if field.numpy_dtype in (np.str_, str) and all(isinstance(v, str) for v in values):
            return np.array(list(values), np.str_)
        return np.asarray(values, object)
    return values
