"""Elastic training with `fit`: the state, and the callbacks that keep it."""

from __future__ import annotations

from typing import Any

from hora.keras.callbacks import CommitState, UpdateBatchState, UpdateEpochState

from ..common.variables import KerasState, run

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


class CommitStateCallback(CommitState):
    """Commits the state after every `batches_per_commit` batches, and after each epoch. Put it after those that update
    the state."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(state, batches_per_commit)

    @property
    def batches_per_commit(self) -> int:
        return self.every

    @property
    def batches_remaining(self) -> int:
        return self.left


class UpdateBatchStateCallback(UpdateBatchState):
    """Keeps the number of the batch in `state.batch`, 0 at an epoch's end."""


class UpdateEpochStateCallback(UpdateEpochState):
    """Keeps the number of epochs that are done in `state.epoch`, across calls of fit that each begin with 0."""
