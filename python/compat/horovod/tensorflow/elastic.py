"""`hvd.elastic`: run, TensorFlowState and TensorFlowKerasState."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hora.tensorflow.graphs import plain_graph

from ..common.variables import KerasState, VariablesState, run

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowState(VariablesState):
    """`TensorFlowState(variables, session, epoch=0)`: variables of TensorFlow or Keras, and plain values; all global
    ones of a session."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        self.session = session
        if session is None and plain_graph():
            self.session = tf.compat.v1.get_default_session()
        if variables is None and self.session is None:
            raise ValueError(
                "TensorFlowState: there is no list of all variables outside of TensorFlow 1's graphs; pass variables="
            )
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self._assigns: list[tuple[Any, Any]] | None = None
        super().__init__(lambda: self.variables, **kwargs)

    def _read(self) -> list[Any]:
        return (
            super()._read() if self.session is None else list(self.session.run([v.read_value() for v in self._held()]))
        )

    def _write(self, values: Any) -> None:
        if self.session is None:
            super()._write(values)
            return
        held = self._held()
        if self._assigns is None or len(self._assigns) != len(held):
            with self.session.graph.as_default():  # made once: a graph that grows is slow
                given = [tf.compat.v1.placeholder(v.dtype.base_dtype, v.shape) for v in held]
                self._assigns = [(p, tf.compat.v1.assign(v, p).op) for v, p in zip(held, given, strict=True)]
        feed = {p: value for (p, _), value in zip(self._assigns, values, strict=True)}
        self.session.run([a for _, a in self._assigns], feed)


class TensorFlowKerasState(KerasState):
    """`TensorFlowKerasState(model, optimizer, epoch=0)`: a Keras model and its optimizer, and plain values."""
