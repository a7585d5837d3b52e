"""hora.spark.Estimator with Keras: what a model was compiled with, parts of unequal size, and runs with a Dropout that
go on."""

from __future__ import annotations

import json
import pickle
import sys
import types

import beside
import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster, _keras_given, _net


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")


def test_what_a_model_was_compiled_with_stays():
    import keras

    import hora.keras
    from hora.spark import _fit_keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(
        keras.optimizers.SGD(0.25), "mse", metrics=["mae"], weighted_metrics=["mse"], steps_per_execution=3,
        run_eagerly=True,
        loss_weights=[2.0],
    )  # fmt: skip

    def compiled(loss=None, metrics=None, loss_weights=None):
        optimizer = None if loss is None else keras.optimizers.serialize(model.optimizer)
        given = {
            "model": _net.keras_bytes(model), "compiled": _keras_given.compiled(model), "optimizer": optimizer,
            "loss_weights": loss_weights,
            "loss": None if loss is None else pickle.dumps(loss),
            "metrics": None if metrics is None else pickle.dumps(metrics),
        }  # fmt: skip
        made = _fit_keras._compiled(given, None, None, hora.keras, types.SimpleNamespace(compression=None, passes=1))
        x, y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
        names = set(made.evaluate(x, y, verbose=0, return_dict=True))
        config = made.get_compile_config()
        assert float(made.optimizer.learning_rate) == 0.25
        return names, made.steps_per_execution, made.run_eagerly, config["loss_weights"], config["loss"]

    assert compiled() == ({"loss", "mae", "mse"}, 3, True, [2.0], "mse")
    assert compiled(metrics=["mape"]) == ({"loss", "mape", "mse"}, 3, True, [2.0], "mse")
    assert compiled(loss="mae") == ({"loss", "mae", "mse"}, 3, True, [2.0], "mae")
    assert compiled(loss="mae", loss_weights=[0.5]) == ({"loss", "mae", "mse"}, 3, True, [0.5], "mae")
    assert compiled(loss_weights=[0.5])[3] == [0.5]


@longer
def test_every_row_weighs_the_same_though_ranks_have_unequally_many(spark):
    """One step of five rows on two ranks is that of all five in one."""
    import keras

    _cluster.wait_for_slots(spark, 4, 90, print)
    rows = [(float(i), float(i * i)) for i in range(1, 6)]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
    e = hora.spark.Estimator(model, features=["x"], label="y", np=2, epochs=1, batch_size=3, verbose=False)
    fitted = e.fit(spark.createDataFrame(rows, "x double, y double"))
    x, y = np.array(rows).T
    assert fitted.model.get_weights()[0].item() == pytest.approx(0.001 * np.mean(2 * x * y), rel=1e-5)
    assert fitted.history[0]["loss"] == pytest.approx(np.mean(y * y), rel=1e-5)


@longer
def test_a_run_with_a_dropout_goes_on_as_if_it_had_not_ended(spark, tmp_path):
    import keras

    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(121, 2))
    table = spark.createDataFrame(
        [(float(a), float(b), float(2 * a - b)) for a, b in x], "a double, b double, y double"
    )
    keras.utils.set_random_seed(0)
    layers = keras.layers
    frozen = layers.Dense(2, trainable=False)
    model = keras.Sequential(
        [
            keras.Input((2,)), frozen, layers.BatchNormalization(momentum=0.5), layers.Dense(8, "relu"),
            layers.Dropout(0.5), layers.Dense(1), layers.GaussianNoise(0.1),
        ]
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])

    def fitted(run, epochs):
        given = {
            "features": ["a", "b"],
            "label": "y",
            "np": 2,
            "batch_size": 20,
            "verbose": False,
            "validation": 0.2,
            "store": str(tmp_path),
        }
        return hora.spark.Estimator(model, **given, run_id=run, epochs=epochs).fit(table)

    whole = fitted("whole", 3)
    fitted("parts", 1)
    parts = fitted("parts", 3)
    assert parts.history == whole.history and len({h["loss"] for h in whole.history}) == 3
    assert all(np.array_equal(a, b) for a, b in zip(parts.model.get_weights(), whole.model.get_weights(), strict=True))
    kernel = frozen.get_weights()[0]
    assert any(np.array_equal(kernel, a) for a in whole.model.get_weights())


