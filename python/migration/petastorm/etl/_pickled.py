"""Old datasets' schemas and indexes, which are pickles: parsed as data. Nothing is imported, called or built by what
they say.

The opcodes that pickles of schemas have are few; each is done here on a stack of plain values, and a class is a pair of
texts that is looked up in a table of this module. What is not in the table is refused by its name.
"""

from __future__ import annotations

import collections
import re
from decimal import Decimal
from typing import Any

import numpy as np

from .. import codecs, unischema
from . import rowgroup_indexers
from ._opcodes import Name, PickleRefused, Thing, parse


class SparkType:
    """A type of Spark's where Spark is not installed: its name, and what it was made with."""

    def __init__(self, spark_name: str, **state: Any) -> None:
        self.spark_name, self.state = spark_name, state

    def __repr__(self) -> str:
        return f"{self.spark_name}()"


# -- from Things to what they stand for

_TOP = ("petastorm", "av.experimental.deepdrive.dataset_toolkit", "av.ml.dataset_toolkit")
_NUMPY = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool_",
    "str_", "bytes_",
    "datetime64",
}  # fmt: skip
_NUMPY_OLD = {"string_": "bytes_", "unicode_": "str_", "bool": "bool_", "object_": "object_"}
_BUILT_IN = {"int": int, "float": float, "str": str, "bytes": bytes, "bool": bool, "unicode": str, "long": int}
_BUILT_INS = ("builtins", "__builtin__")


def load(data: bytes) -> Any:
    """What a pickle stands for: schemas, fields, codecs, indexers, and plain values."""
    value = parse(data)
    _left[0] = 2_000_000
    try:
        return build(value)
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as e:
        raise e if isinstance(e, PickleRefused) else PickleRefused(f"it is damaged: {type(e).__name__}: {e}") from None


_left = [0]  # values that may still be built: what refers to itself again and again is not


def build(value: Any, depth: int = 0) -> Any:
    """What a parsed value stands for."""
    _left[0] -= 1
    if depth > 200 or _left[0] < 0:
        raise PickleRefused("it is nested deeper, or has more in it, than a schema or an index")
    if isinstance(value, Name):
        return _class(value)
    if isinstance(value, Thing):
        return _object(value, depth + 1)
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(build(v, depth + 1) for v in value)
    if isinstance(value, dict):
        return {build(k, depth + 1): build(v, depth + 1) for k, v in value.items()}
    return value


def _module(kind: Name) -> str:
    for top in _TOP:
        if kind.module == top or kind.module.startswith(top + "."):
            return kind.module[len(top) + 1 :]
    return ""


def _class(kind: Name) -> Any:
    if kind.module == "numpy":
        name = _NUMPY_OLD.get(kind.name, kind.name)
        if name in _NUMPY or name == "object_":
            return getattr(np, name)
    if kind.module in _BUILT_INS and kind.name in _BUILT_IN:
        return _BUILT_IN[kind.name]
    if (kind.module, kind.name) in (("decimal", "Decimal"), ("_decimal", "Decimal")):
        return Decimal
    raise PickleRefused(f"it names {kind.module}.{kind.name}, which is no part of a schema or an index")


