"""The library's operations in TensorFlow: loaded once, with their derivatives."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import tensorflow as tf

from .. import _find, _lib
from ..errors import VersionError
from ..group import Kind, Op
from . import _apart, _xla
from ._order import keep_order
from .graphs import UNSCOPED, After, Unnamed, plain_graph, precondition, unscoped, within

_lock = threading.Lock()
_loaded: Any = None

RANK, SIZE = 0, 1  # what HoraPlace answers


_LONGEST = 120  # of a label; the library adds a place in a list


def _unique(label: str, x: Any) -> str:
    """A name that no other operation of this graph has, and that the other ranks' graphs have alike."""
    first = x[0] if isinstance(x, (list, tuple)) else x
    if isinstance(label, After):
        first = label.first
    if not isinstance(label, Unnamed):
        first = None
    of = re.sub(r"[^A-Za-z0-9_.]", "_", _written(first, unscoped(label)))
    text = f"{label}_{of}" if of else str(label)
    graph: Any = tf.compat.v1.get_default_graph()
    made = _counted(graph, text) if unscoped(label) else graph.unique_name(text)
    return (
        made if len(made) <= _LONGEST else f"{made[: _LONGEST - 17]}_{hashlib.sha256(made.encode()).hexdigest()[:16]}"
    )


def _written(tensor: Any, short: bool) -> str:
    """What an operation is called in its graph; short, without its scopes."""
    name = str(getattr(getattr(tensor, "op", None), "name", ""))
    return name.rpartition("/")[2] if short else name


def _counted(graph: Any, text: str) -> str:
    """A name without scopes: the graph's own names are no part of it, since scopes decide which of those are taken."""
    text = UNSCOPED + text.removeprefix(UNSCOPED)
    if not hasattr(graph, "_hora_unscoped"):
        graph._hora_unscoped = {}
    seen = graph._hora_unscoped
    seen[text] = seen.get(text, 0) + 1
    return text if seen[text] == 1 else f"{text}_{seen[text] - 1}"


class _Ops:
    """The operations that TensorFlow made, each in the form that the present graph needs.

    A graph of TensorFlow 1 has no order, so its operations do not wait on TensorFlow's threads and match by name
    always.
    """

    def __init__(self, made: Any) -> None:
        self.back: dict[str, Any] = {}  # the derivatives
        self.hora_place = made.hora_place
        for name in ("hora_each", "hora_allgather", "hora_alltoall", "hora_reducescatter", "hora_join"):
            setattr(self, name, self._choosing(name, getattr(made, name), getattr(made, f"{name}_later", None)))

    def _choosing(self, name: str, now: Any, later: Any) -> Any:
        def call(*args: Any, label: str = "", named: bool = False, **attrs: Any) -> Any:
            attrs.setdefault("precondition", precondition.get())
            if not plain_graph():
                if isinstance(label, Unnamed):
                    label = str(label) + within()
                if name == "hora_each" and _xla.takes(args[0], attrs):
                    return _xla.reduce(list(args[0]), attrs, str(label), named)
                return now(*args, label=label, named=named, **attrs)
            attrs |= {"label": _unique(label or Unnamed(name), args[0] if args else None), "named": True}
            if later is None:
                given = list(args[0]) if name == "hora_each" else args
                return _apart.run(now, given, attrs, self.back.get(name), 2 if name == "hora_alltoall" else 1)
            return later(*args, **attrs)

        return call


def ops() -> Any:
    """The operations, as TensorFlow calls them."""
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            _lib.load()
            stub = Path(_find.find()).with_name("libhora_tf.so")
            if not stub.exists():
                raise VersionError(
                    f"load {stub}: it is not there, beside the library that it belongs to; install hora's wheel again"
                )
            made = tf.load_op_library(str(stub))
            if not hasattr(made, "hora_each"):
                raise _lib.failure("register operations with TensorFlow")
            keep_order()
            _tell_of_gpus()
            _loaded = _Ops(made)
            _derivatives(_loaded)
    return _loaded


def _tell_of_gpus() -> None:
    """Says once what a training on GPUs pays: the operations are the processor's."""
    if os.environ.get("HORA_RANK", "0") == "0" and tf.config.get_visible_devices("GPU"):
        warnings.warn(
            "hora's operations run on the processor: TensorFlow copies a GPU's tensors there and back", stacklevel=2
        )


def _derivatives(made: Any) -> None:
    """What goes back through each operation."""

    def attrs(op: Any) -> dict[str, Any]:
        label = op.get_attr("label").decode()
        same = {name: op.get_attr(name) for name in ("group", "named", "precondition")}
        return same | {"label": f"{label} (gradient)" if label else ""}

    def real(grads: Any) -> tuple[list[int], list[Any]]:
        at = [i for i, g in enumerate(grads) if g is not None and (g.dtype.is_floating or g.dtype.is_complex)]
        return at, [tf.convert_to_tensor(grads[i]) for i in at]

    def scattered(n: int, at: list[int], values: Any) -> list[Any]:
        out: list[Any] = [None] * n
        for i, v in zip(at, values, strict=True):
            out[i] = v
        return out

    @tf.RegisterGradient("HoraEachLater")
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

    @tf.RegisterGradient("HoraAllgatherLater")
    @tf.RegisterGradient("HoraAllgather")
    def gather(op: Any, grad: Any) -> Any:
        x = op.inputs[0]
        rows = tf.shape(x)[:1] if x.shape.rank != 0 else tf.ones([1], tf.int32)
        counts = made.hora_allgather(rows, **attrs(op))
        mine = made.hora_place(what=RANK, group=op.get_attr("group"))
        (total,) = made.hora_each([tf.convert_to_tensor(grad)], **attrs(op))
        begin = tf.reduce_sum(counts[:mine])
        return tf.reshape(total[begin : begin + counts[mine]], tf.shape(x))

    @tf.RegisterGradient("HoraAlltoallLater")
    @tf.RegisterGradient("HoraAlltoall")
    def exchange(op: Any, grad: Any, _: Any) -> Any:
        return made.hora_alltoall(tf.convert_to_tensor(grad), op.outputs[1], **attrs(op))[0], None

    @tf.RegisterGradient("HoraReducescatterLater")
    @tf.RegisterGradient("HoraReducescatter")
    def scatter(op: Any, grad: Any) -> Any:
        operator = op.get_attr("op")
        if operator not in (Op.SUM, Op.AVERAGE):
            raise LookupError(
                f"reducescatter with op={Op(operator).name.lower()} has no derivative; use sum or average"
            )
        back = made.hora_allgather(tf.convert_to_tensor(grad), **attrs(op))
        factor = tf.constant(op.get_attr("prescale") * op.get_attr("postscale"), back.dtype)
        if operator == Op.AVERAGE:
            factor = factor / tf.cast(made.hora_place(what=SIZE, group=op.get_attr("group")), back.dtype)
        return back * factor

    made.back |= {"hora_each": each, "hora_allgather": gather, "hora_alltoall": exchange, "hora_reducescatter": scatter}
    for name in ("HoraPlace", "HoraJoin", "HoraJoinLater"):
        tf.no_gradient(name)
