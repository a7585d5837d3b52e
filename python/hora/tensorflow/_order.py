"""Has calls of a function's graph run one after the other, as they were made.

TensorFlow does so itself in functions that it traces, and not in those that it derives from one for a tape outside of
it: there the calls of the ranks would meet in any order, and a gradient be somebody else's.
"""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

__all__ = ["keep_order"]

# Operations that wait for the other ranks, XLA's among them. HoraPlace asks nobody, and those of graphs of TensorFlow 1
# match by name.
_OURS = {"HoraEach", "HoraAllgather", "HoraAlltoall", "HoraReducescatter", "HoraJoin", "XlaCustomCallV2"}
# What calls functions, and the attributes that say which.
_CALLS = {
    f"{stateless}{name}": attrs
    for stateful, stateless, name, attrs in (
        ("Stateful", "", "PartitionedCall", ("f",)),
        ("", "Stateless", "While", ("cond", "body")),
        ("", "Stateless", "If", ("then_branch", "else_branch")),
        ("", "Stateless", "Case", ("branches",)),
    )
    for stateless in (stateful, stateless)  # what holds XLA's alone is no state of TensorFlow's
}
_known: dict[str, bool] = {}


def _names(attr: Any) -> list[str]:
    """The functions that an attribute of a node names."""
    return [attr.func.name] if attr.HasField("func") else [f.name for f in attr.list.func]


def _reduces(node: Any) -> bool:
    """Whether a node waits for the other ranks, itself or in what it calls."""
    if node.op == "XlaCustomCallV2":
        return node.attr["call_target_name"].s == b"hora_each"
    return node.op in _OURS or any(_holds(name) for a in _CALLS.get(node.op, ()) for name in _names(node.attr[a]))


def _holds(function: str) -> bool:
    """Whether a node of the function, or of one that it calls, waits for the other ranks.

    So is one taken that is not known: order does no harm.
    """
    if function not in _known:
        _known[function] = False  # while one that calls itself is looked at
        try:
            context = importlib.import_module("tensorflow.python.eager.context").context()
            context.ensure_initialized()  # in graphs of TensorFlow 1 nobody else may have
            body = context.get_function_def(function)
        except (ImportError, AttributeError, tf.errors.OpError):
            _known[function] = True
        else:
            _known[function] = any(_reduces(node) for node in body.node_def)
    return _known[function]


def keep_order() -> None:
    """From now on, in the graphs of all functions.

    A function that is derived may call one that was derived before, in which nothing is made any more: so it is looked
    at each call of one, and not only at our operations.
    """
    graphs: Any = tf.__internal__.FuncGraph
    create = graphs._create_op_internal

    def ordered(self: Any, op_type: str, *args: Any, **kwargs: Any) -> Any:
        if op_type not in _OURS and op_type not in _CALLS:
            return create(self, op_type, *args, **kwargs)
        last = getattr(self, "_hora_last_call", None)
        made = create(self, op_type, *args, **kwargs)
        if _reduces(made.node_def):
            if last is not None:
                made._add_control_input(last)
            self._hora_last_call = made
        return made

    graphs._create_op_internal = ordered
