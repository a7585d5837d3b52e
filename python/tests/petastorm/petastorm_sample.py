"""A schema, and rows of it."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

ROWS = 205


def schema():
    from petastorm.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
    from petastorm.etl._pickled import SparkType
    from petastorm.unischema import Unischema, UnischemaField

    return Unischema("Test", [
        UnischemaField("id", np.int64, (), ScalarCodec(SparkType("LongType")), False),
        UnischemaField("image", np.uint8, (4, 6, 3), CompressedImageCodec("png"), False),
        UnischemaField("matrix", np.float32, (None, 2), NdarrayCodec(), True),
        UnischemaField("name", np.str_, (), None, True),
        UnischemaField("price", Decimal, (), ScalarCodec(SparkType("DecimalType", precision=10, scale=2)), False),
    ])  # fmt: skip


def row(i):
    rng = np.random.default_rng(i)
    return {
        "id": np.int64(i),
        "image": rng.integers(0, 255, (4, 6, 3), np.uint8),
        "matrix": None if i % 5 == 0 else rng.random((i % 3 + 1, 2)).astype("f4"),
        "name": None if i % 7 == 0 else f"n{i % 10}",
        "price": Decimal(i) / 100,
    }
