"""The Keras kind of Estimator on a rank: Keras' own fit, with an optimizer that averages over all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

import hora

from ..errors import ArgumentError
from . import _net, _safetensors
from ._losses import WHO
from ._training import Training


def fit(t: Training) -> dict[str, Any] | None:
    """Trains; on rank 0 the weights and the files of the run."""
    import hora.keras as distributed

    given = t.given
    _place(t.plan.gpu)
    keras.utils.set_random_seed(t.seed)
    custom = pickle.loads(given["custom"]) if given["custom"] else None
    model = _compiled(given, custom, t.learning_rate, distributed, t.plan)
    if len(model.outputs) < max(1, len(t.plan.labels)):
        raise ArgumentError(
            f"{WHO}: the model gives {len(model.outputs)} outputs for {len(t.plan.labels)} labels; let it give one for each"
        )
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    if t.state is not None:
        _load(model, _net.arrays(t.state))
    if t.first < t.epochs:
        callbacks = [
            _Begin(t), distributed.callbacks.BroadcastGlobalVariables(), distributed.callbacks.MetricAverage(), _Validation(t),
            *(pickle.loads(given["callbacks"]) if given["callbacks"] else []), _End(t),
        ]  # fmt: skip
        model.fit(
            _forever(t, _weighs(t, model)), steps_per_epoch=t.steps, epochs=t.epochs, initial_epoch=t.first, callbacks=callbacks, verbose=0,
        )  # fmt: skip
    if hora.rank() != 0:
        return None
    outputs = _net.widths(model.predict_on_batch(t.inputs({k: v[:2] for k, v in t.rows.items()})))
    files = {"model.safetensors": _safetensors.dumps(_net.keras_weights(model))}
    return {"weights": _net.npz(model.get_weights()), "outputs": outputs, "files": files}


def _place(gpu: bool) -> None:
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        found = tf.config.list_physical_devices("GPU")
        if found:
            tf.config.set_visible_devices([found[hora.local_rank() % len(found)]] if gpu else [], "GPU")


def _compiled(given: dict[str, Any], custom: Any, rate: float | None, distributed: Any, plan: Any) -> Any:
    """The model with an optimizer that is distributed. What the user compiled it with stays, but for what he has said besides."""
    own = given["loss"] is None  # then it was compiled by the user
    model = _net.keras_model(given["model"], custom, compile=own)
    optimizer = keras.optimizers.Adam()
    if given["optimizer"] is not None:
        optimizer = keras.optimizers.get(given["optimizer"])
    elif own:
        optimizer = model.optimizer  # with what it has learned
    if rate is not None:
        optimizer.learning_rate = rate
    options = {} if plan.compression in (None, "none") else {"compression": plan.compression}
    if plan.passes > 1:
        config = optimizer.get_config() | {"gradient_accumulation_steps": plan.passes}
        optimizer = type(optimizer).from_config(config)
    optimizer = distributed.DistributedOptimizer(optimizer, **options)
    said = {k: pickle.loads(given[k]) for k in ("loss", "metrics") if given[k] is not None}
    if given["loss_weights"] is not None:
        said["loss_weights"] = given["loss_weights"]
    if own and not said:
        model.optimizer = optimizer
        return model
    with keras.utils.custom_object_scope(custom or {}):
        kept = keras.saving.deserialize_keras_object(given["compiled"])
    if own:
        kept["loss"] = model.loss
    model.compile(optimizer=optimizer, **{"jit_compile": keras.backend.backend() == "jax"} | kept | said)
    return model


def _weighs(t: Training, model: Any) -> bool:
    """Whether rows get a weight that makes the ranks' average that of all rows: where ranks have not equally many in a step.

    Not where it would not do that: with a loss that is a sum, or is divided by the weights, and in a step of the user's own, which
    need not know of weights.
    """
    if len(set(t.counts.tolist())) == 1:
        return False
    steps = next(c for c in type(model).__mro__ if "train_step" in vars(c))
    given = model.loss
    losses = given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]
    means = all(getattr(loss, "reduction", "mean") in ("mean", "sum_over_batch_size", "auto") for loss in losses)
    return means and steps.__module__.partition(".")[0] == "keras"


def _forever(t: Training, weighs: bool) -> Iterator[Any]:
    """The steps of all epochs, one after the other."""
    epoch = t.first
    while True:
        for step, (x, y, w) in enumerate(t.batches(epoch)):
            if weighs:
                n = len(x[0] if isinstance(x, list) else x)
                w = (np.ones(n, np.float32) if w is None else w) * np.float32(t.share(step))
            x = tuple(x) if isinstance(x, list) else x
            y = tuple(y) if isinstance(y, list) else y
            yield (x, y) if w is None else (x, y, w)
        epoch += 1


class _Begin(keras.callbacks.Callback):
    """The begin of an epoch: what it draws, such as a Dropout's masks, does not depend on where the run began."""

    def __init__(self, t: Training) -> None:
        super().__init__()
        self.t = t

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        seed, backend = self.t.draw_anew(epoch), keras.backend.backend()
        if backend == "tensorflow":
            import tensorflow as tf

            tf.random.set_seed(seed)
        elif backend == "torch":
            import torch

            torch.manual_seed(seed)
        for i, v in enumerate(v for v in self.model.variables if v.name == "seed_generator_state"):
            v.assign((np.random.SeedSequence([seed, i]).generate_state(2) & 0x7FFFFFFF).astype("uint32"))


class _Validation(keras.callbacks.Callback):
    """Evaluates this rank's rows for validation and averages over all ranks by rows; a rank may have none."""

    def __init__(self, t: Training) -> None:
        super().__init__()
        self.t = t

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        t = self.t
        if not t.plan.validates or logs is None:
            return
        sums: dict[str, float] = {k: 0.0 for k in sorted(logs) if not k.startswith("val_") and k != "learning_rate"}
        rows = 0
        for x, y, w in t.validation_batches():
            n = len(x[0] if isinstance(x, list) else x)
            said = self.model.evaluate(x, y, sample_weight=w, batch_size=n, verbose=0, return_dict=True)
            for k in sums:
                sums[k] += float(said.get(k, 0.0)) * n
            rows += n
        logs.update({f"val_{k}": v for k, v in t.mean(sums, rows).items()})


class _End(keras.callbacks.Callback):
    """The end of an epoch, after all other callbacks."""

    def __init__(self, t: Training) -> None:
        super().__init__()
        self.t = t

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        scalars = {k: float(v) for k, v in (logs or {}).items() if np.ndim(v) == 0}
        self.t.end_epoch(epoch, scalars, lambda: _state(self.model))


def _state(model: Any) -> bytes:
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()
    return _net.npz([*model.get_weights(), *[keras.ops.convert_to_numpy(v) for v in model.optimizer.variables]])


def _load(model: Any, found: list[np.ndarray]) -> None:
    n = len(model.get_weights())
    model.set_weights(found[:n])
    for v, a in zip(model.optimizer.variables, found[n:], strict=True):
        v.assign(a)