@longer
@pytest.mark.parametrize("np_", [1, 2])
def test_a_metric_of_validation_is_that_of_all_its_rows(spark, np_):
    """Of rare positives, of which most batches have none or one."""
    import keras

    _cluster.wait_for_slots(spark, 4, 90, print)
    chance = np.random.default_rng(0)
    truth = (chance.random(1600) < 0.03).astype(float)
    a = truth + chance.normal(size=1600) * 0.7
    table = spark.createDataFrame(
        [(float(x), float(t), True) for x, t in zip(a, truth, strict=True)], "a double, y double, held boolean"
    )
    table = table.union(spark.createDataFrame([(0.5, 1.0, False), (-0.5, 0.0, False)] * 4, table.schema))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, "sigmoid", kernel_initializer="ones")])

    class Share(keras.metrics.Metric):
        """A metric of the user's own, which is no sum: the largest share of positives in a batch."""

        def __init__(self, **given):
            super().__init__(**given)
            self.most = self.add_variable((), "zeros", name="most")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.most.assign(keras.ops.maximum(self.most, keras.ops.max(keras.ops.cast(y_true, "float32"))))

        def result(self):
            return self.most.value

    metrics = [keras.metrics.AUC(name="auc"), keras.metrics.Recall(0.7, name="recall"), Share(name="share")]
    model.compile(keras.optimizers.SGD(1e-3), "binary_crossentropy", metrics=metrics)
    given = {"features": ["a"], "label": "y", "np": np_, "epochs": 1, "batch_size": 4, "validation": "held"}
    e = hora.spark.Estimator(model, **given, validation_batch_size=32, custom_objects={"Share": Share}, verbose=False)
    said = e.fit(table)
    fitted = said.model
    fitted.compile("sgd", "binary_crossentropy", metrics=metrics)
    right = fitted.evaluate(a[:, None].astype(np.float32), truth[:, None], verbose=0, return_dict=True)
    print({k: (said.history[0][f"val_{k}"], v) for k, v in right.items()})
    for name, value in right.items():
        assert said.history[0][f"val_{name}"] == pytest.approx(value, abs=1e-5), name


CLASSES = {"x": [1.0, 2.0, 3.0, 4.0], "c": [0.0, 1.0, 0.0, 1.0]}
OF_CLASSES = {0: 3.0, 1: 1.0}


@longer
def test_classes_weigh_as_they_are_told(monkeypatch):
    """The loss and the first step, of rows and of what validates; weights of rows go with those of classes."""
    import here
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, c = (np.array(v) for v in CLASSES.values())

    def fitted(columns, weights, **more):
        given = {"features": ["x"], "label": "c", "np": 1, "epochs": 1, "batch_size": 4, "verbose": False}
        e = hora.spark.Estimator(model, **given, **more)
        made = here.fit(monkeypatch, e, columns, more.get("validation"))
        weights = weights / weights.sum()
        assert made["history"][0]["loss"] == pytest.approx(np.sum(weights * c * c), rel=1e-5)
        (w,) = _net.arrays(made["weights"])
        assert w.item() == pytest.approx(0.1 * np.sum(weights * 2 * x * c), rel=1e-5)
        return made["history"][0], w.item()

    of_rows = np.array([3.0, 1.0, 3.0, 1.0])
    fitted(CLASSES, np.ones(4))
    fitted(CLASSES, of_rows, class_weight=OF_CLASSES)
    fitted(CLASSES | {"w": [1.0, 5.0, 2.0, 1.0]}, of_rows * [1, 5, 2, 1], class_weight=OF_CLASSES, weight="w")
    twice = {n: v * 2 for n, v in CLASSES.items()} | {"held": [False] * 4 + [True] * 4}
    said, w = fitted(twice, of_rows, class_weight=OF_CLASSES, validation="held")
    assert said["val_loss"] == pytest.approx(np.sum(of_rows / of_rows.sum() * (w * x - c) ** 2), rel=1e-4)


def test_a_function_gets_the_weights_of_classes(monkeypatch, tmp_path):
    """In its steps, where only their ratios matter, and in those of validation."""
    import here

    def train(t):
        with open(tmp_path / "seen", "w") as f:
            for batches in (t.batches(0), t.validation_batches()):
                for _, y, w in batches:
                    json.dump(sorted(zip(y.tolist(), w.tolist(), strict=True)), f)
                    f.write("\n")
        t.end_epoch(0, {})
        return lambda columns: columns["x"]

    given = {"features": ["x"], "label": "c", "np": 1, "batch_size": 8, "verbose": False}
    columns = {"x": [1.0] * 6, "c": [0.0, 1.0, 2.0] * 2, "held": [False] * 3 + [True] * 3}
    e = hora.spark.Estimator(train, **given, class_weight={0: 3.0, 1: 1.0}, validation="held")
    here.fit(monkeypatch, e, columns, "held")
    seen = [dict(json.loads(line)) for line in (tmp_path / "seen").read_text().splitlines()]
    wanted = pytest.approx({0.0: 3 * 3 / 5, 1.0: 3 / 5, 2.0: 3 / 5})  # a class that nobody speaks of weighs 1
    assert seen == [wanted, wanted]
