"""Allreduce inside functions that XLA compiles (HORA_TF_XLA=1), as a custom call of XLA's."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from .. import _abi, _bridge, _lib
from ..call import NAMED
from ..errors import SettingsError
from ..group import Kind, Op

__all__ = ["able", "asked", "reduce", "takes"]

_able: bool | None = None


def asked() -> bool:
    """Whether HORA_TF_XLA, or Horovod's name for it, asks for compiled operations."""
    for name in ("HORA_TF_XLA", "HOROVOD_ENABLE_XLA_OPS"):
        text = os.environ.get(name, "").strip()
        if text not in ("", "0", "1"):
            raise SettingsError(f"{name}={text!r} is neither 0 nor 1; 1 lets XLA compile functions that reduce")
        if text:
            return text == "1"
    return False


def able() -> bool:
    """Whether this TensorFlow takes them; raises where they were asked for and it does not."""
    global _able
    if _able is None:
        _able = False
        if asked():
            try:
                from tensorflow.compiler.tf2xla.ops import gen_xla_ops

                gen_xla_ops.xla_custom_call_v2  # noqa: B018
            except (ImportError, AttributeError):
                raise SettingsError(
                    f"HORA_TF_XLA=1: TensorFlow {tf.__version__} has no operation XlaCustomCallV2; unset it, or take a newer TensorFlow"
                ) from None
            if _abi.bridge(_lib.load()).hora_tf_xla() != 0:
                raise _lib.failure("register operations with XLA")
            _able = True
    return _able


def takes(xs: list[Any], attrs: dict[str, Any]) -> bool:
    """Whether a call can be one of XLA's: a reduction, in a function, of tensors whose shapes are known when it is
    traced."""
    return (
        attrs.get("kind", int(Kind.ALLREDUCE)) == int(Kind.ALLREDUCE)
        and not tf.executing_eagerly()
        and tf.compat.v1.get_default_graph().building_function
        and asked()
        and all(x.shape.is_fully_defined() for x in xs)
        and able()
    )


def reduce(xs: list[Any], attrs: dict[str, Any], label: str, named: bool) -> list[Any]:
    """The sums, from a function of its own that XLA compiles: inside another that is compiled it becomes part of that
    one."""
    op = attrs.get("op", int(Op.SUM))

    @tf.custom_gradient
    def call(*given: Any) -> Any:
        def back(*grads: Any) -> Any:
            if op not in (Op.SUM, Op.AVERAGE):
                raise LookupError(f"allreduce with op={Op(op).name.lower()} has no derivative; use sum or average")
            sums = reduce([tf.convert_to_tensor(g) for g in grads], attrs, f"{label} (gradient)", named)
            return sums if len(sums) > 1 else sums[0]

        sums = _compiled(list(given), attrs, label, named)
        return tuple(sums) if len(sums) > 1 else sums[0], back

    got = call(*xs)
    return list(got) if len(xs) > 1 else [got]


def _compiled(xs: list[Any], attrs: dict[str, Any], label: str, named: bool) -> list[Any]:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    scales = (float(attrs.get(k, 1.0)) for k in ("prescale", "postscale"))
    what = (int(Kind.ALLREDUCE), attrs.get("op", int(Op.SUM)), attrs.get("group", 0), 0, *map(_bridge.bits, scales))
    arrays = [(x.dtype.name, x.shape.num_elements(), x.shape.as_list()) for x in xs]
    text = _bridge.text(what, NAMED if named else 0, arrays, label)
    graph: Any = tf.compat.v1.get_default_graph()
    before = getattr(graph, "_hora_last", None)

    @tf.function(jit_compile=True, autograph=False)
    def one(given: list[Any], after: Any) -> list[Any]:
        # XLA runs what does not depend on each other at once and in any order: each call gets a byte of the one before.
        operands = [*given, *([] if after is None else [after])]
        return list(
            gen_xla_ops.xla_custom_call_v2(
                operands=operands, call_target_name="hora_each", backend_config=text, has_side_effect=True,
                result_dtypes=[*(x.dtype for x in given), tf.uint8], result_shapes=[*(x.shape for x in given), []],
            )
        )  # fmt: skip

    # What goes back is the caller's affair: a tape that is persistent, or within another, would ask XLA's operation for
    # it.
    *sums, graph._hora_last = one([tf.stop_gradient(x) for x in xs], before)
    return sums
