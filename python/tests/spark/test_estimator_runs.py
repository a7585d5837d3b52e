"""hora.spark.Estimator's runs: what they are of, what is left of a torn one, and labels that are of different kinds."""

from __future__ import annotations

import types

import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster, _store

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def table(spark):
    """y = 2a − b + 1, and both features as a list; 120 rows."""
    from pyspark.sql import functions as F

    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(120, 2))
    rows = [(float(a), float(b), float(2 * a - b + 1), i % 5 == 0) for i, (a, b) in enumerate(x)]
    frame = spark.createDataFrame(rows, "a double, b double, y double, held boolean").repartition(3)
    return frame.withColumn("list", F.array("a", "b")).cache()


def estimator(**more):
    torch.manual_seed(1)
    given = {
        "loss": "mse",
        "features": ["a", "b"],
        "label": "y",
        "np": 1,
        "learning_rate": 0.1,
        "batch_size": 25,
        "verbose": False,
    }
    return hora.spark.Estimator(torch.nn.Linear(2, 1), **{"optimizer": torch.optim.SGD} | given | more)


@longer
def test_a_run_is_of_one_table_and_of_what_was_said(table, tmp_path):
    from pyspark.ml import Pipeline
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import CrossValidator
    from pyspark.sql import functions as F

    given = {"store": str(tmp_path), "run_id": "r"}
    first = estimator(**given).fit(table)
    again = estimator(**given).fit(table.repartition(5))  # the same rows in another order
    assert again.history == first.history

    def refused(match, frame, **more):
        with pytest.raises(hora.HoraError, match=match):
            estimator(**given | more).fit(frame)

    other = r"run_id='r' was begun on other rows \(120 rows \S+ struct<.*>, and here are "
    refused(other + r"119 rows", table.where(f"a < {table.agg(F.max('a')).first()[0]}"))
    refused(other + r"120 rows", table.withColumn("y", F.col("y") + F.when(F.col("a") > 1.5, 0.001).otherwise(0.0)))
    refused(r"begun with loss='mse' and would go on with 'mae'; give another run_id", table, loss="mae")
    refused(
        r"begun with optimizer='torch.optim.sgd.SGD' and would go on with '.*Adam'", table, optimizer=torch.optim.Adam
    )
    e = estimator(**given)
    e.model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    with pytest.raises(hora.HoraError, match=r"begun with model='Linear \w+' and would go on with 'Sequential"):
        e.fit(table)
    folds = CrossValidator(
        estimator=Pipeline(stages=[estimator(**given | {"run_id": "folds"})]), estimatorParamMaps=[{}, {}], numFolds=2,
        seed=1,
        evaluator=RegressionEvaluator(labelCol="y"),
    )  # fmt: skip
    with pytest.raises(hora.HoraError, match=r"run_id='folds' was begun on other rows"):
        folds.fit(table)


@longer
def test_a_run_that_goes_on_with_another_loss_of_that_name_says_so(table, tmp_path, capfd):
    def loss_of(power):
        def loss(out, y):
            return ((out - y).abs() ** power).mean()

        return loss

    given = {"store": str(tmp_path), "run_id": "r"}
    estimator(**given, loss=loss_of(2), epochs=1).fit(table)
    estimator(**given, loss=loss_of(2), epochs=2).fit(table)
    assert "with other code" not in "".join(capfd.readouterr())
    fitted = estimator(**given, loss=loss_of(1), epochs=3).fit(table)
    assert "run_id='r' was begun with other code in loss, and goes on" in "".join(capfd.readouterr())
    assert len(fitted.history) == 3


@longer
def test_two_fits_of_one_run_at_once(table, tmp_path):
    """In one process the second is refused before its job; else the first ends at its next checkpoint."""
    given = {"store": str(tmp_path), "run_id": "r", "epochs": 2}
    said = []

    def second(logs):
        try:
            estimator(**given).fit(table)
        except hora.ArgumentError as e:
            said.append(str(e))

    estimator(**given, progress=second).fit(table)
    assert len(said) == 2 and "run_id='r' is being fitted already" in said[0]

    def seal(columns):  # as another process's fit does
        from pathlib import Path

        Path(f"{tmp_path}/runs/s/seal").write_text("another")
        return columns

    with pytest.raises(
        hora.HoraError, match=r"the run 's' in the store .* is another fit's; give each fit a run_id of its own"
    ):
        estimator(**given | {"run_id": "s"}, transform=seal).fit(table)


