"""TorchEstimator and TorchModel for Lightning's modules: its Trainer runs on each rank, on hora.spark.Estimator."""

from __future__ import annotations

from typing import Any

from pyspark import keyword_only

from horovod.spark.common.estimator import NO_EFFECT, HorovodEstimator, say
from horovod.spark.common.params import add
from horovod.spark.lightning.legacy import Plain
from horovod.spark.lightning.remote import Train
from horovod.spark.torch.estimator import TorchModel as _TorchModel

__all__ = ["MIN_PL_VERSION", "TorchEstimator", "TorchModel"]

MIN_PL_VERSION = "1.3.8"  # what Horovod 0.28 asks for, and programs compare theirs with

NOTHING = (
    "num_gpus",
    "loader_num_epochs",
    "debug_data_loader",
    "train_async_data_loader_queue_size",
    "val_async_data_loader_queue_size",
)
DEFAULTS = {
    "input_shapes": None, "loss_constructors": None, "train_minibatch_fn": None, "num_gpus": None, "logger": None,
    "log_every_n_steps": 50,
    "loader_num_epochs": None, "trainer_args": None, "terminate_on_nan": False, "profiler": None,
    "debug_data_loader": False,
    "train_async_data_loader_queue_size": None, "val_async_data_loader_queue_size": None, "data_module": None,
}  # fmt: skip


class TorchEstimator(HorovodEstimator):
    """Trains a LightningModule on a Spark data frame. Its steps get a mapping from column to tensor.

    Another torch module is trained too, with the optimizer and the loss that are given beside it: each feature column
    is an argument of its forward, each label one of its outputs.

    >>> model = TorchEstimator(num_proc=2, model=module, input_shapes=[[-1, 2]],
    ...     feature_cols=["x"], label_cols=["y"]).fit(df)
    """

    @keyword_only
    def __init__(
        self, num_proc: Any = None, data_module: Any = None, model: Any = None, backend: Any = None, store: Any = None,
        optimizer: Any = None, loss: Any = None, loss_constructors: Any = None, metrics: Any = None,
        loss_weights: Any = None, sample_weight_col: Any = None,
        gradient_compression: Any = None, compress_sparse_cols: Any = None, feature_cols: Any = None,
        continuous_cols: Any = None,
        categorical_cols: Any = None, input_shapes: Any = None, validation: Any = None, label_cols: Any = None,
        callbacks: Any = None,
        batch_size: Any = None, val_batch_size: Any = None, epochs: Any = None, verbose: Any = 1,
        random_seed: Any = None,
        shuffle_buffer_size: Any = None, shuffle: Any = True, partitions_per_process: Any = None, run_id: Any = None,
        train_minibatch_fn: Any = None, train_steps_per_epoch: Any = None, validation_steps_per_epoch: Any = None,
        transformation_fn: Any = None, transformation_edit_fields: Any = None,
        transformation_removed_fields: Any = None,
        train_reader_num_workers: Any = None, val_reader_num_workers: Any = None, reader_pool_type: Any = None,
        label_shapes: Any = None,
        inmemory_cache_all: Any = False, num_gpus: Any = None, logger: Any = None,
        log_every_n_steps: Any = 50, loader_num_epochs: Any = None,
        trainer_args: Any = None, debug_data_loader: Any = False, train_async_data_loader_queue_size: Any = None,
        val_async_data_loader_queue_size: Any = None, terminate_on_nan: Any = False, profiler: Any = None,
        use_gpu: Any = True,
        mp_start_method: Any = None, backward_passes_per_step: Any = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self._setDefault(**DEFAULTS)
        self._set(**{k: v for k, v in self._input_kwargs.items() if v is not None})

    def _given(self, validation: Any) -> dict[str, Any]:
        model = self.getModel()
        own_steps = hasattr(model, "training_step") and hasattr(model, "configure_optimizers")
        found = super()._given(validation)
        plain = None if own_steps else self._plain(found)
        if self.getTrainMinibatchFn() is not None:
            raise ValueError("train_minibatch_fn is not supported: a LightningModule's training_step does the same")
        unused = plain is None and [
            n for n in ("optimizer", "loss", "loss_constructors", "loss_weights", "metrics") if self.getOrDefault(n)
        ]
        if unused:
            say(
                f"{', '.join(unused)}: no effect, a LightningModule has its own in training_step and configure_optimizers"
            )
        if found["compression"]:
            say("gradient_compression: no effect on a LightningModule's gradients")
        names = [*found["features"], *found["label"]]
        shapes = [
            *(self.getInputShapes() or [None] * len(found["features"])),
            *(self.getLabelShapes() or [None] * len(found["label"])),
        ]
        settings = {
            "max_epochs": 1, "logger": self.getLogger() or False, "log_every_n_steps": self.getLogEveryNSteps(),
            "profiler": self.getProfiler(),
            "accumulate_grad_batches": found["accumulate"], "detect_anomaly": bool(self.getTerminateOnNan()),
            **(self.getTrainerArgs() or {}),
        }  # fmt: skip
        train = Train(model, names, len(found["features"]), shapes, settings, list(self.getCallbacks() or ()), plain)
        return found | {
            "model": train, "loss": None, "optimizer": None, "metrics": None, "loss_weights": None,
            "label_shapes": None, "compression": None,
        }  # fmt: skip

    def _metrics(self) -> Any:
        return self.getMetrics() or None  # a mapping has the names that they are logged by

    def _plain(self, found: dict[str, Any]) -> Plain:
        """What Lightning's Trainer needs beside a module that is no LightningModule."""
        model, made = self.getModel(), self.getLossConstructors()
        if not hasattr(model, "parameters"):
            raise ValueError(f"model is a {type(model).__name__}; give a LightningModule or another torch module")
        loss = [make() for make in (made if isinstance(made, (list, tuple)) else [made])] if made else found["loss"]
        missing = [n for n, v in (("optimizer", found["optimizer"]), ("loss", loss)) if v is None]
        if missing:
            raise ValueError(
                f"model is a {type(model).__name__}, no LightningModule with training_step and configure_optimizers: "
                f"give its {' and '.join(missing)} too"
            )
        metrics = found["metrics"] or {}
        if not isinstance(metrics, dict):
            metrics = {getattr(m, "__name__", type(m).__name__): m for m in metrics}
        wrong = [n for n, m in metrics.items() if not callable(m)]
        if wrong:
            raise ValueError(f"metrics has {wrong[0]!r}; give functions of (output, label)")
        return Plain(
            optimizer=found["optimizer"], loss=loss, loss_weights=found["loss_weights"], metrics=metrics,
            features=list(found["features"]), labels=list(found["label"]), weight=found["weight"],
        )  # fmt: skip

    def _tell(self) -> None:
        super()._tell()
        given = [n for n in NOTHING if n not in NO_EFFECT and self.isSet(n) and self.getOrDefault(n)]
        if given:
            say(f"{', '.join(given)}: no effect, rows go from Spark to the ranks, and GPUs are those of Spark's tasks")

    def _model(self, fitted: Any) -> TorchModel:
        return TorchModel(
            history=fitted.history, model=fitted.model.module, feature_columns=self.getFeatureCols(),
            label_columns=self.getLabelCols(),
            input_shapes=self.getInputShapes(), run_id=fitted.run_id,
        )  # fmt: skip


class TorchModel(_TorchModel):
    """A trained LightningModule as a transformer: its forward gets an argument for each feature column."""


for _name in DEFAULTS:
    add(TorchEstimator, _name)
