"""The one call that each of Keras' backends needs: a list of gradients reduced over all ranks, None staying None. Keras
2 is TensorFlow's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .. import comm
from .._site import Unnamed
from ..errors import ArgumentError
from ..group import Group, Op, group_of
from .which import LEGACY, family, keras, two


def backend_of(keras_two: bool = LEGACY) -> str:
    """What Keras computes with."""
    return "tensorflow" if keras_two else str(_three().backend.backend())


def _three() -> Any:
    """Keras 3: an optimizer of it may come where this process' Keras is 2."""
    return importlib.import_module("keras") if LEGACY else keras


_SHORT = {"NoneCompressor": None, "FP16Compressor": "fp16", "BF16Compressor": "bf16"}


def compressed(compression: Any, backend: str) -> Any:
    """What `compression=` asks for: None, "fp16", "bf16", or on TensorFlow a compressor of a program's own."""
    kind = compression if isinstance(compression, type) else type(compression)
    if compression is None or compression == "none":
        return None
    if isinstance(compression, str) and compression in ("fp16", "bf16"):
        return compression
    if kind.__module__.startswith("hora.") and kind.__name__ in _SHORT:
        return _SHORT[kind.__name__]  # hora.tensorflow's and hora.torch's, on whichever backend
    able = all(callable(getattr(compression, name, None)) for name in ("compress", "decompress"))
    if backend == "tensorflow" and able and not isinstance(compression, str):
        return compression
    given = compression.__name__ if isinstance(compression, type) else repr(compression)
    raise ArgumentError(
        f'DistributedOptimizer: compression={given} is nothing that Keras on {backend} can send; there are None, "fp16" and "bf16", and on '
        "TensorFlow classes with compress and decompress"
    )


def _no_backend(backend: str) -> ArgumentError:
    return ArgumentError(f"hora.keras: Keras runs on {backend}; it works on tensorflow, jax and torch (KERAS_BACKEND)")


def reduce(
    grads: list[Any], op: Any, group: Group | None, prescale: float, postscale: float, compression: Any,
    sparse_as_dense: bool,
    named: bool = False, backend: str | None = None,
) -> list[Any]:  # fmt: skip
    """Average or sum gradients in the framework that Keras runs on, in one call."""
    backend = backend or backend_of()
    if backend == "tensorflow":
        import tensorflow as tf

        from ..tensorflow._calls import grouped
        from ..tensorflow.compression import Compression
        from ..tensorflow.graphs import ours

        if sparse_as_dense:
            grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        how = getattr(Compression, compression) if isinstance(compression, str) else compression or Compression.none
        return grouped(
            grads,
            op,
            group=group,
            prescale=prescale,
            postscale=postscale,
            compression=how,
            name=ours("gradients"),
            named=named,
        )
    at = [i for i, g in enumerate(grads) if g is not None]
    given = [grads[i] for i in at]
    three = _three()
    sixteen = {"fp16": "float16", "bf16": "bfloat16"}.get(compression) if isinstance(compression, str) else None
    before = [str(three.backend.standardize_dtype(g.dtype)) for g in given]
    if sixteen:
        given = [
            three.ops.cast(g, sixteen) if d in ("float32", "float64") else g for g, d in zip(given, before, strict=True)
        ]
    if backend == "jax":
        from .. import jax

        given = jax.allreduce(given, op, group=group, prescale=prescale, postscale=postscale, name=Unnamed("gradients"))
    elif backend == "torch":
        given = comm.allreduce(
            [g.detach().contiguous() for g in given], op, group=group, prescale=prescale, postscale=postscale
        )
    else:
        raise _no_backend(backend)
    out = list(grads)
    for i, g, d in zip(at, given, before, strict=True):
        out[i] = three.ops.cast(g, d) if sixteen else g
    return out


def everywhere(flag: Any, **call: Any) -> Any:
    """Whether a flag of Keras 3's is true on all ranks; `call` is reduce's."""
    ops = _three().ops
    plain = {"op": Op.MIN, "prescale": 1.0, "postscale": 1.0, "compression": None, "sparse_as_dense": False}
    return ops.cast(reduce([ops.cast(flag, "int32")], **(call | plain))[0], "bool")


def branch(flag: Any, call: Callable[[list[Any]], list[Any]], grads: list[Any]) -> list[Any]:
    """JAX: what `call` makes of gradients where the flag holds, else these as they are; all ranks go the same way."""
    import jax

    if not isinstance(flag, jax.core.Tracer):
        return call(grads) if flag else grads
    return list(jax.lax.cond(flag, lambda g: list(call(g)), lambda g: g, grads))


def scaled(grad: Any, by: Any, backend: str | None = None) -> Any:
    """A gradient times a number; rows of one stay rows."""
    if (backend or backend_of()) == "tensorflow":
        import tensorflow as tf

        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(grad.values * tf.cast(by, grad.values.dtype), grad.indices, grad.dense_shape)
        return grad * tf.cast(by, grad.dtype)
    return grad * _three().ops.cast(by, grad.dtype)


def ranks(group: Group | None, backend: str | None = None) -> Any:
    """How many ranks there are: in TensorFlow asked when the graph runs, since a graph may outlive an epoch."""
    if (backend or backend_of()) == "tensorflow":
        import tensorflow as tf

        from ..tensorflow import size

        return tf.cast(size(group), "float32")
    return group_of(group).size


def broadcast_variables(variables: list[Any], root: int = 0) -> None:
    """Give every rank root's values of Keras' variables, each backend's tensors as they are, in one call."""
    held = [v for v in variables if "string" not in str(v.dtype)]
    if not held:
        return
    backend = backend_of(LEGACY if family(held[0]) is None else two(held[0]))
    if backend == "tensorflow":
        from .. import tensorflow

        tensorflow.broadcast_variables(held, root)
    elif backend == "jax":
        from .. import jax

        got = jax.broadcast([v.value for v in held], root, name=Unnamed("broadcast_variables"))
        for y in got:
            y.block_until_ready()  # a failure is told here, and nothing is assigned
        for v, y in zip(held, got, strict=True):
            v.assign(y)
    elif backend == "torch":
        # What is dense receives in its own memory; of the others a copy does, which is assigned.
        dense = [v.value.detach().contiguous() for v in held]
        comm.broadcast(dense, root, out=dense)
        for v, y in zip(held, dense, strict=True):
            if y.data_ptr() != v.value.data_ptr():
                v.assign(y)
    else:
        raise _no_backend(backend)
