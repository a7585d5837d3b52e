"""Optimizers of TensorFlow 1's graphs, tf.compat.v1.train's, with gradients that are reduced over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..gradients import apart
from .passes import InGraph
from .tape import divided

__all__ = ["Reduce", "V1Optimizer"]

v1: Any = tf.compat.v1

Reduce = Callable[[list[Any]], list[Any]]


class V1Optimizer(v1.train.Optimizer):
    """An optimizer of tf.compat.v1.train whose compute_gradients gives gradients that are reduced over all ranks.

    `reduce` takes those that are there, and `ranks` says by how many those of this rank alone are divided (None: by
    none).
    """

    def __init__(
        self, optimizer: Any, reduce: Reduce | None, ranks: Callable[[], Any] | None, *, name: str | None = None,
        use_locking: bool = False,
        sparse_as_dense: bool = False, passes: int = 1, average_passes: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer, self._hora_reduce, self._hora_ranks = optimizer, reduce, ranks
        self._sparse_as_dense = sparse_as_dense
        self._local: set[Any] = set()
        self._helper = (
            InGraph(passes, self._reduce, average=average_passes, sparse_as_dense=sparse_as_dense)
            if passes > 1
            else None
        )

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays each rank's own, divided by the number of ranks unless that is switched
        off."""
        self._local.add(var.ref())

    def _reduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """Reduced gradients, all in one call; None stays None."""
        if self._sparse_as_dense:
            grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        mine = [v.ref() in self._local for v in variables]
        by = self._hora_ranks() if any(mine) and self._hora_ranks is not None else None
        return apart(
            grads, mine, self._hora_reduce or (lambda shared: shared), lambda g: g if by is None else divided(g, by)
        )

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs  # type: ignore[no-any-return]
        grads, variables = (list(part) for part in zip(*pairs, strict=True))
        reduce = self._reduce if self._helper is None else self._helper.compute_gradients
        return list(zip(reduce(grads, variables), variables, strict=True))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        if self._helper is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        return self._helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs), self._optimizer, *args, **kwargs
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)
