"""The collectives on tensors of TensorFlow: eager, in tf.function, in loops and branches, in tf.data's map."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .. import _bridge, _world
from .._calls import root_in
from ..call import operator
from ..errors import ArgumentError
from ..group import Group, Kind, Op, group_of
from ._ops import RANK, SIZE, ops
from .compression import Compressor, NoneCompressor
from .graphs import label as labelled
from .graphs import numbered, ours


def _number(group: Group | None) -> int:
    _world.world_info()
    return _bridge.number(group_of(group))


def allreduce(
    x: Any, op: Op | str = Op.SUM, *, group: Group | None = None, prescale: float = 1.0, postscale: float = 1.0,
    compression: type[Compressor] | Compressor = NoneCompressor, name: str | None = None, named: bool = False,
) -> Any:  # fmt: skip
    """Reduce a tensor, variable or IndexedSlices over all ranks; a list is one grouped call.

    IndexedSlices are gathered: the result has every rank's rows (sum and average only). `named` calls match by name in
    any order, and go on where a rank has joined.

    >>> gradients = hora.tensorflow.allreduce(gradients, hora.AVERAGE)
    """
    if isinstance(x, (list, tuple)):
        return grouped(
            list(x),
            op,
            group=group,
            prescale=prescale,
            postscale=postscale,
            compression=compression,
            name=name,
            named=named,
        )
    return grouped(
        [x], op, group=group, prescale=prescale, postscale=postscale, compression=compression, name=name, named=named
    )[0]


def grouped(
    xs: list[Any], op: Any, *, group: Group | None, prescale: float, postscale: float, compression: Any,
    name: str | None,
    named: bool = False,
) -> list[Any]:  # fmt: skip
    """Dense tensors in one call, sparse ones by a gather each; None stays None."""
    code, number = operator(op, "allreduce"), _number(group)
    label = labelled(name, "allreduce")
    out: list[Any] = list(xs)
    dense = [i for i, x in enumerate(xs) if x is not None and not isinstance(x, tf.IndexedSlices)]
    if dense:
        sent, contexts = zip(*(compression.compress(tf.convert_to_tensor(xs[i])) for i in dense), strict=True)
        got = ops().hora_each(
            list(sent),
            kind=int(Kind.ALLREDUCE),
            op=code,
            group=number,
            prescale=prescale,
            postscale=postscale,
            label=label,
            named=named,
        )
        for i, y, c in zip(dense, got, contexts, strict=True):
            out[i] = compression.decompress(y, c)
    sparse = [i for i, x in enumerate(xs) if isinstance(x, tf.IndexedSlices)]
    if sparse:
        with same_length(len(xs), group, label, named):
            for i in sparse:
                out[i] = _sparse(xs[i], code, number, prescale, postscale, numbered(label, i, len(xs)), named)
    return out


def same_length(n: int, group: Group | None, label: str, named: bool) -> Any:
    """What the calls of a list stand in that are one operation each: an error on every rank where lists differ in
    length.

    Where calls match by name, ranks would else wait for each other's last ones for ever. One call of n bytes tells: the
    library compares how many there are.
    """
    if not named or not n:
        return contextlib.nullcontext()
    return tf.control_dependencies(
        ops().hora_each([tf.zeros([], tf.uint8)] * n, group=_number(group), label=f"{label}_list", named=True)
    )


def _sparse(x: Any, code: int, number: int, prescale: float, postscale: float, label: str, named: bool) -> Any:
    if code not in (Op.SUM, Op.AVERAGE):
        raise ArgumentError(
            f"allreduce of IndexedSlices: op={Op(code).name.lower()} cannot be had from rows alone; use sum or average, or sparse_as_dense"
        )
    if prescale != 1.0 or postscale != 1.0:
        raise ArgumentError(
            "allreduce of IndexedSlices: factors are for dense tensors; use sparse_as_dense, or scale the values"
        )
    values = _gather(x.values, number, f"{label}.values", named)
    indices = _gather(x.indices, number, f"{label}.indices", named)
    if code == Op.AVERAGE:
        values = values / tf.cast(ops().hora_place(what=SIZE, group=number), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=x.dense_shape)


def _gather(x: Any, number: int, label: str, named: bool) -> Any:
    y = ops().hora_allgather(x, group=number, label=label, named=named)
    if x.shape.rank is not None:
        y = tf.ensure_shape(y, [None, *x.shape[1:]])
    return y


def allgather(x: Any, *, group: Group | None = None, name: str | None = None, named: bool = False) -> Any:
    """Every rank gets all ranks' x, joined along the first dimension, which may differ; a number is one row."""
    if isinstance(x, (list, tuple)):
        label = labelled(name, "allgather")
        with same_length(len(x), group, label, named):
            return [allgather(y, group=group, name=numbered(label, i, len(x)), named=named) for i, y in enumerate(x)]
    return _gather(tf.convert_to_tensor(x), _number(group), labelled(name, "allgather"), named)


