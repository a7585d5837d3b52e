"""The graphs that a model_fn makes: placeholders for rows, one graph a mode, and the SavedModel with what is asked of
it later."""

from __future__ import annotations

import inspect
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ._saved import Saved, values_of

__all__ = ["Evaluation", "Export", "Feeds", "Predicting", "call"]

v1: Any = tf.compat.v1
_KINDS = {"f": "double", "i": "bigint", "u": "bigint", "b": "boolean"}


class Feeds:
    """Where rows enter a graph."""

    def __init__(self, mapping: Mapping[str, str], label: str | None, rows: Mapping[str, np.ndarray]) -> None:
        self.mapping, self.label = dict(mapping), label
        self.kinds = {n: values_of(rows[n][:1]).dtype for n in (*mapping, *([label] if label else []))}
        self.widths = {n: rows[n].shape[1:] for n in self.kinds}

    def place(self, name: str) -> Any:
        """A placeholder in the current graph."""
        kind = tf.string if self.kinds[name].kind == "O" else tf.as_dtype(self.kinds[name])
        return v1.placeholder(
            kind, (None, *self.widths[name]), name=f"rows/{''.join(c if c.isalnum() else '_' for c in name)}"
        )

    def places(self, labels: bool) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Placeholders by column; features by their names; the labels."""
        columns = {c: self.place(c) for c in self.mapping}
        if labels and self.label and self.label not in columns:
            columns[self.label] = self.place(self.label)
        return (
            columns,
            {name: columns[c] for c, name in self.mapping.items()},
            columns[self.label] if labels and self.label else None,
        )

    def given(self, columns: Mapping[str, Any], rows: Mapping[str, np.ndarray], at: Any) -> dict[Any, np.ndarray]:
        """What is fed for some rows."""
        return {place: values_of(rows[c][at]) for c, place in columns.items()}


def call(job: Any, features: Any, labels: Any, mode: str, config: Any) -> Any:
    """What model_fn says for a mode; it gets what it has arguments for."""
    wanted = inspect.signature(job.model_fn).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    given: dict[str, Any] = {"mode": mode, "params": dict(job.params), "config": config}
    if labels is not None or "labels" in wanted:
        given["labels"] = labels
    spec = job.model_fn(features=features, **{k: v for k, v in given.items() if every or k in wanted})
    if not hasattr(spec, "train_op") or not hasattr(spec, "predictions"):
        raise ValueError(
            f"modelFn returned a {type(spec).__name__} for mode {mode!r}; return tf.estimator.EstimatorSpec(mode, …)"
        )
    return spec


def load(session: Any, values: Mapping[str, np.ndarray]) -> None:
    """Gives the graph's variables the values that the training's have."""
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer(), v1.tables_initializer()])
    _assign(session, values)


def _assign(session: Any, values: Mapping[str, np.ndarray]) -> None:
    own = [v.op.name for v in v1.global_variables() if v.op.name not in values]
    if own:
        raise ValueError(
            f"modelFn makes {own[0]}{f' and {len(own) - 1} more variables' if own[1:] else ''} for evaluation or prediction and not for training, so no "
            "training gives the value: make it in every mode, or with collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES] where each "
            "evaluation begins it anew"
        )
    for v in v1.global_variables():
        v.load(values[v.op.name], session)


def _hooked(hooks: Sequence[Any], values: Mapping[str, np.ndarray], config: Any = None) -> Any:
    """A session of the current graph with those values, whose runs the hooks see; `raw_session` has those that they do
    not see."""
    scaffold = v1.train.Scaffold(init_fn=lambda _, session: _assign(session, values))
    return v1.train.SingularMonitoredSession(list(hooks), scaffold, config=config)


class Evaluation:
    """The graph for validation. All ranks run it on their rows, and what their metrics have summed up is added.

    Where model_fn returns evaluation_hooks, each validation has a graph and a session of its own, as tf.estimator's
    have: hooks begin with a graph and end with a session.
    """

    def __init__(self, job: Any, feeds: Feeds, estimator: Any, config: Any) -> None:
        self.given = job, feeds, estimator, config
        self.has_run = False
        self._make()

    def _make(self) -> None:
        job, feeds, estimator, config = self.given
        self.feeds, self.graph = feeds, tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(config.tf_random_seed)
            v1.train.get_or_create_global_step()
            self.columns, features, labels = feeds.places(labels=True)
            spec = call(job, features, labels, estimator.ModeKeys.EVAL, config)
            if spec.loss is None:
                raise ValueError(
                    "modelFn returned no loss for mode 'eval'; give EstimatorSpec(mode, loss=…), or leave isValidationCol out"
                )
            self.loss, self.metrics = spec.loss, dict(spec.eval_metric_ops or {})
            for name, pair in self.metrics.items():
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise ValueError(
                        f"eval_metric_ops[{name!r}] is a {type(pair).__name__}; give a pair of value and update, as tf.compat.v1.metrics.accuracy does"
                    )
            self.totals = v1.get_collection(v1.GraphKeys.METRIC_VARIABLES)
            self.hooks = list(getattr(spec, "evaluation_hooks", None) or ())
            self.session = None if self.hooks else v1.Session(graph=self.graph)

    def run(self, t: Any, values: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The loss and the metrics of all ranks' rows."""
        if self.session is not None:
            with self.graph.as_default(), self.session.as_default():
                load(self.session, values)
                return self._found(t, self.session, self.session)
        if self.has_run:
            self._make()
        self.has_run = True
        with self.graph.as_default(), _hooked(self.hooks, values) as hooked:
            raw = hooked.raw_session()
            with raw.as_default():
                return self._found(t, hooked, raw)

    def _found(self, t: Any, session: Any, raw: Any) -> dict[str, float]:
        import hora

        loss, rows = 0.0, 0
        updates = [u for _, u in self.metrics.values()]
        for at in _pieces(0 if t.validation is None else len(next(iter(t.validation.values()))), t.batch_size):
            if session is not raw and session.should_stop():  # a hook has asked for it
                break
            fed = self.feeds.given(self.columns, t.validation, at)
            n = len(next(iter(fed.values())))
            try:
                one, _ = session.run([self.loss, updates], fed)
            except (
                tf.errors.OutOfRangeError,
                StopIteration,
            ):  # this ends one for tf.estimator; the others wait for this rank
                break
            loss, rows = loss + float(one) * n, rows + n
        for i, v in enumerate(self.totals):
            mine = np.asarray(raw.run(v))
            all_ = hora.allreduce(mine.astype(np.float64), hora.SUM, name=f"horovod_estimator.metric.{i}", named=True)
            v.load(np.asarray(all_).astype(mine.dtype), raw)
        both = hora.allreduce(
            np.array([loss, rows], dtype=np.float64), hora.SUM, name="horovod_estimator.loss", named=True
        )
        found = {name: float(raw.run(value)) for name, (value, _) in self.metrics.items()}
        return {"loss": float(both[0] / both[1]) if both[1] else float("nan"), **found}


