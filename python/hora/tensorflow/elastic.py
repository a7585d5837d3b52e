"""Variables of TensorFlow in an elastic state.

>>> state = hora.tensorflow.TensorFlowState(variables, step=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .. import _variables
from ..elastic import State
from ..errors import ArgumentError
from .tape import inner_variable

__all__ = ["TensorFlowState"]


def _mine(value: Any) -> bool:
    return (
        isinstance(value, tf.Variable)
        or isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(v, tf.Variable) for v in value)
    )


_variables.register(
    "variables of TensorFlow",
    _mine,
    lambda value: [value] if isinstance(value, tf.Variable) else list(value),
    lambda v: v.numpy().copy(),
)


class TensorFlowState(State):
    """Variables, and plain values besides: `TensorFlowState(model.variables, step=0)`."""

    def __init__(self, variables: Sequence[Any], **values: Any) -> None:
        held = [inner_variable(v) for v in variables]
        if not _mine(held):
            raise ArgumentError(
                "make TensorFlowState: it keeps variables of TensorFlow; pass model.variables, of a model that is built"
            )
        super().__init__(variables=held, **values)
