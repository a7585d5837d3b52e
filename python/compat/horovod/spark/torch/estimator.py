"""TorchEstimator and TorchModel, on hora.spark.Estimator."""

from __future__ import annotations

from typing import Any

from pyspark import keyword_only

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, say
from horovod.spark.common.params import add

__all__ = ["TorchEstimator", "TorchModel"]


class TorchEstimator(HorovodEstimator):
    """Trains a torch module on a Spark data frame. Each feature column is an argument of forward, each label one of its
    outputs.

    >>> model = TorchEstimator(num_proc=2, model=net, optimizer=opt, loss=nn.MSELoss(),
    ...     feature_cols=["x"], label_cols=["y"]).fit(df)
    """

    keeps_optimizer = True

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
        inmemory_cache_all: Any = False, use_gpu: Any = True, mp_start_method: Any = None,
        backward_passes_per_step: Any = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self._setDefault(input_shapes=None, loss_constructors=None, train_minibatch_fn=None)
        given = {k: v for k, v in self._input_kwargs.items() if v is not None}
        if "loss" in given and "loss_constructors" in given:
            raise ValueError("only one of loss_constructors and loss parameters can be specified.")
        self._set(**given)

    def _loss(self) -> Any:
        made = self.getLossConstructors()
        if made:
            return [make() for make in (made if isinstance(made, (list, tuple)) else [made])]
        return self.getLoss()

    def _given(self, validation: Any) -> dict[str, Any]:
        step = self.getTrainMinibatchFn()
        if step is not None and not callable(step):
            raise ValueError(
                f"train_minibatch_fn is a {type(step).__name__}; give a function of model, optimizer, … that returns (outputs, loss)"
            )
        if self.getCallbacks():
            say(
                "callbacks: no effect, the training loop of torch calls none; horovod.spark.lightning's estimator has them"
            )
        shapes = self.getInputShapes()
        own = {} if step is None else {"minibatch": step}
        return (
            super()._given(validation)
            | own
            | {"shapes": [None] * len(self.getFeatureCols()) if shapes is None else shapes}
        )

    def _model(self, fitted: Any) -> TorchModel:
        history = []
        for h in fitted.history:
            rest = {k: v for k, v in h.items() if k != "epoch"}
            one: dict[str, Any] = {
                "epoch": h["epoch"] - 1,
                "train": {k: v for k, v in rest.items() if not k.startswith("val_")},
            }
            held = {k.removeprefix("val_"): v for k, v in rest.items() if k.startswith("val_")}
            history.append(one | ({"validation": held} if held else {}))
        from hora.spark.frontend import trained_optimizer

        model, optimizer = trained_optimizer(
            self.getModel(), self.getOrDefault("optimizer"), fitted.model, fitted.optimizer_state
        )
        fitted.optimizer_state = None  # which the optimizer has
        found = TorchModel(
            history=history, model=model, optimizer=optimizer, feature_columns=self.getFeatureCols(),
            label_columns=self.getLabelCols(),
            input_shapes=self.getInputShapes(), run_id=fitted.run_id, loss=self.getLoss(),
            loss_constructors=self.getLossConstructors(),
        )  # fmt: skip
        found.fitted = fitted
        return found


class TorchModel(HorovodModel):
    """A trained torch module as a transformer; `getModel()` is the module, `getOptimizer()` its optimizer with what it
    has gathered."""

    @keyword_only
    def __init__(
        self, history: Any = None, model: Any = None, feature_columns: Any = None, input_shapes: Any = None,
        label_columns: Any = None,
        optimizer: Any = None, run_id: Any = None, _metadata: Any = None, loss: Any = None,
        loss_constructors: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(**self._input_kwargs)
        self._setDefault(input_shapes=None, loss=None, loss_constructors=None)

    def _made(self, df: Any) -> Any:
        from hora.spark.frontend import wrap_trained_model

        features = self.getFeatureColumns()
        return wrap_trained_model(
            self.getModel(),
            df,
            features,
            self.getLabelColumns(),
            shapes=self.getInputShapes() or [None] * len(features),
        )


for _name in ("input_shapes", "loss_constructors", "train_minibatch_fn"):
    add(TorchEstimator, _name)
for _name in ("input_shapes", "loss", "loss_constructors"):
    add(TorchModel, _name)
