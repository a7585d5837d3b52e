"""Schemas: names, types, shapes and codecs of a dataset's fields."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict, namedtuple
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

_UNISCHEMA_FIELD_ORDER = "preserve_input_order"


class UnischemaField(NamedTuple):
    """A field. Two are equal when name, type, shape and nullability are: how it is stored does not count."""

    name: str
    numpy_dtype: Any
    shape: tuple[int | None, ...]
    codec: Any | None = None
    nullable: bool | None = False

    def __eq__(self, other):
        return _fields_as_tuple(self) == _fields_as_tuple(other)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(_fields_as_tuple(self))


def _fields_as_tuple(field):
    return field.name, field.numpy_dtype, field.shape, field.nullable


_views: dict[tuple, type] = {}


def _row_type(name, fields):
    """The namedtuple of a schema's rows: the same class for the same names, so that types can be compared."""
    fields = tuple(sorted(fields) if _UNISCHEMA_FIELD_ORDER == "alphabetical" else fields)
    made = _views.get((name, fields))
    if made is None:
        made = _views[name, fields] = namedtuple(f"{name}_view", fields)
    return made


class Unischema:
    """A dataset's schema. Its fields are attributes, too."""

    def __init__(self, name, fields):
        self._name = name
        if _UNISCHEMA_FIELD_ORDER == "alphabetical":
            fields = sorted(fields, key=lambda f: f.name)
        self._fields = OrderedDict((f.name, f) for f in fields)
        for f in fields:
            if hasattr(type(self), f.name) or f.name in ("_name", "_fields"):
                warnings.warn(
                    f"Can not create dynamic property {f.name} because it conflicts with an existing property of Unischema",
                    stacklevel=2,
                )
            else:
                self.__dict__[f.name] = f

    @property
    def fields(self):
        return self._fields

    def create_schema_view(self, fields):
        """A schema of some fields: given as fields, or as regular expressions of whole names."""
        patterns = [f for f in fields if isinstance(f, str)]
        exact = [f for f in fields if isinstance(f, tuple)]
        if len(patterns) + len(exact) != len(fields):
            raise ValueError(
                'Elements of "fields" must be either a string (a regular expression) or an instance of UnischemaField'
            )
        unknown = {f.name for f in exact} - set(self._fields)
        if unknown:
            raise ValueError(f"field {unknown} does not belong to the schema {self}")
        return Unischema(
            f"{self._name}_view", [self._fields[f.name] for f in exact] + match_unischema_fields(self, patterns)
        )

    def _get_namedtuple(self):
        return _row_type(self._name, self._fields)

    def make_namedtuple(self, **kargs):
        """A row."""
        return self._get_namedtuple()(**kargs)

    def make_namedtuple_tf(self, *args, **kargs):
        return self._get_namedtuple()(*args, **kargs)

    def as_spark_schema(self):
        """The same as a StructType of Spark."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(f.name, _field_spark_dtype(f), bool(f.nullable)) for f in self._fields.values()])

    @classmethod
    def from_arrow_schema(cls, parquet_dataset, omit_unsupported_fields=True):
        """The schema of a Parquet dataset that was written without one (a pyarrow.parquet.ParquetDataset, or an Arrow
        schema)."""
        schema = getattr(parquet_dataset, "schema", parquet_dataset)
        fields = []
        for f in schema:
            if str(f.type).startswith("dictionary"):
                kind = _arrow_type(f.type.value_type)  # of a folder called name=value, whose numbers are read as int64
                fields.append(
                    UnischemaField(f.name, np.int64 if np.issubdtype(kind, np.integer) else kind, (), None, False)
                )
                continue
            try:
                kind = str(f.type)
                shape = (None,) if "list<" in kind else ()
                fields.append(UnischemaField(f.name, _arrow_type(f.type), shape, None, f.nullable))
            except ValueError:
                if not omit_unsupported_fields:
                    raise
                warnings.warn(f"Column {f.name!r} has an unsupported field {f.type}. Ignoring...", stacklevel=2)
        return cls("inferred_schema", fields)

    def __getattr__(self, item):
        if item.startswith("__") or item == "_fields":
            raise AttributeError(item)
        raise AttributeError(f"{self._name} schema has no field {item!r}; it has {', '.join(self._fields)}")

    def __str__(self):
        lines = "".join(
            f"  {type(f).__name__}('{f.name}', {getattr(f.numpy_dtype, '__name__', f.numpy_dtype)}, {f.shape}, {f.codec}, {f.nullable}),\n"
            for f in self._fields.values()
        )
        return f"{type(self).__name__}({self._name}, [\n{lines}])"


_SPARK = {
    "int8": "ByteType", "uint8": "ShortType", "int16": "ShortType", "uint16": "IntegerType", "int32": "IntegerType",
    "int64": "LongType",
    "float32": "FloatType", "float64": "DoubleType", "bytes_": "StringType", "str_": "StringType",
    "bool": "BooleanType", "bool_": "BooleanType",
}  # fmt: skip


def _field_spark_dtype(field):
    if field.codec is not None:
        return field.codec.spark_dtype()
    if field.shape != ():
        raise ValueError(
            f"field {field.name!r} has codec set to None and is no scalar: give it a codec, whose Spark type is the field's"
        )
    from pyspark.sql import types

    name = _SPARK.get(getattr(field.numpy_dtype, "__name__", ""))
    if name is None:
        raise ValueError(
            f"Was not able to map type {field.numpy_dtype} of field {field.name!r} to one of Spark's: give the field a codec"
        )
    return getattr(types, name)()


def dict_to_spark_row(unischema, row_dict):
    """A row for a Spark frame: values are checked and encoded."""
    from pyspark import Row

    return Row(**encode_row(unischema, row_dict))


def encode_row(unischema, row_dict):
    """A row as it is stored, as a dict: for whoever writes without Spark."""
    if not isinstance(row_dict, dict):
        raise AssertionError(f"a row is a dict, not {type(row_dict).__name__}: pass the schema first, then the row")
    row_dict = dict(row_dict)
    insert_explicit_nulls(unischema, row_dict)
    if set(row_dict) != set(unischema.fields):
        raise ValueError(f"Dictionary fields {sorted(row_dict)} do not match schema fields {sorted(unischema.fields)}")
    out = {}
    for name, field in unischema.fields.items():
        value = row_dict[name]
        if value is None:
            if not field.nullable:
                raise ValueError(f"Field {name} is not nullable, but got passed a None value")
            out[name] = None
        elif field.codec is not None:
            out[name] = field.codec.encode(field, value)
        elif isinstance(value, np.generic):
            out[name] = value.item()
        else:
            out[name] = value
    return out


def insert_explicit_nulls(unischema, row_dict):
    """Put None where a nullable field has no value."""
    for name, field in unischema.fields.items():
        if name not in row_dict:
            if not field.nullable:
                raise ValueError(f"Field {name} is not found in the row_dict, but is not nullable.")
            row_dict[name] = None


def match_unischema_fields(schema, field_regex):
    """The fields whose whole names one of the expressions fits. Versions before 0.7 took the beginnings of names: a
    warning tells of those."""
    patterns = list(field_regex or ())
    found = [f for name, f in schema.fields.items() if any(re.fullmatch(p, name) for p in patterns)]
    only_begun = sorted(
        name for name in set(schema.fields) - {f.name for f in found} if any(re.match(p, name) for p in patterns)
    )
    if only_begun:
        warnings.warn(
            f"schema_fields behavior has changed: an expression must fit a field's whole name, and {', '.join(only_begun)} only begin as "
            "asked. Add .* at the expression's end to read them too.",
            UserWarning, stacklevel=3,
        )  # fmt: skip
    return found


def _arrow_type(kind):
    text = str(kind)
    if "list<" in text:
        inner = kind.value_type
        if "list<" in str(inner) or str(inner).startswith("struct"):
            raise ValueError(f"Cannot auto-create unischema due to unsupported column type {kind}")
        return _arrow_type(inner)
    plain = {"float": np.float32, "double": np.float64, "halffloat": np.float16, "bool": np.bool_}
    if text in plain:
        return plain[text]
    if text.startswith("decimal"):
        return Decimal
    if text in ("string", "large_string", "string_view"):
        return np.str_
    if text.startswith(("binary", "large_binary", "fixed_size_binary")):
        return np.bytes_
    if text.startswith(("date", "timestamp")):
        return np.datetime64
    if re.fullmatch(r"u?int(8|16|32|64)", text):
        return getattr(np, text)
    raise ValueError(f"Cannot auto-create unischema due to unsupported column type {kind}")
