"""Rows as they are stored, and as a schema says."""

from __future__ import annotations

from .codecs import scalar


class DecodeFieldError(RuntimeError):
    """A stored value is not what the schema says."""


def decode_row(row, schema):
    """A stored row's values, decoded; names that the schema has not are left out."""
    return {name: decode_value(schema.fields[name], value) for name, value in row.items() if name in schema.fields}


def decode_value(field, value):
    """A stored value, decoded."""
    try:
        if value is None:
            return None
        if field.codec is not None:
            return field.codec.decode(field, value)
        if field.shape:
            import numpy as np

            return np.asarray(value, dtype=None if field.numpy_dtype in (np.str_, np.bytes_) else field.numpy_dtype)
        return scalar(field, value)
    except Exception as e:
        raise DecodeFieldError(f"Decoding field {field.name!r} failed: {type(e).__name__}: {e}") from e


def add_to_dataset_metadata(dataset, key, value):
    """Put a key and a value beside a dataset: the pair (file system, path)."""
    import pyarrow.dataset as ds

    from .etl.dataset_metadata import write_metadata

    fs, path = dataset
    write_metadata(fs, path, ds.dataset(path, filesystem=fs, partitioning="hive").schema, {key: value})


def run_in_subprocess(func, *args, **kwargs):
    """What a function answers in a process of its own, so that its memory goes with it."""
    import concurrent.futures
    import multiprocessing

    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(func, *args, **kwargs).result()
