"""Gradients of several passes added up on each rank, and reduced over all ranks in the last: eagerly and in
tf.function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hora.tensorflow.passes import Stepwise

from ..common.process_sets import ProcessSet, global_process_set

__all__ = ["LocalGradientAggregationHelperEager"]


class LocalGradientAggregationHelperEager(Stepwise):
    """Keeps a sum for each gradient and a count of passes."""

    def __init__(
        self, backward_passes_per_step: int, allreduce_func: Callable[..., Any], sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False, process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:  # fmt: skip
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        super().__init__(
            backward_passes_per_step, allreduce_func, average=average_aggregated_gradients,
            sparse_as_dense=sparse_as_dense,
        )  # fmt: skip
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients

    @property
    def locally_aggregated_grads(self) -> dict[int, Any]:
        return self.sums