class Two(torch.nn.Module):
    """A number and a list."""

    def __init__(self):
        super().__init__()
        self.one, self.both = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.one(x), self.both(x)


@longer
def test_each_output_goes_by_its_own_label(table):
    """A label of one number beside one that is a list, and metrics of both."""
    torch.manual_seed(1)
    given = {"label": ["y", "list"], "epochs": 30, "validation": "held", "loss": ["mse", "mse"]}
    e = estimator(**given, metrics=[["mae"], ["mse", "mae"]])
    e.model = Two()
    fitted = e.fit(table)
    names = {"y_mae", "list_mse", "list_mae"}
    assert set(fitted.history[0]) == {"epoch", "loss", "val_loss", *names, *(f"val_{n}" for n in names)}
    assert fitted.history[-1]["val_list_mse"] < 0.05 and fitted.history[-1]["val_loss"] < 0.1
    row = fitted.transform(table).first()
    assert row.prediction_y == pytest.approx(row.y, abs=0.5) and row.prediction_list == pytest.approx(row.list, abs=0.5)
    e.metrics = ["mae"]
    assert {"y_mae", "list_mae"} <= set(e.fit(table).history[0])
    e.metrics = [["mae"], ["mae"], ["mae"]]
    with pytest.raises(hora.ArgumentError, match=r"metrics has 3 lists for 2 labels; give one for each"):
        e.fit(table)


@longer
def test_nan_is_a_value_of_features_and_of_nothing_else(table):
    from pyspark.sql import functions as F

    def holed(name):
        return table.withColumn(name, F.when(F.col("held"), F.lit(float("nan"))).otherwise(F.col(name)))

    fill = estimator(transform=lambda columns: columns | {"a": np.nan_to_num(columns["a"])})
    with pytest.warns(
        UserWarning, match=r"Estimator.fit: there is NaN in 'a' \(24 rows\), which the model is given as it is"
    ):
        fitted = fill.fit(holed("a"))
    assert np.isfinite(fitted.history[0]["loss"])
    scored = hora.spark.predict(fitted, holed("a")).where("held").first()
    assert np.isnan(scored.prediction) and scored.prediction_error is None
    with pytest.raises(hora.ArgumentError, match=r"there is NaN in 'y' \(24\); fill or drop such rows first"):
        estimator().fit(holed("y"))


def test_a_torn_checkpoint_leaves_the_one_before():
    """On a store whose writes are not whole or nothing."""
    store, name = _store.Store("memory://hora-torn"), "memory://hora-torn"
    plan = types.SimpleNamespace(run="r", seal="s", settled={"np": 1})

    def restored():
        return _store.restore(_store.Store(name), plan)

    _store.seal(store, "r", "s")
    assert restored() == (0, None, [])
    for epoch in (1, 2, 3):
        _store.checkpoint(store, plan, epoch, [{"epoch": epoch}], b"x" * 1000 + bytes([epoch]))
        assert restored() == (epoch, b"x" * 1000 + bytes([epoch]), [{"epoch": epoch}])
    path = store.path("runs/r/checkpoint")  # of the third epoch
    whole = bytes(store._fs.cat_file(path))
    for torn in (b"", whole[:5], whole[:40], whole[:-1], whole[:-500] + b"\0" * 500):
        store._fs.pipe_file(path, torn)
        assert restored()[0] == 2
    again = _store.Store(name)
    _store.restore(again, plan)
    _store.checkpoint(again, plan, 3, [{"epoch": 3}], b"again")  # in the torn one's place
    assert restored() == (3, b"again", [{"epoch": 3}])
    for each in store.checkpoints:
        store._fs.pipe_file(store.path(f"runs/r/{each}"), b"torn")
    with pytest.raises(
        hora.HoraError, match=r"the checkpoint of run_id='r' in the store memory://hora-torn is damaged"
    ):
        restored()
    store._fs.rm(store.path("runs/r/checkpoint.other"))
    assert restored() == (0, None, [])  # the first write of all was torn