def _pieces(rows: int, size: int) -> Iterator[slice]:
    for start in range(0, rows, size):
        yield slice(start, min(rows, start + size))


class Export:
    """The graph for prediction, and the SavedModel that is written of it."""

    def __init__(self, job: Any, feeds: Feeds, estimator: Any, config: Any) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.train.get_or_create_global_step()
            self.columns, features, _ = feeds.places(labels=False)
            self.named = features
            spec = call(job, features, None, estimator.ModeKeys.PREDICT, config)
            hooks = getattr(spec, "prediction_hooks", None)
            self.again = _pickled((job, feeds, config)) if hooks else None
            self.single = not isinstance(spec.predictions, Mapping)
            self.predictions = {"": spec.predictions} if self.single else dict(spec.predictions)
            for name, tensor in self.predictions.items():
                _predicted(name, tensor)
            self.outputs = dict(spec.export_outputs or {})

    def save(self, values: Mapping[str, np.ndarray], folder: str) -> Saved:
        """Writes it into a folder of its own in `export`, whole or not at all."""
        base = os.path.join(folder, "export")
        os.makedirs(base, exist_ok=True)
        beside = tempfile.mkdtemp(prefix="temp-", dir=base)
        path = os.path.join(beside, "model")
        with self.graph.as_default(), v1.Session(graph=self.graph) as session:
            load(session, values)
            signatures = {k: self._signature(_outputs(o)) for k, o in self.outputs.items()}
            key = v1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
            own = {n or "predictions": tf.convert_to_tensor(p) for n, p in self.predictions.items()}
            signatures.setdefault(
                key, signatures[next(iter(signatures))] if len(signatures) == 1 else self._signature(own)
            )
            builder = v1.saved_model.Builder(path)
            builder.add_meta_graph_and_variables(session, ["serve"], signatures, main_op=v1.tables_initializer())
            builder.save()
        number = int(time.time())
        while os.path.exists(os.path.join(base, str(number))):
            number += 1
        os.chmod(path, 0o755)
        os.rename(path, os.path.join(base, str(number)))
        shutil.rmtree(beside, ignore_errors=True)
        outputs = [(n, own[n or "predictions"].name, *_predicted(n, p)) for n, p in self.predictions.items()]
        inputs = {c: p.name for c, p in self.columns.items()}
        return Saved(os.path.join(base, str(number)), inputs, outputs, self.single, self.again)

    def _signature(self, outputs: Mapping[str, Any]) -> Any:
        return v1.saved_model.signature_def_utils.predict_signature_def(
            self.named, {k: tf.convert_to_tensor(v) for k, v in outputs.items()}
        )


