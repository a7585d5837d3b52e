"""What graphs and sessions of TensorFlow 1 need: equal starts by a hook, and what its optimizers refuse."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hora.tensorflow.graphs import plain_graph

from ..common.basics import OPERATORS, Adasum
from ..common.process_sets import ProcessSet
from .functions import broadcast_variables

__all__ = ["BroadcastGlobalVariablesHook", "broadcast_global_variables", "check"]

v1: Any = tf.compat.v1


def broadcast_global_variables(root_rank: int) -> Any:
    """An operation that gives all global variables of the graph root's values."""
    if not plain_graph():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution: there is no list of all variables; call "
            "hvd.broadcast_variables(model.variables, root_rank=0)"
        )
    return broadcast_variables(v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(v1.train.SessionRunHook):
    """Of a MonitoredTrainingSession: all global variables get root's values once they are initialized or restored."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device  # of no effect: operations run on the processor
        self.bcast_op: Any = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph != v1.get_default_graph():
            with v1.name_scope("BroadcastGlobalVariables"):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


def check(op: Any, backward_passes_per_step: int, process_set: ProcessSet) -> None:
    """What optimizers of TensorFlow 1 refuse besides."""
    if op not in OPERATORS:
        raise ValueError(f"Unknown reduction operation {op}: use hvd.Average, hvd.Sum or hvd.Adasum")
    if op == Adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet: use hvd.global_process_set")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
