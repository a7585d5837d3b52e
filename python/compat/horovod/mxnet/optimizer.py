"""MXNet's optimizers and gluon's trainer, with gradients reduced over all ranks before a step."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from ..common.basics import Sum
from ..common.process_sets import ProcessSet, global_process_set
from .compression import Compression
from .mpi_ops import grouped_allreduce_

__all__ = ["DistributedOptimizer", "DistributedTrainer"]


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer of MXNet's symbolic interface: the sum of all ranks' gradients, divided by their number."""

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self._optimizer, self._process_set = optimizer, process_set
        self._factor = gradient_predivide_factor
        self._optimizer.rescale_grad *= gradient_predivide_factor / _size(process_set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def create_state(self, index: Any, weight: Any) -> Any:
        """The wrapped one's."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """The wrapped one's."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def _reduce(self, index: Any, grad: Any) -> None:
        if _size(self._process_set) == 1:
            return
        many = isinstance(index, (tuple, list))
        grads, name = (list(grad), f"gradient.{index[0]}-{len(index)}") if many else ([grad], f"gradient.{index}")
        grouped_allreduce_(grads, name=name, op=Sum, prescale_factor=1.0 / self._factor, process_set=self._process_set)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """A step with the ranks' gradients."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """A step with the ranks' gradients."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """The wrapped one's."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """The wrapped one's."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """The wrapped one's."""
        self._optimizer.set_wd_mult(args_wd_mult)


def _size(process_set: ProcessSet) -> int:
    n = process_set.size()
    if n is None:
        raise ValueError(f"horovod.mxnet: {process_set} is not registered; give it to init() or add_process_set()")
    return int(n)


class DistributedTrainer(mx.gluon.Trainer):
    """gluon's Trainer: all gradients are reduced in one call a step, and divided by the number of ranks."""

    def __init__(
        self, params: Any, optimizer: Any, optimizer_params: Any = None, compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0, prefix: str | None = None, num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:  # fmt: skip
        if isinstance(optimizer, DistributedOptimizer):
            optimizer = optimizer._optimizer  # the trainer reduces itself
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._hvd_set, self._hvd_factor, self._hvd_compression = process_set, gradient_predivide_factor, compression
        self._hvd_prefix = prefix or ""
        self._scale *= gradient_predivide_factor / _size(process_set)

    def _allreduce_grads(self) -> None:
        held = [p.list_grad() for p in self._params if p.grad_req != "null"]
        if any(len(g) > 1 for g in held):
            raise ValueError(
                "DistributedTrainer: the model lies on several devices of this process; start a process for each, with one context"
            )
        if _size(self._hvd_set) == 1:
            return
        grads = [g[0] for g in held]
        pairs = [self._hvd_compression.compress(g) for g in grads]
        sent = grouped_allreduce_(
            [s for s, _ in pairs], name=f"{self._hvd_prefix}gradients", op=Sum, prescale_factor=1.0 / self._hvd_factor,
            process_set=self._hvd_set,
        )  # fmt: skip
        for g, s, (_, c) in zip(grads, sent, pairs, strict=True):
            if s is not g:
                g[:] = self._hvd_compression.decompress(s, c)
