"""KerasEstimator and KerasModel, on hora.spark.Estimator."""

from __future__ import annotations

import copy
import os
import secrets
from typing import Any

from pyspark import keyword_only

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import add

__all__ = ["KerasEstimator", "KerasModel"]


class _KerasFile:
    """A Keras model that is pickled as a file of Keras' beside its custom_objects, which are read first: Keras' own
    pickle of it knows nothing of them."""

    def __init__(self, model: Any, custom: Any) -> None:
        self.model, self.custom = model, custom

    def __reduce__(self) -> Any:
        from hora.spark.frontend import is_compiled, keras_bytes, keras_model, keras_of

        compiled, package = is_compiled(self.model), keras_of(self.model).__name__
        return keras_model, (keras_bytes(self.model), dict(self.custom or {}) or None, compiled, package)


def _with_file(instance: Any, values: dict[str, Any]) -> dict[str, Any]:
    model = values.get("model")
    return values if model is None else values | {"model": _KerasFile(model, instance.getCustomObjects())}


class KerasEstimator(HorovodEstimator):
    """Trains a Keras model on a Spark data frame. Each feature column is an input of the model, each label one of its
    outputs.

    >>> model = KerasEstimator(num_proc=2, model=net, optimizer="adam", loss="mse",
    ...     feature_cols=["x"], label_cols=["y"]).fit(df)
    """

    @keyword_only
    def __init__(
        self, num_proc: Any = None, data_module: Any = None, model: Any = None, backend: Any = None, store: Any = None,
        custom_objects: Any = None, optimizer: Any = None, loss: Any = None, loss_weights: Any = None,
        sample_weight_col: Any = None,
        gradient_compression: Any = None, metrics: Any = None, compress_sparse_cols: Any = None,
        feature_cols: Any = None,
        continuous_cols: Any = None, categorical_cols: Any = None, label_cols: Any = None, validation: Any = None,
        callbacks: Any = None,
        batch_size: Any = None, val_batch_size: Any = None, epochs: Any = None, verbose: Any = None,
        random_seed: Any = None,
        shuffle_buffer_size: Any = None, shuffle: Any = True, partitions_per_process: Any = None, run_id: Any = None,
        train_steps_per_epoch: Any = None, validation_steps_per_epoch: Any = None, transformation_fn: Any = None,
        transformation_edit_fields: Any = None, transformation_removed_fields: Any = None,
        train_reader_num_workers: Any = None,
        val_reader_num_workers: Any = None, reader_pool_type: Any = None, label_shapes: Any = None,
        checkpoint_callback: Any = None,
        inmemory_cache_all: Any = False, backend_env: Any = None, use_gpu: Any = True, mp_start_method: Any = None,
        tensorflow_dataset_prefetch_buffer_size: Any = None, backward_passes_per_step: Any = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self._setDefault(
            custom_objects={}, checkpoint_callback=None, backend_env=None, tensorflow_dataset_prefetch_buffer_size=None
        )
        self._set(**{k: v for k, v in self._input_kwargs.items() if v is not None})

    def _given(self, validation: Any) -> dict[str, Any]:
        found = super()._given(validation)
        callbacks = list(self.getCallbacks() or ())
        if self.getCheckpointCallback() is not None:
            callbacks.append(self._placed(found))
        return found | {
            "callbacks": callbacks, "custom_objects": self.getCustomObjects(),
            "env": found["env"] | (self.getBackendEnv() or {}),
        }  # fmt: skip

    def _kept(self, values: dict[str, Any]) -> dict[str, Any]:
        return _with_file(self, values)

    def _placed(self, found: dict[str, Any]) -> Any:
        """The checkpoint's callback; one that has no path saves beside the run's own files, as best.keras."""
        callback, store = copy.copy(self.getCheckpointCallback()), self.getStore()
        if getattr(callback, "filepath", None):
            return callback
        if found["store"] is None or "://" in store.get_runs_path().removeprefix("file://"):
            raise ValueError(
                "checkpoint_callback has no filepath, and there is no store in a folder to save to: set the callback's filepath to one that "
                "rank 0 can write to"
            )
        found["run_id"] = found["run_id"] or f"keras-{secrets.token_hex(6)}"
        folder = store.get_localized_path(store.get_checkpoint_path(found["run_id"]))
        os.makedirs(folder, exist_ok=True)
        callback.filepath = os.path.join(folder, "best.keras")
        return callback

    def _model(self, fitted: Any) -> KerasModel:
        names = [k for k in (fitted.history[0] if fitted.history else {}) if k != "epoch"]
        found = KerasModel(
            history={k: [h[k] for h in fitted.history] for k in names}, model=fitted.model,
            feature_columns=self.getFeatureCols(),
            label_columns=self.getLabelCols(), custom_objects=self.getCustomObjects(), run_id=fitted.run_id,
        )  # fmt: skip
        found.fitted = fitted
        return found


class KerasModel(HorovodModel):
    """A trained Keras model as a transformer; `getModel()` is the model."""

    @keyword_only
    def __init__(
        self, history: Any = None, model: Any = None, feature_columns: Any = None, label_columns: Any = None,
        custom_objects: Any = None,
        run_id: Any = None, _metadata: Any = None, _floatx: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(**self._input_kwargs)
        self._setDefault(custom_objects={}, _floatx=None)

    def _kept(self, values: dict[str, Any]) -> dict[str, Any]:
        return _with_file(self, values)

    def _made(self, df: Any) -> Any:
        from hora.spark.frontend import wrap_trained_model

        return wrap_trained_model(
            self.getModel(),
            df,
            self.getFeatureColumns(),
            self.getLabelColumns(),
            custom_objects=self.getCustomObjects(),
        )


for _name in ("custom_objects", "checkpoint_callback", "backend_env", "tensorflow_dataset_prefetch_buffer_size"):
    add(KerasEstimator, _name)
for _name in ("custom_objects", "_floatx"):
    add(KerasModel, _name)