def broadcast(
    x: Any, root: int = 0, *, group: Group | None = None, name: str | None = None, named: bool = False
) -> Any:
    """Every rank gets root's x; on the others x gives type and shape. A list is one call."""
    g = group_of(group)
    root_in(root, g, "broadcast")
    many = isinstance(x, (list, tuple))
    tensors = [tf.convert_to_tensor(y) for y in (x if many else [x])]
    if not tensors:
        return []
    kind, label = int(Kind.BROADCAST), labelled(name, "broadcast")
    got = ops().hora_each(tensors, kind=kind, root=root, group=_number(group), label=label, named=named)
    return list(got) if many else got[0]


def alltoall(
    x: Any, splits: Any = None, *, group: Group | None = None, name: str | None = None, named: bool = False
) -> Any:
    """The rows that `splits` counts go to each rank; what comes back, and how many rows came from each, if splits were
    given."""
    tensor = tf.convert_to_tensor(x)
    given = tf.zeros([0], tf.int32) if splits is None else tf.cast(splits, tf.int32)
    y, received = ops().hora_alltoall(
        tensor, given, group=_number(group), label=labelled(name, "alltoall"), named=named
    )
    if tensor.shape.rank is not None:
        y = tf.ensure_shape(y, [None, *tensor.shape[1:]])
    return y if splits is None else (y, received)


def reducescatter(
    x: Any, op: Op | str = Op.SUM, *, group: Group | None = None, prescale: float = 1.0, postscale: float = 1.0,
    name: str | None = None, named: bool = False,
) -> Any:  # fmt: skip
    """Reduce over all ranks; each gets its part of the rows, the first ones one more where they do not divide."""
    tensor = tf.convert_to_tensor(x)
    y = ops().hora_reducescatter(
        tensor, op=operator(op, "reducescatter"), group=_number(group), prescale=prescale, postscale=postscale,
        label=labelled(name, "reducescatter"),
        named=named,
    )  # fmt: skip
    return y if tensor.shape.rank is None else tf.ensure_shape(y, [None, *tensor.shape[1:]])


def join(group: Group | None = None) -> Any:
    """Contribute zeros to the others' reductions that have `named=True` until all have joined; the last rank that
    did."""
    return ops().hora_join(group=_number(group))


def rank(group: Group | None = None) -> Any:
    """This process's rank as a tensor: asked when the graph runs."""
    return ops().hora_place(what=RANK, group=_number(group))


def size(group: Group | None = None) -> Any:
    """How many ranks there are, as a tensor."""
    return ops().hora_place(what=SIZE, group=_number(group))


def _variable(v: Any) -> Any:
    """TensorFlow's variable inside one of Keras'."""
    if isinstance(v, tf.Variable):
        return v
    inner = getattr(v, "value", None)
    if not isinstance(inner, tf.Variable):
        raise ArgumentError(f"broadcast_variables: {type(v).__name__} is no variable; pass model.variables")
    return inner


def broadcast_variables(variables: Sequence[Any], root: int = 0, *, group: Group | None = None) -> None:
    """Give every rank root's values of the variables, in one call.

    >>> hora.tensorflow.broadcast_variables(model.variables)
    """
    held = [_variable(v) for v in variables]
    plain = [v for v in held if v.dtype not in (tf.string, tf.resource, tf.variant)]
    for v, y in zip(plain, broadcast(plain, root, group=group, name=ours("broadcast_variables")), strict=True):
        v.assign(y)
