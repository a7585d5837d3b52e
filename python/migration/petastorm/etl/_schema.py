"""Schemas and indexes as JSON: what datasets that are written here have beside their files."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np

from .. import codecs
from ..unischema import Unischema, UnischemaField
from ._pickled import SparkType, _restore_spark
from .rowgroup_indexers import _restore

SCHEMA_KEY = b"hora.unischema.v1"
INDEX_KEY = b"hora.rowgroups_index.v1"


def schema_to_json(schema):
    """A schema as text."""
    fields = [
        {"name": f.name, "type": "decimal" if f.numpy_dtype is Decimal else np.dtype(f.numpy_dtype).type.__name__, "shape": f.shape,
         "codec": _codec(f.codec), "nullable": bool(f.nullable)}
        for f in schema.fields.values()
    ]  # fmt: skip
    return json.dumps({"name": schema._name, "fields": fields}).encode()


def schema_from_json(text):
    """A schema of a text."""
    said = json.loads(text)
    fields = [
        UnischemaField(
            f["name"],
            Decimal if f["type"] == "decimal" else _type(f["type"]),
            tuple(f["shape"]),
            _made(f["codec"]),
            f["nullable"],
        )
        for f in said["fields"]
    ]
    return Unischema(said["name"], fields)


def _type(name):
    if name not in {"bool", "bool_", "str_", "bytes_", "datetime64", "object_"} and not name.startswith(
        ("int", "uint", "float")
    ):
        raise ValueError(f"there is no type {name!r}")
    return getattr(np, "bool_" if name == "bool" else name)


def _codec(codec):
    if codec is None:
        return None
    if isinstance(codec, codecs.ScalarCodec):
        kind = codec.spark_dtype()
        name = kind.spark_name if isinstance(kind, SparkType) else type(kind).__name__
        state = (
            kind.state
            if isinstance(kind, SparkType)
            else {k: getattr(kind, k) for k in ("precision", "scale") if hasattr(kind, k)}
        )
        return {
            "kind": "ScalarCodec",
            "spark": name,
            "state": {k: v for k, v in state.items() if isinstance(v, (int, bool))},
        }
    if isinstance(codec, codecs.CompressedImageCodec):
        return {"kind": "CompressedImageCodec", "image": codec.image_codec, "quality": codec._quality}
    if type(codec) in (codecs.NdarrayCodec, codecs.CompressedNdarrayCodec):
        return {"kind": type(codec).__name__}
    raise ValueError(
        f"codec {codec} is of a class that is not Petastorm's, and a schema in JSON cannot name it; use one of petastorm.codecs"
    )


def _made(said):
    if said is None:
        return None
    kind = said["kind"]
    if kind == "ScalarCodec":
        return codecs.ScalarCodec(_restore_spark(said["spark"], said["state"]))
    if kind == "CompressedImageCodec":
        return codecs.CompressedImageCodec(said["image"], said["quality"])
    if kind in ("NdarrayCodec", "CompressedNdarrayCodec"):
        return getattr(codecs, kind)()
    raise ValueError(f"there is no codec {kind!r}")


def index_to_json(indexes):
    """Indexes by name as text."""
    out = []
    for i in indexes.values():
        data = i._index_data
        out.append({
            "kind": type(i).__name__, "_index_name": i.index_name, "_column_name": i.column_names[0],
            "_index_data": [[k, sorted(v)] for k, v in data.items()] if isinstance(data, dict) else sorted(data),
        })  # fmt: skip
    return json.dumps(out).encode()


def index_from_json(text):
    """Indexes of a text."""
    made = [_restore(said.pop("kind"), said) for said in json.loads(text)]
    return {i.index_name: i for i in made}
