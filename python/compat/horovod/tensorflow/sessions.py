"""What graphs and sessions of TensorFlow 1 need: equal starts by a hook, and optimizers of tf.compat.v1.train."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hora.tensorflow.graphs import plain_graph

from ..common.basics import OPERATORS, Adasum, Average
from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of
from ._errors import translated
from .functions import broadcast_variables
from .mpi_ops import reduce_each, size_op

__all__ = ["BroadcastGlobalVariablesHook", "V1Optimizer", "broadcast_global_variables"]

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


class V1Optimizer(v1.train.Optimizer):
    """An optimizer of tf.compat.v1.train whose compute_gradients gives gradients that are reduced over all ranks."""

    def __init__(
        self, optimizer: Any, name: str | None = None, use_locking: bool = False, *, compression: Any, sparse_as_dense: bool = False,
        op: Any = Average, gradient_predivide_factor: float = 1.0, backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False, process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._compression, self._sparse_as_dense, self._op = compression, sparse_as_dense, op
        self._factor, self._process_set, self._scale_local = gradient_predivide_factor, process_set, scale_local_gradients
        self._local: set[Any] = set()
        self._helper: Any = None
        if backward_passes_per_step > 1:
            from .gradient_aggregation import LocalGradientAggregationHelper

            self._helper = LocalGradientAggregationHelper(
                backward_passes_per_step, self._reduce, sparse_as_dense, average_aggregated_gradients, None,
                LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY, process_set, scale_local_gradients,
            )  # fmt: skip

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays each rank's own, divided by the number of ranks unless that is switched off."""
        self._local.add(var.ref())
        if self._helper is not None:
            self._helper.register_local_var(var)

    @translated
    def _reduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """Reduced gradients, all in one call; None stays None."""
        out = [tf.convert_to_tensor(g) if self._sparse_as_dense and isinstance(g, tf.IndexedSlices) else g for g in grads]
        shared = [i for i, (g, v) in enumerate(zip(out, variables, strict=True)) if g is not None and v.ref() not in self._local]
        if self._process_set.included() is not False and shared:
            group_of(self._process_set)
            sums = reduce_each(
                [out[i] for i in shared], self._op, "DistributedOptimizer_Allreduce", 1.0 / self._factor, self._factor, self._process_set,
                self._compression,
            )  # fmt: skip
            for i, g in zip(shared, sums, strict=True):
                out[i] = g
        if self._scale_local and self._local:
            ranks = size_op(self._process_set.process_set_id or 0)
            for i, v in enumerate(variables):
                if out[i] is not None and v.ref() in self._local:
                    out[i] = out[i] / tf.cast(ranks, out[i].dtype)
        return out

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs
        grads, variables = (list(part) for part in zip(*pairs, strict=True))
        if self._helper is not None:
            return list(zip(self._helper.compute_gradients(grads, variables), variables, strict=True))
        return list(zip(self._reduce(grads, variables), variables, strict=True))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        if self._helper is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        return self._helper.apply_gradients(lambda: self._optimizer.apply_gradients(*args, **kwargs), self._optimizer, *args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def check(op: Any, backward_passes_per_step: int, process_set: ProcessSet) -> None:
    """What optimizers of TensorFlow 1 refuse besides."""
    if op not in OPERATORS:
        raise ValueError(f"Unknown reduction operation {op}: use hvd.Average, hvd.Sum or hvd.Adasum")
    if op == Adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet: use hvd.global_process_set")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
