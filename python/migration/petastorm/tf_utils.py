"""A reader as a tf.data.Dataset, or as tensors of a graph."""

from __future__ import annotations

import calendar
import datetime
import decimal
import warnings

import numpy as np
import tensorflow as tf

RANDOM_SHUFFLING_QUEUE_SIZE = "random_shuffling_queue_size"

_SIMPLE = {
    np.str_: tf.string,
    np.bytes_: tf.string,
    np.datetime64: tf.int64,
    decimal.Decimal: tf.string,
    np.uint16: tf.int32,
    np.uint32: tf.int64,
}


def date_to_nsec_from_epoch(dt):
    """The nanoseconds from 1970 to a date or time, as UTC, in whole seconds."""
    return calendar.timegm(dt.timetuple()) * 10**9


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
        if value.dtype == object and len(value) and isinstance(value[0], datetime.date):
            return np.array(value, "M8[ns]").astype(np.int64)
    if value is None:
        raise RuntimeError(
            "TensorFlow has no nulls: choose other fields with schema_fields, or replace them in a transform_spec"
        )
    return value


def _shape(field, batched):
    return ((None,) if batched else ()) + tuple(field.shape)


def _signature(schema, batched):
    return {
        name: tf.TensorSpec(_shape(f, batched), _numpy_to_tf_dtypes(f.numpy_dtype)) for name, f in schema.fields.items()
    }


def _views(reader):
    """Of a reader of n-grams: each timestep's schema."""
    return {k: reader.ngram.get_schema_at_timestep(reader.schema, k) for k in sorted(reader.ngram.fields)}


def make_petastorm_dataset(reader):
    """A tf.data.Dataset of a reader's items as namedtuples; n-grams are dicts of them. Another pass begins the reader
    anew.

    It has make_one_shot_iterator too, for programs that build a graph of TensorFlow 1.
    """
    begun = []
    generated = tf.compat.v1.data.Dataset.from_generator  # a tf.data.Dataset, with what TensorFlow 1's had

    def again():
        if begun:
            warnings.warn(
                "Running multiple iterations over make_petastorm_dataset is not recommend for performance issue in Petastorm; here "
                "another pass costs nothing, but its order is the first one's: have the reader count epochs (num_epochs=), or cache() "
                "before repeat()",
                stacklevel=2,
            )
        if begun and reader.last_row_consumed:
            reader.reset()
        begun.append(True)

    if reader.ngram is not None:
        views = _views(reader)

        def ngrams():
            again()
            for item in reader:
                yield {str(k): {n: _plain(v) for n, v in item[k]._asdict().items()} for k in views}

        made = generated(ngrams, output_signature={str(k): _signature(v, False) for k, v in views.items()})
        return made.map(lambda item: {k: view._get_namedtuple()(**item[str(k)]) for k, view in views.items()})

    def items():
        again()
        for item in reader:
            yield {n: _plain(v) for n, v in item._asdict().items()}

    made = generated(items, output_signature=_signature(reader.schema, reader.batched_output))
    row = reader.schema._get_namedtuple()
    return made.map(lambda item: row(**item))


def tf_tensors(reader, shuffling_queue_capacity=0, min_after_dequeue=0):
    """A row of tensors for a graph of TensorFlow 1: each run of the session has the next item. Of n-grams a dict of
    rows.

    With a capacity rows pass through a queue that mixes them; its runners must be started
    (tf.compat.v1.train.start_queue_runners).
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "tf_tensors makes tensors of a graph, and this program has none: iterate over make_petastorm_dataset(reader), or build a graph with "
            "tf.compat.v1.Graph().as_default()"
        )
    if reader.batched_output and shuffling_queue_capacity > 0:
        raise ValueError(
            "shuffling_queue_capacity can not be used with a reader of batches: use make_reader, or make_petastorm_dataset(reader).unbatch().shuffle(n)"
        )
    v1 = tf.compat.v1
    views = {None: reader.schema}
    if reader.ngram is not None:  # steps between those that were named have rows without fields
        begin = min(reader.ngram.fields)
        views = {
            k: reader.ngram.get_schema_at_timestep(reader.schema, k) for k in range(begin, begin + reader.ngram.length)
        }
    fields = [f for view in views.values() for f in view.fields.values()]
    types = [_numpy_to_tf_dtypes(f.numpy_dtype) for f in fields]

    def following():
        item = next(reader)
        rows = [item if k is None else item[k] for k in views]
        return [
            _plain(v) if t == tf.string else np.asarray(_plain(v), t.as_numpy_dtype)
            for v, t in zip((v for row in rows for v in row), types, strict=True)
        ]

    tensors = v1.py_func(following, [], types)
    if shuffling_queue_capacity > 0:
        queue = v1.RandomShuffleQueue(shuffling_queue_capacity, min_after_dequeue, types)
        queue.size(name=RANDOM_SHUFFLING_QUEUE_SIZE)  # found in the graph by its name
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(tensors)]))
        tensors = queue.dequeue()
    tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    for tensor, field in zip(tensors, fields, strict=True):
        tensor.set_shape(_shape(field, reader.batched_output))
    left, out = iter(tensors), {}
    for k, view in views.items():
        out[k] = view._get_namedtuple()(**{name: next(left) for name in view.fields})
    return out[None] if reader.ngram is None else out


def make_namedtuple_tf_ngram(unischema, ngram, *args, **kargs):
    """A row for each timestep of an n-gram, by its number: of values in the timesteps' order, or of a mapping for each,
    named by it."""
    left, rows = list(args), {}
    for step in range(min(ngram.fields), max(ngram.fields) + 1):
        count = len(ngram.get_field_names_at_timestep(step)) if args else 0
        mine, left = left[:count], left[count:]
        rows[step] = ngram.get_schema_at_timestep(unischema, step)._get_namedtuple()(*mine, **kargs.get(str(step), {}))
    return rows
