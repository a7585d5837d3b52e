"""A plain torch module, with its optimizer and its loss, as the LightningModule that Lightning's Trainer asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Plain"]


@dataclass
class Plain:
    """What makes the steps of a module that has none of its own."""

    optimizer: Any  # of the module's parameters: it is pickled beside the module, so that they stay the same
    loss: Any
    loss_weights: Sequence[float] | None
    metrics: dict[str, Callable[[Any, Any], Any]]
    features: list[str]
    labels: list[str]
    weight: str | None

    def around(self, lightning: Any, inner: Any, mean_weight: float) -> Any:
        """The LightningModule of a rank; rows weigh as their column says beside the mean of all ranks' rows."""
        from hora.spark.frontend import loss_of_outputs

        plain, loss_of = self, loss_of_outputs(self.loss, self.loss_weights, len(self.labels))

        class Around(lightning.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = inner

            def configure_optimizers(self) -> Any:
                return plain.optimizer

            def training_step(self, batch: Any, at: int) -> Any:
                return self._told(batch, "train_")

            def validation_step(self, batch: Any, at: int) -> None:
                self._told(batch, "val_")

            def _told(self, batch: Any, before: str) -> Any:
                rows = len(batch[plain.features[0]])
                outputs, truths = self.inner(*[batch[n] for n in plain.features]), [batch[n] for n in plain.labels]
                weights = None if plain.weight is None else batch[plain.weight].float() / mean_weight
                loss = loss_of(outputs, truths, weights)
                several = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
                said = {
                    name if len(truths) == 1 else f"{label}_{name}": metric(output, truth)
                    for name, metric in plain.metrics.items()
                    for label, output, truth in zip(plain.labels, several, truths, strict=False)
                }
                for name, value in {"loss": loss.detach(), **said}.items():
                    self.log(f"{before}{name}", value, on_step=False, on_epoch=True, batch_size=rows)
                return loss

        return Around()
