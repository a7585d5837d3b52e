"""A program for a TensorFlow that has tf.estimator: HorovodEstimator's part on one rank, with model_fns that are
written for it, one of them around a canned estimator."""

from __future__ import annotations

import os
import pickle
import sys

import here
import numpy as np
import tensorflow as tf
import test_horovod_estimator
from sparkdl.estimators.horovod_estimator import _job, tf_estimator
from sparkdl.estimators.horovod_estimator.estimator import SEAL

import hora
import hora.spark

v1 = tf.compat.v1


class Patch:
    """The one method of pytest's that is needed."""

    def setattr(self, where, name, value):
        """Sets it for good."""
        setattr(where, name, value)


def canned(features, labels, mode, params, config):
    """TensorFlow's own classifier of one hidden layer."""
    import horovod.tensorflow as hvd

    column = tf.feature_column.numeric_column("x", shape=(2,))
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.05))
    made = v1.estimator.DNNClassifier(hidden_units=[8], feature_columns=[column], optimizer=optimizer)
    spec = made.model_fn(features, labels, mode, config)
    kept = {k: v for k, v in (spec.predictions or {}).items() if k == "probabilities"}
    return spec._replace(predictions=kept or None)


def fit(model_fn, folder, steps):
    """What a fit of 400 rows gives, of which a fifth validates."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, SEAL), "w") as f:
        f.write("seal")
    x = np.random.default_rng(0).normal(size=(400, 2))
    columns = {"point": [[float(a), float(b)] for a, b in x], "label": [int(a + b > 0) for a, b in x]}
    job = _job.Job(model_fn, {"point": "x"}, "label", folder, steps, {"rate": 0.5}, 600.0, "seal")
    trainer = hora.spark.Estimator(job, features=["point"], label="label", batch_size=40, np=1, verbose=False)
    held = [i % 5 == 0 for i in range(400)]
    made = here.fit(Patch(), trainer, columns | {"held": held}, "held")
    saved = pickle.loads(made["model"])
    first = saved({"point": np.array(columns["point"])})[:, 0:2]
    return made["history"], saved.columns(), np.mean(first.argmax(axis=1) == np.array(columns["label"]))


def main(folder):
    """Fits, goes on, and fits the canned one."""
    assert tf_estimator.install() is tf.estimator and "tensorflow_estimator" in tf.estimator.__name__, tf.__version__
    history, columns, right = fit(test_horovod_estimator.model_fn, f"{folder}/own", 20)
    assert [h["step"] for h in history] == [20] and history[0]["val_accuracy"] > 0.9 and right > 0.9, (history, right)
    assert [c[0] for c in columns] == ["probabilities", "classes"]
    history, _, _ = fit(test_horovod_estimator.model_fn, f"{folder}/own", 30)
    assert history[-1]["step"] == 30
    history, columns, right = fit(canned, f"{folder}/canned", 60)
    assert history[-1]["val_accuracy"] > 0.9 and right > 0.9, (history, right)
    assert columns == [("probabilities", 2, "double")]
    print("fitted with", tf.__version__, tf.estimator.__name__)


if __name__ == "__main__":
    main(sys.argv[1])
