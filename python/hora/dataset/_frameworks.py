"""Batches for TensorFlow and JAX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ArgumentError, HoraError
from ._loader import Loader, Wrapped
from ._views import Batch, Ragged, TextLists, Texts


def tensorflow(loader: Loader, signature: Any) -> Any:
    """A tf.data.Dataset over a loader."""
    import tensorflow as tf

    if signature is None:
        if loader._work:
            raise ArgumentError(
                "tensorflow(): what decode= and transform= answer is not known before; give signature=, a dict of tf.TensorSpec"
            )
        signature = {}
        for f in loader.fields:
            signature |= _spec(tf, f)

    def batches() -> Iterator[dict[str, Any]]:
        for batch in loader:
            yield {name: _tensor(tf, column) for name, column in batch.items()}

    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def _spec(tf: Any, f: dict[str, Any]) -> dict[str, Any]:
    name = f["name"]
    if f["item"] < 0:
        return {name: tf.RaggedTensorSpec((None, None), tf.string, 1, tf.int64)}
    if f["item"]:
        return {name: tf.RaggedTensorSpec((None, None), _dtype(tf, f["type"]), 1, tf.int64)}
    if f["text"] >= 0 or f["type"] in ("string", "binary"):
        spec = {name: tf.TensorSpec((None,), tf.string)}
    elif f["type"].startswith("V"):
        spec = {name: tf.TensorSpec((None, f["width"]), tf.uint8)}
    else:
        spec = {name: tf.TensorSpec((None, f["count"]) if f["count"] else (None,), _dtype(tf, f["type"]))}
    if f["mask"]:
        spec[name + ".null"] = tf.TensorSpec((None, f["count"]) if f["count"] else (None,), tf.bool)
    return spec


def _dtype(tf: Any, name: str) -> Any:
    return tf.int64 if name.startswith(("datetime64", "timedelta64")) else tf.dtypes.as_dtype(name)


def _tensor(tf: Any, column: Any) -> Any:
    if isinstance(column, Texts):
        return np.array([bytes(v) if column.binary else v for v in column], dtype=object)
    if isinstance(column, TextLists):
        lists = column.tolist()
        texts = [("" if v is None else v) for one in lists for v in one]
        ends = np.cumsum([0] + [len(one) for one in lists])
        return tf.RaggedTensor.from_row_splits(tf.constant(texts, tf.string), ends)
    if isinstance(column, Ragged):
        return tf.RaggedTensor.from_row_splits(_numbers(column.data), column.ends)
    return _numbers(column)


def _numbers(array: Any) -> Any:
    kind = array.dtype.kind if isinstance(array, np.ndarray) else ""
    if kind in ("m", "M"):
        return array.view(np.int64)
    return array.view(np.uint8).reshape(len(array), array.dtype.itemsize) if kind == "V" else array


def _fits(name: str, array: Any, dtype: Any) -> None:
    """Refuse what JAX would cut to 32 bits without a word."""
    if array.dtype.kind not in "iu" or dtype == array.dtype or not array.size:
        return
    most = np.iinfo(dtype)
    if array.min() < most.min or array.max() > most.max:
        raise HoraError(
            f"read data for JAX: {name!r} has whole numbers (dates are some) that {dtype} does not hold, and JAX would cut them; "
            'say jax.config.update("jax_enable_x64", True), or read other columns'
        )


class JaxLoader(Wrapped):
    """A Loader whose batches hold arrays of JAX; made by `Loader.jax`. It is the same loader, with the same state."""

    def __init__(self, loader: Loader, sharding: Any) -> None:
        super().__init__(loader)
        self.sharding = sharding

    def __iter__(self) -> Iterator[Batch]:
        import jax

        for batch in self.loader:
            out = Batch()
            out.rows, out.padded = batch.rows, batch.padded
            for name, column in batch.items():
                if isinstance(column, np.ndarray):
                    # a copy: JAX on a CPU would look at memory that is used again
                    array = np.array(_numbers(column))
                    _fits(name, array, jax.dtypes.canonicalize_dtype(array.dtype))
                    column = (
                        jax.make_array_from_process_local_data(self.sharding, array)
                        if self.sharding
                        else jax.numpy.asarray(array)
                    )
                out[name] = column
            yield out