def _pickled(given: Any) -> bytes:
    from hora.spark.frontend import pickled_with_code

    return bytes(pickled_with_code(given, "modelFn with what it is called with"))


class Predicting:
    """The graph for prediction as model_fn makes it once more, for its prediction_hooks: no SavedModel holds them."""

    def __init__(self, again: bytes, folder: str, config: Any, device: str | None) -> None:
        self.given = pickle.loads(again), config, device
        found = tf.train.load_checkpoint(os.path.join(folder, "variables", "variables"))
        self.values = {n: found.get_tensor(n) for n in found.get_variable_to_shape_map()}
        self._make()

    def _make(self) -> None:
        from . import tf_estimator

        (job, feeds, run_config), config, device = self.given
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(device):
            v1.train.get_or_create_global_step()
            _, features, _ = feeds.places(labels=False)
            spec = call(job, features, None, tf_estimator.install().ModeKeys.PREDICT, run_config)
            several = isinstance(spec.predictions, Mapping)
            self.predictions = list(spec.predictions.values()) if several else [spec.predictions]
            self.session = _hooked(spec.prediction_hooks or (), self.values, config)

    def run(self, names: Sequence[str], fed: Mapping[str, np.ndarray]) -> Any:
        """What a session with the SavedModel gives: its outputs are these, in their order, and what is fed has the
        same names. Rows that come after a hook has asked for the end have a session of their own."""
        if self.session.should_stop():
            self.session.close()
            self._make()
        with self.graph.as_default():
            return self.session.run(self.predictions, fed)


def _outputs(given: Any) -> dict[str, Any]:
    """The tensors of an export output, of TensorFlow's classes or of ours."""
    if hasattr(given, "outputs"):
        return dict(given.outputs)
    found = {k: getattr(given, k, None) for k in ("scores", "classes", "value")}
    return {("outputs" if k == "value" else k): v for k, v in found.items() if v is not None}


def _predicted(name: str, tensor: Any) -> tuple[int | None, str]:
    """How many values a prediction has, None for one number, and Spark's type of them."""
    what = f"predictions[{name!r}]" if name else "predictions"
    if tensor is None:
        raise ValueError("modelFn returned no predictions for mode 'infer'; give EstimatorSpec(mode, predictions=…)")
    tensor = tf.convert_to_tensor(tensor)
    kind = _KINDS.get(np.dtype(tensor.dtype.as_numpy_dtype).kind)
    if kind is None:
        raise ValueError(
            f"{what} of modelFn holds {tensor.dtype.name}, of which no column is made; leave it to export_outputs, or give numbers"
        )
    if tensor.shape.rank is None or tensor.shape.rank == 0 or None in tensor.shape.as_list()[1:]:
        raise ValueError(f"{what} of modelFn has the shape {tensor.shape}; give one row of a fixed size for each row")
    return (None if tensor.shape.rank == 1 else int(np.prod(tensor.shape.as_list()[1:]))), kind
