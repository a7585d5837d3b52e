"""`hvd.elastic`: run, TensorFlowState and TensorFlowKerasState."""

from __future__ import annotations

from typing import Any

from ..common.variables import KerasState, VariablesState, run

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowState(VariablesState):
    """`TensorFlowState(variables, epoch=0)`: variables of TensorFlow or Keras, and plain values."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        if session is not None:
            raise NotImplementedError("TensorFlowState: sessions of TensorFlow 1 are not there yet; pass variables= and no session=")
        if variables is None:
            raise ValueError("TensorFlowState: there is no list of all variables outside of TensorFlow 1's graphs; pass variables=")
        self.variables = list(variables)
        super().__init__(lambda: self.variables, **kwargs)


class TensorFlowKerasState(KerasState):
    """`TensorFlowKerasState(model, optimizer, epoch=0)`: a Keras model and its optimizer, and plain values."""
