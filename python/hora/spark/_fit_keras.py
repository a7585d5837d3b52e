"""The Keras kind of Estimator on a rank: Keras' own fit, with an optimizer that averages over all ranks."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import hora

from ..errors import ArgumentError
from ..keras import which
from ..keras.which import keras
from . import _net, _safetensors
from ._kinds import KERAS
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
    if not which.built(model.optimizer):
        which.build(model.optimizer, model.trainable_variables)
    if t.state is not None:
        _load(model, _net.arrays(t.state))
    if t.first < t.epochs:
        callbacks = [
            _Begin(t), distributed.callbacks.BroadcastGlobalVariables(), distributed.callbacks.MetricAverage(),
            _Agree(), _Validation(t),
            *(pickle.loads(given["callbacks"]) if given["callbacks"] else []), _End(t),
        ]  # fmt: skip
        model.fit(
            _forever(t, _weighs(t, model)), steps_per_epoch=t.steps, epochs=t.epochs, initial_epoch=t.first,
            callbacks=callbacks, verbose=0,
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
    """The model with an optimizer that is distributed. What the user compiled it with stays, but for what he has said
    besides."""
    own = given["loss"] is None  # then it was compiled by the user
    model = _net.keras_model(given["model"], custom, compile=own, package=keras.__name__)
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
    """Whether rows get a weight that makes the ranks' average that of all rows: where ranks have not equally many in a
    step.

    Not where it would not do that: with a loss that is a sum, or is divided by the weights, and in a step of the user's
    own, which need not know of weights.
    """
    if len(set(t.counts.tolist())) == 1:
        return False
    steps = next(c for c in type(model).__mro__ if "train_step" in vars(c))
    given = model.loss
    losses = given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]
    means = all(getattr(loss, "reduction", "mean") in ("mean", "sum_over_batch_size", "auto") for loss in losses)
    return means and steps.__module__.partition(".")[0] in KERAS


def _forever(t: Training, weighs: bool) -> Iterator[Any]:
    """The steps of all epochs, one after the other."""
    epoch = t.first
    while True:
        for step, (x, y, w) in enumerate(t.batches(epoch)):
            if weighs:
                n = _rows(x)
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


class _Agree(keras.callbacks.Callback):
    """Averages what the ranks have each gathered of their own rows, such as a BatchNorm's means: a run that goes on
    deals rows anew. What has moved on no rank, as in a frozen layer, stays as it is to the bit."""

    def on_train_begin(self, logs: Any = None) -> None:
        _sync(self.model)
        self.before = {id(v): _digest(v) for v in self.model.weights if _is_float(v)}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        weights = self._gathered()
        if hora.size() == 1 or not weights:
            return
        moved = np.array([_digest(v) != self.before.get(id(v)) for v in weights], dtype=np.int32)
        moved = np.asarray(hora.allreduce(moved, hora.MAX, name="hora.spark.gathered", named=True))
        for i in np.flatnonzero(moved):
            own = which.array(weights[i])
            own = own if own.dtype == np.float64 else own.astype(np.float32)
            weights[i].assign(hora.allreduce(own, hora.AVERAGE, name=f"hora.spark.gathered {i}", named=True))
            self.before[id(weights[i])] = _digest(weights[i])

    def _gathered(self) -> list[Any]:
        """Not the states of what draws at random, which are whole numbers."""
        _sync(self.model)
        return [v for v in self.model.non_trainable_weights if _is_float(v)]


def _digest(variable: Any) -> bytes:
    return hashlib.blake2b(which.array(variable).tobytes(), digest_size=16).digest()


def _is_float(variable: Any) -> bool:
    return "float" in str(variable.dtype)


class _Validation(keras.callbacks.Callback):
    """Evaluates this rank's rows for validation, and has the metrics of all ranks' rows together; a rank may have
    none."""

    def __init__(self, t: Training) -> None:
        super().__init__()
        self.t = t

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        t = self.t
        if not t.plan.validates or logs is None:
            return
        _sync(self.model)
        names = [
            k
            for k in sorted(logs)
            if not k.startswith("val_") and k not in ("learning_rate", "lr") and np.ndim(logs[k]) == 0
        ]
        parts, batch = t.validation_parts()
        rows = sum(part.stop - part.start for part in parts)
        said: dict[str, Any] = {}
        if rows:
            said = self._evaluated(parts, batch)
        else:
            self.model.reset_metrics()
        _add_up(self.model)
        found = self.model.get_metrics_result()
        if rows and set(said) != set(found):  # a test_step of the model's own, which says what it has of a batch
            sums = dict.fromkeys(names, 0.0)
            for part in parts:
                said = self._evaluated([part], batch)
                for k in names:
                    sums[k] += float(said.get(k, 0.0)) * (part.stop - part.start)
        else:  # what has been added up is the same on all ranks; other metrics are averaged by rows
            sums = {k: float(found[k]) * rows if rows and k in found else 0.0 for k in names}
        logs.update({f"val_{k}": v for k, v in t.mean(sums, rows).items()})

    def _evaluated(self, parts: list[slice], batch: Callable[[slice], Any]) -> dict[str, Any]:
        """What Keras says of some batches together."""
        said: dict[str, Any] = self.model.evaluate(_Batches(parts, batch), verbose=0, return_dict=True)
        return said


class _Batches(keras.utils.Sequence if which.LEGACY else keras.utils.PyDataset):  # type: ignore[misc]
    """Some batches, of which Keras knows how many they are; each is cut out of the rows when its turn comes."""

    def __init__(self, parts: list[slice], batch: Callable[[slice], Any]) -> None:
        super().__init__()
        self.parts, self.batch = parts, batch

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, i: int) -> Any:
        x, y, w = self.batch(self.parts[i])
        x, y = (tuple(v) if isinstance(v, list) else v for v in (x, y))
        return (x, y) if w is None else (x, y, w)


def _rows(x: Any) -> int:
    return len(x[0] if isinstance(x, (list, tuple)) else x)


def _add_up(model: Any) -> None:
    """Adds up over the ranks what a model's metrics have counted, of those that are sums: all of Keras' own, but not a
    metric with an update of the user's."""
    counted = [
        v
        for metric in model.metrics
        for each in getattr(metric, "metrics", [metric])
        if next(c for c in type(each).__mro__ if "update_state" in vars(c)).__module__.partition(".")[0] in KERAS
        for v in each.variables
    ]
    if hora.size() == 1 or not counted:
        return
    own = [np.asarray(which.array(v), dtype=np.float64) for v in counted]
    flat = np.concatenate([a.ravel() for a in own])
    flat = np.asarray(hora.allreduce(flat, hora.SUM, name="hora.spark.counted metrics", named=True))
    for v, a, b in zip(counted, own, np.split(flat, np.cumsum([a.size for a in own])[:-1]), strict=True):
        v.assign(b.reshape(a.shape))


class _End(keras.callbacks.Callback):
    """The end of an epoch, after all other callbacks."""

    def __init__(self, t: Training) -> None:
        super().__init__()
        self.t = t

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        scalars = {k: float(v) for k, v in (logs or {}).items() if np.ndim(v) == 0}
        self.t.end_epoch(epoch, scalars, lambda: _state(self.model))


def _sync(model: Any) -> None:
    """On JAX a model's variables are the step's while fit runs."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def _state(model: Any) -> bytes:
    _sync(model)
    return _net.npz([*model.get_weights(), *[which.array(v) for v in which.variables(model.optimizer)]])


def _load(model: Any, found: list[np.ndarray]) -> None:
    n = len(model.get_weights())
    model.set_weights(found[:n])
    for v, a in zip(which.variables(model.optimizer), found[n:], strict=True):
        v.assign(a)
