"""Gradients of several passes added up on each rank, and reduced over all ranks in the last: in graphs of TensorFlow
1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hora.tensorflow.passes import InGraph

from ..common.process_sets import ProcessSet, global_process_set

__all__ = ["LocalGradientAggregationHelper"]


class LocalGradientAggregationHelper(InGraph):
    """Keeps a sum for each gradient and a count of passes, as local variables: they are not saved, nor broadcast."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self, backward_passes_per_step: int, allreduce_func: Callable[..., Any], sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False, rank: Any = None, optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True, name: str = "",
    ) -> None:  # fmt: skip
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        super().__init__(
            backward_passes_per_step, allreduce_func, average=average_aggregated_gradients,
            sparse_as_dense=sparse_as_dense, name=name,
        )  # fmt: skip
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients

    @property
    def locally_aggregated_grads(self) -> list[Any]:
        return self.sums

    def register_local_var(self, var: Any) -> None:
        """Which variables are local is for the function that reduces to know."""
