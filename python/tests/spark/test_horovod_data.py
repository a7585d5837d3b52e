"""horovod.spark's estimators on Parquet files that lie in a store, and what runs their ranks."""

from __future__ import annotations

import os
import sys

import beside
import numpy as np
import pytest
from sample import longer

from hora.spark import _cluster

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def table(spark):
    """y = 2a − b, with rows that validate."""
    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(300, 2))
    rows = [([float(a), float(b)], float(2 * a - b), i % 5 == 0) for i, (a, b) in enumerate(x)]
    return spark.createDataFrame(rows, "x array<double>, y double, held boolean").repartition(3).cache()


def keras_of(store):
    import horovod.spark.keras as hvd
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    given = {"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", "metrics": ["mae"]}
    return hvd.KerasEstimator, hvd.KerasModel, {"model": model, **given}


def lightning_of(store):
    import horovod.spark.lightning as hvd
    import pytorch_lightning

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 1)

        def forward(self, x):
            return self.inner(x)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, batch, batch_idx):
            return torch.nn.functional.mse_loss(self(batch["x"])[:, 0], batch["y"])

        def validation_step(self, batch, batch_idx):
            loss = torch.nn.functional.mse_loss(self(batch["x"])[:, 0], batch["y"])
            self.log("val_loss", loss, batch_size=len(batch["y"]))

    return hvd.TorchEstimator, hvd.TorchModel, {"model": Module(), "input_shapes": [[-1, 2]]}


@longer
@pytest.mark.parametrize("kind", [keras_of, lightning_of])
def test_on_parquet_that_the_user_wrote(kind, table, spark, tmp_path, monkeypatch):
    """Files without a number, with rows for validation apart; and files with a column that says which validate. What is
    fitted is saved, and predicts from its folder."""
    folders = ("tensorflow", "jax") if kind is keras_of else ("trainers",)
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in folders)])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    from horovod.spark.common import util
    from horovod.spark.common.store import Store

    import hora

    histories = []
    for how in ("apart", "a column", "prepared"):
        store = Store.create(str(tmp_path / how.replace(" ", "-")))
        estimator, fitted_as, given = kind(store)
        more = {"validation": "held"} if how == "a column" else {}
        e = estimator(
            num_proc=2, store=store, feature_cols=["x"], label_cols=["y"], batch_size=20, epochs=3, verbose=0,
            shuffle=False, **given, **more,
        )  # fmt: skip
        with pytest.raises(ValueError, match=r"there is no data in file://\S+intermediate_train_data"):
            e.fit_on_parquet()
        if how == "apart":
            table.where("not held").select("x", "y").write.parquet(store.get_train_data_path())
            table.where("held").select("x", "y").write.parquet(store.get_val_data_path())
            rows, held, *_ = util.get_simple_meta_from_parquet(store, ["y"], ["x"])
            assert (rows, held) == (240, 60)
            fitted = e.fit_on_parquet()
        elif how == "a column":
            table.write.parquet(store.get_train_data_path())
            fitted = e.fit_on_parquet()
        else:
            with util.prepare_data(2, store, table, ["y"], ["x"], validation="held") as idx:
                fitted = e.fit_on_parquet(dataset_idx=idx)
        history = fitted.getHistory()
        found = history["val_loss"] if kind is keras_of else [h["val_loss"] for h in history]
        assert len(found) == 3 and found[-1] < 0.05 < found[0], found
        histories.append(found[-1])
    assert np.ptp(histories) < 0.1  # of the same rows, in other orders
    scored = fitted.transform(table).orderBy("x").collect()
    assert np.mean([(r.y__output - r.y) ** 2 for r in scored]) < 0.05
    fitted.save(str(tmp_path / "fitted"))
    again = fitted_as.load(str(tmp_path / "fitted"))
    assert again.transform(table).orderBy("x").first().y__output == pytest.approx(scored[0].y__output, rel=1e-6)
    listed = hora.spark.predict(str(tmp_path / "fitted"), table).orderBy("x").collect()
    assert [r.prediction for r in listed] == pytest.approx([r.y__output for r in scored], rel=1e-5)
    assert not any(r.prediction_error for r in listed)


def told(a, b=0):
    """What a rank says of itself."""
    import horovod.torch as hvd

    hvd.init()
    return a + b + hvd.rank(), hvd.size(), os.environ["GIVEN"], os.environ.get("MORE")


@longer
def test_back_ends_run_functions(spark, hora_program):
    from horovod.spark.common.backend import Backend, LocalBackend, SparkBackend

    for kind in (SparkBackend, LocalBackend):
        backend = kind(2, env={"GIVEN": "first", "MORE": "m"})
        assert backend.run(told, args=(10,), kwargs={"b": 5}) == [(15, 2, "first", "m"), (16, 2, "first", "m")]
        assert backend.run(told, (1,), env={"GIVEN": "second"}) == [(1, 2, "second", "m"), (2, 2, "second", "m")]
    with pytest.raises(NotImplementedError):
        Backend().run(told)


@longer
def test_an_estimator_takes_the_number_of_ranks_from_a_back_end_of_the_users(table, tmp_path, monkeypatch):
    from horovod.spark.common import estimator
    from horovod.spark.common.backend import Backend
    from horovod.spark.torch import TorchEstimator

    class Three(Backend):
        def num_processes(self):
            return 3

    seen = str(tmp_path)

    def say():
        import os

        open(f"{seen}/{os.getpid()}", "w").close()
        return lambda frame: frame

    monkeypatch.setattr(estimator, "_said", set())
    model = torch.nn.Linear(2, 1)
    e = TorchEstimator(
        backend=Three(), model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.MSELoss(),
        feature_cols=["x"], label_cols=["y"], batch_size=20, epochs=1, verbose=0, transformation_fn=say,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="a Three tells how many ranks there are; they run in task slots"):
        e.fit(table)
    assert len(list(tmp_path.iterdir())) == 3
