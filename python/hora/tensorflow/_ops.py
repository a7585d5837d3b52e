"""The library's operations in TensorFlow: loaded once, with their derivatives."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import tensorflow as tf

from .. import _find, _lib
from ..errors import VersionError
from ..group import Kind, Op

_lock = threading.Lock()
_loaded: Any = None

RANK, SIZE = 0, 1  # what HoraPlace answers


def ops() -> Any:
    """The module of operations that TensorFlow made."""
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            _lib.load()
            stub = Path(_find.find()).with_name("libhora_tf.so")
            if not stub.exists():
                raise VersionError(f"load {stub}: it is not there, beside the library that it belongs to; install hora's wheel again")
            made = tf.load_op_library(str(stub))
            if not hasattr(made, "hora_each"):
                raise _lib.failure("register operations with TensorFlow")
            _derivatives(made)
            _loaded = made
    return _loaded


def _derivatives(made: Any) -> None:
    """What goes back through each operation."""

    def attrs(op: Any) -> dict[str, Any]:
        label = op.get_attr("label").decode()
        return {"group": op.get_attr("group"), "label": f"{label} (gradient)" if label else "", "named": op.get_attr("named")}

    def real(grads: Any) -> tuple[list[int], list[Any]]:
        at = [i for i, g in enumerate(grads) if g is not None and (g.dtype.is_floating or g.dtype.is_complex)]
        return at, [tf.convert_to_tensor(grads[i]) for i in at]

    def scattered(n: int, at: list[int], values: Any) -> list[Any]:
        out: list[Any] = [None] * n
        for i, v in zip(at, values, strict=True):
            out[i] = v
        return out

    @tf.RegisterGradient("HoraEach")
    def each(op: Any, *grads: Any) -> Any:
        at, given = real(grads)
        if not given:
            return [None] * len(grads)
        kind, operator = op.get_attr("kind"), op.get_attr("op")
        if kind == Kind.BROADCAST:
            root = op.get_attr("root")
            sums = made.hora_each(given, **attrs(op))
            mine = tf.equal(made.hora_place(what=RANK, group=op.get_attr("group")), root)
            return scattered(len(grads), at, [tf.where(mine, s, tf.zeros_like(s)) for s in sums])
        if operator not in (Op.SUM, Op.AVERAGE):
            raise LookupError(f"allreduce with op={Op(operator).name.lower()} has no derivative; use sum or average")
        scales = {name: op.get_attr(name) for name in ("prescale", "postscale")}
        return scattered(len(grads), at, made.hora_each(given, op=operator, **scales, **attrs(op)))

    @tf.RegisterGradient("HoraAllgather")
    def gather(op: Any, grad: Any) -> Any:
        x = op.inputs[0]
        rows = tf.shape(x)[:1] if x.shape.rank != 0 else tf.ones([1], tf.int32)
        counts = made.hora_allgather(rows, **attrs(op))
        mine = made.hora_place(what=RANK, group=op.get_attr("group"))
        (total,) = made.hora_each([tf.convert_to_tensor(grad)], **attrs(op))
        begin = tf.reduce_sum(counts[:mine])
        return tf.reshape(total[begin : begin + counts[mine]], tf.shape(x))

    @tf.RegisterGradient("HoraAlltoall")
    def exchange(op: Any, grad: Any, _: Any) -> Any:
        return made.hora_alltoall(tf.convert_to_tensor(grad), op.outputs[1], **attrs(op))[0], None

    @tf.RegisterGradient("HoraReducescatter")
    def scatter(op: Any, grad: Any) -> Any:
        operator = op.get_attr("op")
        if operator not in (Op.SUM, Op.AVERAGE):
            raise LookupError(f"reducescatter with op={Op(operator).name.lower()} has no derivative; use sum or average")
        back = made.hora_allgather(tf.convert_to_tensor(grad), **attrs(op))
        factor = tf.constant(op.get_attr("prescale") * op.get_attr("postscale"), back.dtype)
        if operator == Op.AVERAGE:
            factor = factor / tf.cast(made.hora_place(what=SIZE, group=op.get_attr("group")), back.dtype)
        return back * factor

    for name in ("HoraPlace", "HoraJoin"):
        tf.no_gradient(name)
