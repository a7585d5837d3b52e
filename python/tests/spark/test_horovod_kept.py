"""horovod.spark's estimators: what a saved one holds for another program, and what a run tells of that goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import beside
import numpy as np
import pytest
from sample import longer

from hora.spark import _cluster, _code

torch = pytest.importorskip("torch")

LOAD = """
import sys
import numpy as np
from horovod.spark.keras import KerasEstimator, KerasModel

model = KerasModel.load(sys.argv[1]).getModel()
print("model", model.predict_on_batch(np.array([[2.0], [-2.0]], np.float32)).ravel().tolist())
estimator = KerasEstimator.load(sys.argv[2])
net = estimator.getModel()
print("estimator", net.compiled, net.layers[-1].activation(1.0), estimator.getEpochs())
"""


@longer
def test_a_run_that_goes_on_with_another_transformation_fn_says_so(spark, tmp_path, monkeypatch, capfd):
    """Also where horovod.spark is an installed package, whose code goes by its name."""
    import horovod.spark.torch as hvd
    from horovod.spark.common.store import Store

    installed = _code._packages()
    monkeypatch.setattr(_code, "_packages", lambda: (*installed, str(beside.PYTHON / "compat")))
    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=40)
    table = spark.createDataFrame([(float(a), float(2 * a)) for a in x], "x double, y double")

    def times(factor):
        def change():
            return lambda frame: frame.assign(y=frame.y * factor)

        return change

    def fit(change, epochs):
        model = torch.nn.Linear(1, 1)
        estimator = hvd.TorchEstimator(
            num_proc=1, store=Store.create(str(tmp_path)), model=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=torch.nn.MSELoss(), input_shapes=[[-1, 1]],
            feature_cols=["x"], label_cols=["y"], batch_size=20, epochs=epochs, verbose=0, run_id="r",
            transformation_fn=change,
        )  # fmt: skip
        estimator.fit(table)
        return "".join(capfd.readouterr())

    fit(times(1), 1)
    assert "with other code" not in fit(times(1), 2)
    assert "run_id='r' was begun with other code in transform, and goes on" in fit(times(-1), 3)

    def other():
        return lambda frame: frame

    with pytest.raises(ValueError, match=r"begun with transform='\S+change' and would go on with '\S+other'"):
        fit(other, 4)


@longer
def test_a_saved_keras_model_with_custom_objects_loads_in_another_program(spark, tmp_path, monkeypatch):
    paths = [str(beside.folder(n)) for n in ("tensorflow", "jax")]
    monkeypatch.setattr(sys, "path", [*sys.path, *paths])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras
    from horovod.spark.keras import KerasEstimator, KerasModel

    def thrice(x):
        return 3 * x

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, thrice, kernel_initializer="ones")])
    model.compile("sgd", "mse")
    given = {"model": model, "custom_objects": {"thrice": thrice}}
    KerasModel(**given, feature_columns=["x"], label_columns=["y"]).save(str(tmp_path / "fitted"))
    KerasEstimator(**given, feature_cols=["x"], label_cols=["y"], epochs=7).save(str(tmp_path / "unfitted"))
    path = os.pathsep.join([*beside.TREE, *paths, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "fitted", tmp_path / "unfitted"], env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["model [6.0, -6.0]", "estimator True 3.0 7"], done.stdout + done.stderr
