"""Estimator: one model, trained by a gang of tasks on the rows of a Spark data frame. An Estimator of Spark's, without
a JVM class."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from . import _net
from ._ensemble import _Saved
from ._params import Estimator as _Estimator
from ._params import Model, Param, Params, TypeConverters, is_spark


def _param(name: str, doc: str) -> Param:
    return Param(Params._dummy(), name, doc, TypeConverters.identity)


class _Shared(Params):
    """The Params that the estimator shares with its model."""

    features = _param("features", "columns of features; None: the column `features`, else all that is nothing else")
    label = _param("label", "column of labels, or several")
    prediction = _param("prediction", "column that transform adds: the value, or the likeliest class")
    raw = _param("raw", "column that transform adds for the outputs as a vector; None: none")
    batch_bytes = _param("batch_bytes", "of features that the model is given at a time by transform")

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(features=None, label="label", prediction="prediction", raw=None, batch_bytes=16 << 20)


class Estimator(_Shared, _Saved, _Estimator):
    """Trains a model on the rows of a Spark data frame, in `np` tasks at once; `fit` returns a transformer.

    >>> estimator = hora.spark.Estimator(torch.nn.Linear(3, 1), loss="mse", np=2, epochs=5, validation=0.1)
    >>> fitted = estimator.fit(df)                    # also in a Pipeline, or a CrossValidator
    >>> fitted.history[-1]                            # {"epoch": 5, "loss": …, "val_loss": …}
    >>> fitted.transform(df).select("prediction")

    model: a torch module, a Keras model, or a function of one argument, a `Training`, that returns the fitted model on
        rank 0.
    loss: torch: a function of (output, label), or a name such as "mse" or "cross_entropy". Keras: none where it is
        compiled.
    optimizer: torch: a torch.optim optimizer of the model, its class, or a function of (parameters, learning_rate);
        Adam without one. Keras: an optimizer or its name; the compiled one's without.
    metrics: names ("accuracy", "mse", "mae"; Keras' own for Keras) or functions of (output, label).
    features, label: columns; numbers, lists of one length and vectors. weight: a column of row weights.
    class_weight: weights of the labels' values. validation: the part of the rows to validate on, or a column that is
        true there.
    shapes, label_shapes: a shape for each column, which then is an input of its own; without, features make one matrix.
    np: ranks; all task slots without it. store, run_id: a folder that all machines share, or a URL, where the run is
        kept and gone on from; restarts: how often a gang that lost a worker is started anew.
    learning_rate: sets the optimizer's. transform: a function of the columns' mapping, on each rank before the
        training.
    minibatch: torch: a function of (model, optimizer, outputs_of, loss_of, inputs, labels, weights) that makes one step
        and returns (outputs, loss). storage_options: what fsspec is given for a store that is a URL; it is not saved
        with the estimator.
    progress: called on the driver with each epoch's metrics while the job runs.
    """

    weight = _param("weight", "column of row weights")
    class_weight = _param("class_weight", "weights of the labels' values")
    validation = _param("validation", "part of the rows, or a column that is true for them")
    batch_size = _param("batch_size", "rows of one rank's step")
    epochs = _param("epochs", "passes over the rows")
    learning_rate = _param("learning_rate", "of the optimizer")
    np = _param("np", "number of ranks")
    store = _param("store", "folder or URL where runs are kept")
    run_id = _param("run_id", "name of the run, which is gone on with where it is begun")
    restarts = _param("restarts", "starts anew after a lost worker")
    seed = _param("seed", "of all that is drawn")
    shuffle = _param("shuffle", "whether rows come in another order in each epoch")
    shapes = _param("shapes", "of the features, each an input of its own")
    label_shapes = _param("label_shapes", "of the labels")
    loss_weights = _param("loss_weights", "of several outputs")
    accumulate = _param("accumulate", "backward passes before one step")
    compression = _param("compression", "of gradients: none, fp16, bf16")
    steps = _param("steps", "of an epoch, at most")
    validation_steps = _param("validation_steps", "of a validation, at most")
    validation_batch_size = _param("validation_batch_size", "rows of one rank's step of validation")
    gpu = _param("gpu", "whether to use GPUs where there are some")
    verbose = _param("verbose", "whether the driver prints a line for each epoch")

    def __init__(
        self, model: Any = None, *, loss: Any = None, optimizer: Any = None, metrics: Any = None,
        features: str | Sequence[str] | None = None,
        label: str | Sequence[str] | None = None, weight: str | None = None,
        class_weight: Mapping[Any, float] | None = None,
        validation: float | str | None = None, prediction: str | None = None, raw: str | None = None,
        batch_size: int | None = None,
        epochs: int | None = None, learning_rate: float | None = None, np: int | None = None, store: str | None = None,
        run_id: str | None = None, restarts: int | None = None, seed: int | None = None, shuffle: bool | None = None,
        shapes: Any = None,
        label_shapes: Any = None, loss_weights: Sequence[float] | None = None, accumulate: int | None = None,
        compression: str | None = None,
        steps: int | None = None, validation_steps: int | None = None, validation_batch_size: int | None = None,
        gpu: bool | None = None,
        verbose: bool | None = None, batch_bytes: int | None = None, transform: Callable[[Any], Any] | None = None,
        callbacks: Sequence[Any] = (), custom_objects: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        progress: Callable[[dict[str, Any]], Any] | None = None, minibatch: Callable[..., Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.loss, self.optimizer, self.metrics, self.row_transform = (
            model,
            loss,
            optimizer,
            metrics,
            transform,
        )
        self.callbacks, self.custom_objects, self.env, self.progress = (
            list(callbacks),
            dict(custom_objects or {}),
            dict(env or {}),
            progress,
        )
        self.keeps_optimizer = False  # of a torch module, for a front end that gives it back
        self.minibatch, self.storage_options = minibatch, None if storage_options is None else dict(storage_options)
        self._setDefault(
            weight=None, class_weight=None, validation=None, batch_size=32, epochs=1, learning_rate=None, np=None,
            store=None, run_id=None,
            restarts=0, seed=0, shuffle=True, shapes=None, label_shapes=None, loss_weights=None, accumulate=1,
            compression=None, steps=None,
            validation_steps=None, validation_batch_size=None, gpu=True, verbose=True,
        )  # fmt: skip
        given = dict(
            features=features, label=label, weight=weight,
            class_weight=None if class_weight is None else dict(class_weight),
            validation=validation, prediction=prediction, raw=raw, batch_size=batch_size, epochs=epochs,
            learning_rate=learning_rate, np=np,
            store=None if store is None else str(store), run_id=run_id, restarts=restarts, seed=seed, shuffle=shuffle,
            shapes=shapes,
            label_shapes=label_shapes, loss_weights=loss_weights, accumulate=accumulate, compression=compression,
            steps=steps,
            validation_steps=validation_steps, validation_batch_size=validation_batch_size, gpu=gpu, verbose=verbose,
            batch_bytes=batch_bytes,
        )  # fmt: skip
        self._set(**{k: v for k, v in given.items() if v is not None})

    def settings(self) -> dict[str, Any]:
        """The values of all Params."""
        return {p.name: self.getOrDefault(p) for p in self.params}

    def fit(self, dataset: Any, params: Any = None) -> Any:
        """The fitted model, of a Spark DataFrame; with a list of parameter maps one for each."""
        if not is_spark(dataset):
            raise ArgumentError(
                f"Estimator.fit: the table is a {type(dataset).__name__}; give a Spark DataFrame (spark.createDataFrame makes one)"
            )
        return super().fit(dataset, params) if params is not None else super().fit(dataset)

    def fitMultiple(self, dataset: Any, paramMaps: Any) -> Any:
        """One fitted model for each map, as CrossValidator asks for them: each a run of its own, for a run goes on from
        its rows' model."""
        own, call = self.getParam("run_id"), secrets.token_hex(4)
        run = self.getOrDefault(own)
        if run is not None:
            paramMaps = [{own: f"{run}-{call}-{i}", **m} for i, m in enumerate(paramMaps)]
        return super().fitMultiple(dataset, paramMaps)

    def _fit(self, dataset: Any) -> EstimatorModel:
        from . import _fit

        return _fit.fit(self, dataset)

    def write(self) -> Any:
        """For Spark's `save`."""
        from . import _net_stages

        return _net_stages.EstimatorWriter(self)

    @classmethod
    def read(cls) -> Any:
        from . import _net_stages

        return _net_stages.EstimatorReader()


class EstimatorModel(_Shared, _Saved, Model):
    """What an Estimator has fitted: a transformer for Spark, with the framework's own model in it."""

    def __init__(self, net: _net.Net | None = None, history: Sequence[dict[str, float]] = (), run_id: str = "") -> None:
        super().__init__()
        self._net, self.history, self.run_id = net, [dict(h) for h in history], run_id
        self.optimizer_state: bytes | None = None  # where the estimator keeps it; not saved

    @property
    def net(self) -> _net.Net:
        """What predicts, as `hora.spark.predict` takes it."""
        if self._net is None:
            raise ArgumentError("EstimatorModel: it is empty; it comes from Estimator.fit or EstimatorModel.load")
        return self._net

    @property
    def model(self) -> Any:
        """The framework's own model, trained."""
        return self.net.model

    def _transform(self, dataset: Any) -> Any:
        from . import _fit

        return _fit.transform(self, dataset)

    def export(self, folder: str) -> None:
        """Writes the framework's own model (`model.pt` or `model.keras`), `model.safetensors` and `history.json` into a
        folder."""
        from . import _net_stages

        _net_stages.export(self, folder)

    def write(self) -> Any:
        """For Spark's `save`."""
        from . import _net_stages

        return _net_stages.ModelWriter(self)

    @classmethod
    def read(cls) -> Any:
        from . import _net_stages

        return _net_stages.ModelReader()
