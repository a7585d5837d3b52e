"""hora.spark.Estimator and horovod.spark's KerasEstimator with models of Keras 2, those of the package tf_keras."""

from __future__ import annotations

import sys

import beside
import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("keras-2", "tensorflow", "jax"))])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def table(spark):
    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(121, 2))
    rows = [(float(a), float(b), float(2 * a - b), i % 5 == 0) for i, (a, b) in enumerate(x)]
    return spark.createDataFrame(rows, "a double, b double, y double, held boolean")


def twice(x):
    """An activation of the user's own."""
    return 2.0 * x


def small(keras, optimizer="adam"):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([keras.Input((2,)), layers.Dense(8, "relu"), layers.Dense(1, activation=twice)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


@longer
def test_a_model_of_keras_2_is_trained_and_its_run_goes_on(table, tmp_path):
    import tf_keras

    def fitted(run, epochs):
        given = {"features": ["a", "b"], "label": "y", "np": 2, "batch_size": 20, "verbose": False}
        return hora.spark.Estimator(
            small(tf_keras, tf_keras.optimizers.Adam(0.02)), validation="held", store=str(tmp_path), run_id=run,
            epochs=epochs, custom_objects={"twice": twice}, **given,
        ).fit(table)  # fmt: skip

    whole = fitted("whole", 4)
    assert whole.history[-1]["loss"] < 0.5 * whole.history[0]["loss"] and {"mae", "val_loss", "val_mae"} <= set(
        whole.history[0]
    )
    assert type(whole.model).__module__.startswith("tf_keras")
    rows = whole.transform(table).collect()
    given = np.array([[r.a, r.b] for r in rows], dtype=np.float32)
    assert [r.prediction for r in rows] == pytest.approx(whole.model.predict_on_batch(given)[:, 0].tolist(), rel=1e-5)
    fitted("parts", 2)
    parts = fitted("parts", 4)
    assert parts.history == whole.history
    assert all(np.array_equal(a, b) for a, b in zip(parts.model.get_weights(), whole.model.get_weights(), strict=True))
    whole.write().overwrite().save(str(tmp_path / "fitted"))
    kept = hora.spark.EstimatorModel.load(str(tmp_path / "fitted")).transform(table).collect()
    assert [r.prediction for r in kept] == [r.prediction for r in rows]
    alone = tf_keras.models.load_model(tmp_path / "runs/whole/model.keras", custom_objects={"twice": twice})
    assert np.array_equal(alone.get_weights()[0], whole.model.get_weights()[0])


@longer
def test_horovods_keras_estimator_has_models_of_keras_2(table, tmp_path):
    import horovod.spark.keras as hvd
    import tf_keras
    from horovod.spark.common.store import Store

    tf_keras.utils.set_random_seed(0)
    inputs = [tf_keras.Input((1,), name=n) for n in "ab"]
    out = tf_keras.layers.Dense(1, activation=twice)(tf_keras.layers.Concatenate()(inputs))
    fitted = hvd.KerasEstimator(
        num_proc=2, store=Store.create(str(tmp_path)), model=tf_keras.Model(inputs, out), loss="mae",
        optimizer=tf_keras.optimizers.legacy.SGD(0.05), metrics=["mse"], custom_objects={"twice": twice},
        feature_cols=["a", "b"], label_cols=["y"], validation="held", batch_size=20, epochs=3, verbose=0,
    ).fit(table)  # fmt: skip
    history = fitted.getHistory()
    assert len(history["val_mse"]) == 3 and history["loss"][-1] < history["loss"][0]
    fitted.save(str(tmp_path / "fitted"))
    again = hvd.KerasModel.load(str(tmp_path / "fitted")).setOutputCols(["said"])
    assert type(again.getModel()).__module__.startswith("tf_keras")
    said = again.transform(table).collect()
    wanted = fitted.getModel().predict_on_batch([np.array([[getattr(r, n)] for r in said]) for n in "ab"])[:, 0]
    assert [r.said for r in said] == pytest.approx(wanted.tolist(), rel=1e-5)


def test_passes_are_refused_where_keras_has_none(spark):
    import tf_keras

    with pytest.raises(hora.ArgumentError, match=r"accumulate=2 with a model of Keras 2 .* batch_size that is 2 times"):
        table = spark.createDataFrame([(1.0, 2.0)], "a double, y double")
        hora.spark.Estimator(small(tf_keras), features=["a"], label="y", accumulate=2, np=1).fit(table)