def _object(thing: Thing, depth: int) -> Any:
    kind, args = thing.kind, thing.args
    if (
        kind.module in ("copy_reg", "copyreg")
        and kind.name in ("_reconstructor", "__newobj__")
        and args
        and isinstance(args[0], Name)
    ):
        real = Thing(args[0], ())
        real.state, real.items = thing.state, thing.items
        if kind.name == "__newobj__":
            real.args = args[1:]
        elif len(args) == 3 and isinstance(args[1], Name) and args[1].name == "tuple" and isinstance(args[2], tuple):
            real.args = args[2]  # what a tuple of a class of its own has in it
        return _object(real, depth)
    module, name = _module(kind), kind.name
    state = {str(k): v for k, v in thing.state.items()} if isinstance(thing.state, dict) else {}
    if name == "OrderedDict" and kind.module == "collections":
        pairs = list(args[0]) if args else []
        pairs += thing.items
        return collections.OrderedDict((build(k, depth), build(v, depth)) for k, v in (tuple(p) for p in pairs))
    if name == "defaultdict" and kind.module == "collections":
        return {build(k, depth): build(v, depth) for k, v in thing.items}
    if name == "set" and kind.module in _BUILT_INS:
        return set(build(list(args[0]) if args else [], depth))
    if name == "dtype" and kind.module in _ARRAYS:
        return _dtype(args).type
    if name == "scalar" and kind.module in _ARRAYS and len(args) == 2 and isinstance(args[0], Thing):
        dtype, data = _dtype(args[0].args), build(args[1], depth)
        if dtype.kind not in "biuf" or not isinstance(data, bytes) or len(data) != dtype.itemsize:
            raise PickleRefused("a number of it is damaged")
        big = isinstance(args[0].state, tuple) and len(args[0].state) > 1 and args[0].state[1] == ">"
        return np.frombuffer(data, dtype.newbyteorder(">" if big else "<"))[0].item()
    if (
        name == "encode"
        and kind.module == "_codecs"
        and len(args) == 2
        and isinstance(args[0], str)
        and args[1] == "latin1"
    ):
        return args[0].encode("latin1")
    if module == "unischema" and name == "UnischemaField" or kind.module == "collections" and name == "UnischemaField":
        fields = [build(a, depth) for a in args]
        if not 3 <= len(fields) <= 5 or not isinstance(fields[0], str) or not isinstance(fields[2], tuple):
            raise PickleRefused("a field of its schema is damaged")
        return unischema.UnischemaField(*fields)
    if module == "unischema" and name == "Unischema":
        fields = build(state.get("_fields"), depth)
        if not isinstance(fields, dict) or not all(isinstance(f, unischema.UnischemaField) for f in fields.values()):
            raise PickleRefused("its schema has no fields")
        return unischema.Unischema(str(build(state.get("_name"), depth)), list(fields.values()))
    if module == "codecs":
        return _codec(name, {k: build(v, depth) for k, v in state.items()})
    if kind.module == "pyspark.sql.types" and name.isidentifier() and name.endswith("Type"):
        return _restore_spark(name, {k: build(v, depth) for k, v in state.items()})
    if module == "etl.rowgroup_indexers" and name in ("SingleFieldIndexer", "FieldNotNullIndexer"):
        return rowgroup_indexers._restore(name, {k: build(v, depth) for k, v in state.items()})
    raise PickleRefused(f"it names {kind.module}.{name}, which is no part of a schema or an index")


_ARRAYS = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")


def _dtype(args: Any) -> Any:
    if not args or not isinstance(args[0], str) or not re.fullmatch(r"[biufSUM?][0-9]{0,3}", args[0]):
        raise PickleRefused("a type of it is no number, text or date")
    return np.dtype(args[0])


def _codec(name: str, state: dict[str, Any]) -> Any:
    if name == "ScalarCodec":
        return codecs.ScalarCodec(state.get("_spark_type"))
    if name == "CompressedImageCodec":
        return codecs.CompressedImageCodec(str(state.get("_image_codec", ".png"))[1:], int(state.get("_quality", 80)))
    if name in ("NdarrayCodec", "CompressedNdarrayCodec"):
        return getattr(codecs, name)()
    raise PickleRefused(f"its codec {name} is not one of Petastorm's")


_SPARK = {
    "NullType", "StringType", "BinaryType", "BooleanType", "DateType", "TimestampType", "DoubleType", "FloatType",
    "ByteType",
    "IntegerType", "LongType", "ShortType", "DecimalType",
}  # fmt: skip


def _restore_spark(name: str, state: dict[str, Any]) -> Any:
    if name not in _SPARK:
        raise PickleRefused(f"its codec has Spark's {name}, which is no type of a scalar")
    try:
        from pyspark.sql import types
    except ImportError:
        return SparkType(name, **state)
    if name == "DecimalType":
        return types.DecimalType(int(state.get("precision", 10)), int(state.get("scale", 0)))
    return getattr(types, name)()
