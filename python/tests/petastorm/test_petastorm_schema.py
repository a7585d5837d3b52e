"""Old datasets' pickles are data: what they say is read, and what they would do is not done."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

# Made by the classes of petastorm 0.13.1 with pyspark 3.5, in pickle's protocols 0, 2 and 4.
OLD = {k: base64.b64decode(v) for k, v in json.loads((Path(__file__).parent / "old_pickles.json").read_text()).items()}


def load(data):
    from petastorm.etl import _pickled

    return _pickled.load(data)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("legacy", [b"petastorm", b"av.ml.dataset_toolkit"])
def test_old_schemas(protocol, legacy):
    data = OLD[f"schema{protocol}"]
    if legacy != b"petastorm":
        if protocol == 4:
            return  # its lengths stand before its texts, and the packages of that name wrote none
        data = data.replace(b"petastorm", legacy)
    schema = load(data)
    assert [f.name for f in schema.fields.values()] == ["id", "name", "price", "image", "matrix", "packed", "plain"]
    assert [f.numpy_dtype for f in schema.fields.values()] == [
        np.int64,
        np.str_,
        Decimal,
        np.uint8,
        np.float32,
        np.uint16,
        np.int32,
    ]
    assert (
        schema.image.shape == (None, 16, 3)
        and schema.image.codec.image_codec == "jpeg"
        and schema.image.codec._quality == 90
    )
    assert [f.nullable for f in schema.fields.values()] == [False, True, False, False, False, True, True]
    assert str(schema.matrix.codec) == "NdarrayCodec()" and schema.plain.codec is None and schema._name == "OldSchema"
    assert schema.price.codec.spark_dtype().state["precision"] == 10
    from petastorm.etl import _schema

    again = _schema.schema_from_json(_schema.schema_to_json(schema))
    assert again.fields == schema.fields and str(again) == str(schema)


def test_old_indexes():
    indexes = load(OLD["index2"])
    assert indexes["by_id"].get_row_group_indexes(4) == {0, 1} and indexes["by_id"].get_row_group_indexes(3) == {0}
    assert indexes["named"].get_row_group_indexes() == {1}


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def touched(tmp_path):
    return tmp_path / "touched"


def hostile(tmp_path):
    mark = str(touched(tmp_path))
    yield pickle.dumps(Evil(os.system, (f"touch {mark}",)))
    yield pickle.dumps(Evil(eval, (f"open({mark!r}, 'w')",)))  # which the original's list of modules lets through
    yield pickle.dumps(Evil(exec, (f"open({mark!r}, 'w')",)), protocol=0)
    yield pickle.dumps(Evil(getattr, (str, "mro")))
    yield pickle.dumps({"a": [Evil(os.unlink, (mark,))]})
    yield b"cpetastorm.unischema\nos.system\n(S'touch " + mark.encode() + b"'\ntR."
    yield b"cpetastorm.codecs\n__builtins__\n."
    yield b"cpyspark.sql.types\n_parse_datatype_json_string\n(S'x'\ntR."
    yield b"c__builtin__\ngetattr\n(c__builtin__\nstr\nS'__class__'\ntR."
    yield b"\x80\x02]q\x00h\x00a."  # a list that holds itself
    yield (
        b"\x80\x02"
        + b"]"
        + b"q\x00"
        + b"".join(b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60))
        + b"."
    )
    yield b"\x80\x02)" + b"\x85" * 300_000 + b"K\x01s."
    yield b"\x80\x02}(" + b")" + b"\x85" * 300_000 + b"K\x01u."
    yield b"]" * 100_000 + b"a" * 99_999 + b"."
    yield b"\x8b\xff\xff\xff\x7f."
    yield b"B\xff\xff\xff\x7f."
    yield b"I" + b"9" * 1_000_000 + b"\n."
    yield b"(" * 1_000_000
    yield b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f."
    yield b"\x80\x05\x97."
    yield b"P1\n."
    yield b"(i__builtin__\nlist\n."
    yield b""
    yield b"."


def test_hostile_pickles_are_refused(tmp_path):
    from petastorm.etl._pickled import PickleRefused

    for data in hostile(tmp_path):
        with pytest.raises(PickleRefused):
            made = load(data)
            assert made is not None and not isinstance(made, (list, dict, str, bytes, int)), made
            raise PickleRefused("a plain value does nothing")
    assert not touched(tmp_path).exists()


def test_damaged_pickles_are_refused():
    """Bits that flip end in a schema or in the one error, never in another."""
    from petastorm.etl._pickled import PickleRefused

    rng = random.Random(3)
    for _ in range(6000 if os.environ.get("HORA_SOAK") else 1500):
        data = bytearray(OLD[rng.choice(sorted(OLD))])
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            load(bytes(data[: rng.randint(1, len(data))] if rng.random() < 0.2 else data))
        except PickleRefused:
            pass


def test_codecs():
    from petastorm.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
    from petastorm.etl._pickled import SparkType
    from petastorm.unischema import UnischemaField

    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (5, 7, 3), np.uint8)
    for value, codec in [
        (image, CompressedImageCodec("png")), (image[..., 0], CompressedImageCodec("png")),
        (rng.integers(0, 65535, (5, 7), np.uint16), CompressedImageCodec("png")), (rng.random((3, 4)), NdarrayCodec()),
        (np.asarray(["a", "bcd"]), NdarrayCodec()), (rng.random((3, 4)).astype("f4"), CompressedNdarrayCodec()),
    ]:  # fmt: skip
        field = UnischemaField("x", value.dtype.type, (None,) * value.ndim, codec)
        back = codec.decode(field, bytes(codec.encode(field, value)))
        assert back.dtype == value.dtype and np.array_equal(back, value)
        with pytest.raises(ValueError, match="Unexpected dimensions"):
            codec.encode(field._replace(shape=(1, 2, 3, 4)), value)
        with pytest.raises(ValueError, match="Unexpected type"):
            codec.encode(field._replace(numpy_dtype=np.int8), value)
    out = io.BytesIO()
    np.save(out, np.array([Evil(os.system, ("true",))], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        NdarrayCodec().decode(field, out.getvalue())
    scalar = UnischemaField("n", np.int32, (), ScalarCodec(SparkType("IntegerType")))
    assert scalar.codec.encode(scalar, np.int32(3)) == 3 and type(scalar.codec.decode(scalar, 3)) is np.int32
    assert scalar.codec.decode(scalar._replace(numpy_dtype=None), [1, 2]) == [
        1,
        2,
    ]  # a field without a type is what was stored
    with pytest.raises(ValueError, match="must be an empty tuple"):
        scalar.codec.encode(scalar._replace(shape=(1,)), 1)
    with pytest.raises(TypeError, match="Expected a scalar"):
        scalar.codec.encode(scalar, [1])
