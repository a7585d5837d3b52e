"""A reader as a tf.data.Dataset."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import tensorflow as tf

_SIMPLE = {
    np.str_: tf.string,
    np.bytes_: tf.string,
    np.datetime64: tf.int64,
    decimal.Decimal: tf.string,
    np.uint16: tf.int32,
    np.uint32: tf.int64,
}


def _numpy_to_tf_dtypes(numpy_dtype):
    """TensorFlow's type for a field's."""
    if numpy_dtype in _SIMPLE:
        return _SIMPLE[numpy_dtype]
    try:
        return tf.dtypes.as_dtype(np.dtype(numpy_dtype))
    except TypeError:
        raise ValueError(f"Unknown mapping of numpy {numpy_dtype} to tensorflow dtype") from None


def _plain(value):
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, np.datetime64):
        return int(value.astype("M8[ns]").astype(np.int64))
    if isinstance(value, (datetime.datetime, datetime.date)):
        return int(np.datetime64(value).astype("M8[ns]").astype(np.int64))
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "M":
            return value.astype("M8[ns]").astype(np.int64)
        if value.dtype == np.uint16:
            return value.astype(np.int32)
        if value.dtype == np.uint32:
            return value.astype(np.int64)
        if value.dtype == object and len(value) and isinstance(value[0], decimal.Decimal):
            return np.array([str(v) for v in value])
    if value is None:
        raise RuntimeError("TensorFlow has no nulls: choose other fields with schema_fields, or replace them in a transform_spec")
    return value


def _signature(schema, batched):
    return {
        name: tf.TensorSpec(((None,) if batched else ()) + tuple(f.shape), _numpy_to_tf_dtypes(f.numpy_dtype))
        for name, f in schema.fields.items()
    }


def make_petastorm_dataset(reader):
    """A tf.data.Dataset of a reader's items as namedtuples; n-grams are dicts of them. Another pass begins the reader anew."""
    begun = []

    def again():
        if begun and reader.last_row_consumed:
            reader.reset()
        begun.append(True)

    if reader.ngram is not None:
        views = {k: reader.ngram.get_schema_at_timestep(reader.schema, k) for k in sorted(reader.ngram.fields)}

        def ngrams():
            again()
            for item in reader:
                yield {str(k): {n: _plain(v) for n, v in item[k]._asdict().items()} for k in views}

        made = tf.data.Dataset.from_generator(ngrams, output_signature={str(k): _signature(v, False) for k, v in views.items()})
        return made.map(lambda item: {k: view._get_namedtuple()(**item[str(k)]) for k, view in views.items()})

    def items():
        again()
        for item in reader:
            yield {n: _plain(v) for n, v in item._asdict().items()}

    made = tf.data.Dataset.from_generator(items, output_signature=_signature(reader.schema, reader.batched_output))
    row = reader.schema._get_namedtuple()
    return made.map(lambda item: row(**item))


def tf_tensors(reader, shuffling_queue_capacity=0, min_after_dequeue=0):
    """TensorFlow 1's queues, which are gone."""
    raise NotImplementedError(
        "tf_tensors needs the queue runners of TensorFlow 1: iterate over make_petastorm_dataset(reader), and shuffle with .shuffle(n)"
    )
