"""Nulls among the values of lists that are equally long."""

from __future__ import annotations

import numpy as np
import pytest


def test_nulls_in_lists_are_no_zeros(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import TransformSpec, make_batch_reader

    lists = {
        "f": pa.array([[1.0, None], [2.0, 3.0]], pa.list_(pa.float32())),
        "i": pa.array([[None, 7], [8, 9]], pa.list_(pa.int64())),
    }
    pq.write_table(pa.table(lists), tmp_path / "x.parquet")
    for spec in (None, TransformSpec(lambda frame: frame)):
        with make_batch_reader(f"file://{tmp_path}", shuffle_row_groups=False, transform_spec=spec) as reader:
            (batch,) = reader
        assert np.array_equal(batch.f, [[1, np.nan], [2, 3]], equal_nan=True) and batch.f.dtype == np.float32, spec
        assert np.array_equal(batch.i, [[np.nan, 7], [8, 9]], equal_nan=True), spec


def test_a_list_with_a_null_does_not_decode_to_numbers(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm import make_reader
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import Unischema, UnischemaField
    from petastorm.utils import DecodeFieldError

    schema = Unischema(
        "lists", [UnischemaField("i", np.int64, (2,), None, False), UnischemaField("f", np.float32, (2,), None, False)]
    )
    with materialize_dataset(None, f"file://{tmp_path}", schema):
        pq.write_table(pa.table({"i": [[None, 7], [8, 9]], "f": [[1.0, None], [2.0, 3.0]]}), tmp_path / "x.parquet")
    with make_reader(f"file://{tmp_path}", schema_fields=["f"], shuffle_row_groups=False) as reader:
        assert np.array_equal([row.f for row in reader], [[1, np.nan], [2, 3]], equal_nan=True)
    with (
        make_reader(f"file://{tmp_path}", shuffle_row_groups=False) as reader,
        pytest.raises(DecodeFieldError, match="Decoding field 'i'"),
    ):
        list(reader)
