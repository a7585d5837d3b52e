"""A rank's part in HorovodEstimator.fit: steps of a session of TensorFlow 1, commits that all ranks agree on, and the
model at last."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

import hora

from . import tf_estimator
from ._graphs import Evaluation, Export, Feeds, call
from .estimator import SEAL

__all__ = ["train"]

HISTORY = "history.json"  # the file of modelDir that has the loss and the metrics of a fit's checkpoints

v1: Any = tf.compat.v1
_STILL = 1000  # steps after which a global step that has not moved never will


def train(job: Any, t: Any) -> Any:
    """The training function: on rank 0 the SavedModel."""
    hvd.init()
    _same_folder(job)
    _place()
    estimator = tf_estimator.install()
    chief = hora.rank() == 0
    config = estimator.RunConfig(model_dir=job.folder, tf_random_seed=1, save_checkpoints_secs=job.seconds)
    feeds = Feeds(job.mapping, job.label, t.rows)
    export = Export(job, feeds, estimator, config)  # before the training: what is wrong with it is said now
    evaluation = Evaluation(job, feeds, estimator, config) if t.plan.validates else None
    values = _Training(job, t, feeds, estimator, config, evaluation).run()
    return export.save(values, job.folder) if chief else None


def _same_folder(job: Any) -> None:
    """Raises on rank 0 where modelDir is not the driver's, or no longer this fit's."""
    if hora.rank() != 0:
        return
    try:
        with open(os.path.join(job.folder, SEAL), encoding="ascii") as f:
            said = f.read()
    except OSError:
        import platform

        raise ValueError(
            f"modelDir={job.folder!r} on {platform.node()}, where rank 0 runs, is not the driver's folder of that name; give a folder that all "
            "machines share"
        ) from None
    if said != job.seal:
        raise ValueError(f"another fit has begun in modelDir={job.folder!r}; give each fit a folder of its own")


def _place() -> None:
    found = tf.config.list_physical_devices("GPU")
    if found:
        tf.config.set_visible_devices([found[hora.local_rank() % len(found)]], "GPU")


class _Training:
    """The graph for training and its session."""

    def __init__(
        self, job: Any, t: Any, feeds: Feeds, estimator: Any, config: Any, evaluation: Evaluation | None
    ) -> None:
        self.job, self.t, self.feeds, self.config, self.evaluation = job, t, feeds, config, evaluation
        self.chief = hora.rank() == 0
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(config.tf_random_seed)
            self.step = v1.train.get_or_create_global_step()
            self.columns, features, labels = feeds.places(labels=True)
            self.spec = call(job, features, labels, estimator.ModeKeys.TRAIN, config)
            if self.spec.loss is None or self.spec.train_op is None:
                raise ValueError(
                    "modelFn returned no loss or no train_op for mode 'train'; give EstimatorSpec(mode, loss=…, train_op=…)"
                )
            v1.summary.scalar("loss", self.spec.loss)
            self.weights = v1.trainable_variables()
            self.saver: Any = None if self.spec.scaffold is None else self.spec.scaffold.saver
            self.saver = self.saver or v1.train.Saver(max_to_keep=config.keep_checkpoint_max, save_relative_paths=True)
            self.scaffold = self.spec.scaffold or v1.train.Scaffold(saver=self.saver)
        self.writer: Any = None
        self.begun: np.ndarray | None = None  # digests of the weights before the first step

    def run(self) -> dict[str, np.ndarray]:
        """The steps; what the variables hold at last, on rank 0."""
        with self.graph.as_default():
            hooks = [
                v1.train.NanTensorHook(self.spec.loss),
                hvd.BroadcastGlobalVariablesHook(0),
                *(self.spec.training_hooks or ()),
            ]
            if self.chief:
                hooks += [
                    v1.train.SummarySaverHook(
                        self.config.save_summary_steps, output_dir=self.job.folder, scaffold=self.scaffold
                    ),
                    v1.train.StepCounterHook(self.config.log_step_count_steps, output_dir=self.job.folder),
                    *(self.spec.training_chief_hooks or ()),
                ]
            folder = self.job.folder if self.chief else None
            try:
                session = v1.train.SingularMonitoredSession(
                    hooks, self.scaffold, config=self.config.session_config, checkpoint_dir=folder
                )
            except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as e:
                raise ValueError(
                    f"modelDir={self.job.folder!r} holds a checkpoint of another model ({str(e).splitlines()[0][:200]}); give another folder, or "
                    "the model that it was begun with"
                ) from e
            with session:
                return self._steps(session, session.raw_session())

    def _steps(self, session: Any, raw: Any) -> dict[str, np.ndarray]:
        begin = done = int(raw.run(self.step))
        most, loss, called = self.job.max_steps, None, 0
        if done >= most and self.chief:
            print(
                f"modelDir={self.job.folder} is at step {done} already; give maxSteps={done + 1} or more to train on",
                flush=True,
            )
        self._restored(raw, done)
        self.begun = self._digests(raw)
        told = saved = time.monotonic()
        committed = -1 if done == 0 else done
        while done < most:
            epoch, at = divmod(done, self.t.steps)
            if at == 0 or called == 0:
                order = self.t.orders(epoch)
            loss, _ = session.run(
                [self.spec.loss, self.spec.train_op], self.feeds.given(self.columns, self.t.rows, order[at])
            )
            done, called = int(raw.run(self.step)), called + 1
            now = time.monotonic()
            if self.chief and now - told > 0.5:
                hora.report(done, loss=float(loss))
                told = now
            stop, due = self._agreed(session.should_stop(), self.chief and now - saved >= self.job.seconds)
            if called == 1:
                self._compare(raw)
            if due:
                self._commit(raw, done, float(loss))
                committed, saved = done, time.monotonic()
            if stop:
                break
            if called == _STILL and done == begin:
                raise ValueError(
                    f"the global step is {done} after {_STILL} calls of train_op; give global_step=tf.compat.v1.train.get_global_step() to the "
                    "optimizer's minimize or apply_gradients"
                )
        if committed != done:
            self._commit(raw, done, float("nan") if loss is None else float(loss))
        return self._values(raw)

    def _agreed(self, *mine: bool) -> tuple[bool, ...]:
        """What any rank says."""
        said = hora.allreduce(np.array(mine, dtype=np.int32), hora.MAX, name="horovod_estimator.step", named=True)
        return tuple(bool(v) for v in said)

    def _values(self, raw: Any) -> dict[str, np.ndarray]:
        every = self.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        return {v.op.name: np.asarray(a) for v, a in zip(every, raw.run(every), strict=True)} if every else {}

    def _digests(self, raw: Any) -> np.ndarray:
        """A number for each weight's bytes."""
        values = raw.run(self.weights) if self.weights else []
        return np.array(
            [
                int.from_bytes(hashlib.blake2b(np.ascontiguousarray(v).tobytes(), digest_size=7).digest(), "big")
                for v in values
            ]
        )

    def _compare(self, raw: Any) -> None:
        """Raises where what has moved has moved to another place on each rank; single weights may be a rank's own."""
        if hora.size() == 1 or not self.weights:
            return
        now = self._digests(raw)
        least = np.asarray(hora.allreduce(now, hora.MIN, name="horovod_estimator.least", named=True))
        most = np.asarray(hora.allreduce(now, hora.MAX, name="horovod_estimator.most", named=True))
        moved = (now != self.begun) | (least != most)
        if moved.any() and (least != most)[moved].all():
            raise ValueError(
                f"the ranks' weights differ after a step ({self.weights[int(np.argmax(moved))].op.name} and others): wrap the optimizer in "
                "modelFn, as in optimizer = hvd.DistributedOptimizer(optimizer) of horovod.tensorflow"
            )

    def _commit(self, raw: Any, step: int, loss: float) -> None:
        """A checkpoint by rank 0, and a validation by all of them of just what it holds."""
        self._compare(raw)
        said: dict[str, float] = {"step": step, "loss": loss}
        self.t.history.append(said)
        if self.chief:
            _same_folder(self.job)
            self._keep_history()  # first: what it says of more steps than the checkpoint has is not read again
            self.saver.save(raw, os.path.join(self.job.folder, "model.ckpt"), global_step=step)
        self._validate(raw, said)
        if self.chief:
            numbers = ", ".join(f"{k} {v:.4g}" for k, v in said.items() if k != "step" and v == v)
            print(f"step {step} of {self.job.max_steps}: {numbers}", flush=True)

    def _validate(self, raw: Any, said: dict[str, float]) -> None:
        if self.evaluation is None:
            return
        values: Mapping[str, np.ndarray] = self._values(raw) if self.chief else {}
        values = hora.broadcast_object(values, 0, name="horovod_estimator.values", named=True)
        found = self.evaluation.run(self.t, values)
        said |= {f"val_{k}": v for k, v in found.items()}
        if self.chief:
            self._keep_history()
            self._events(found, int(said["step"]))

    def _keep_history(self) -> None:
        path = os.path.join(self.job.folder, HISTORY)
        with open(path + "~", "w", encoding="utf-8") as f:
            json.dump({"fit": self.job.seal, "history": self.t.history}, f)
        os.replace(path + "~", path)

    def _restored(self, raw: Any, done: int) -> None:
        """Goes on with what this fit has committed before it was started anew."""
        if self.chief:
            try:
                with open(os.path.join(self.job.folder, HISTORY), encoding="utf-8") as f:
                    kept = json.load(f)
            except FileNotFoundError:
                kept = {"fit": "", "history": []}
            if kept["fit"] == self.job.seal:
                self.t.history[:] = [h for h in kept["history"] if h["step"] <= done]
        last = self.t.history[-1] if self.t.history else {}
        (unfinished,) = self._agreed(last.get("step") == done and not any(k.startswith("val_") for k in last))
        if unfinished and self.evaluation is not None:  # it ended before that checkpoint's validation had
            self._validate(raw, last or {"step": done})

    def _events(self, found: Mapping[str, float], step: int) -> None:
        if self.writer is None:
            with tf.Graph().as_default():
                self.writer = v1.summary.FileWriter(os.path.join(self.job.folder, "eval"))
        summary = v1.Summary(value=[v1.Summary.Value(tag=k, simple_value=v) for k, v in found.items()])
        self.writer.add_summary(summary, step)
        self.writer.flush()
