"""hora.spark.Estimator: its kinds, what it keeps, and what bad input gets."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import threading
import warnings

import beside
import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster, _net, _safetensors

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def table(spark):
    """y = 2a − b + 1 with a class, as vectors too; 600 rows."""
    from pyspark.sql import functions as F

    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(600, 2))
    y = 2 * x[:, 0] - x[:, 1] + 1
    rows = [
        (float(a), float(b), float(t), int(t > 1), float(1 + i % 3), i % 5 == 0)
        for i, ((a, b), t) in enumerate(zip(x, y, strict=True))
    ]
    frame = spark.createDataFrame(rows, "a double, b double, y double, c int, w double, held boolean").repartition(3)
    return frame.withColumn("list", F.array("a", "b")).cache()


def linear():
    torch.manual_seed(1)
    return torch.nn.Linear(2, 1)


def estimator(**more):
    given = {
        "loss": "mse",
        "features": ["a", "b"],
        "label": "y",
        "np": 2,
        "learning_rate": 0.1,
        "batch_size": 25,
        "verbose": False,
    }
    return hora.spark.Estimator(linear(), **{"optimizer": torch.optim.SGD} | given | more)


@longer
def test_torch_in_a_pipeline_saved_and_loaded(table, tmp_path, capsys):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.feature import VectorAssembler

    heard = []
    e = hora.spark.Estimator(
        linear(), loss=torch.nn.MSELoss(), optimizer=torch.optim.SGD, metrics=["mae"], label="y", np=2,
        learning_rate=0.1, batch_size=25,
        epochs=4, validation="held", raw="raw", progress=heard.append,
    )  # fmt: skip
    before = {k: v.clone() for k, v in e.model.state_dict().items()}
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=["a", "b"], outputCol="features"), e])
    pipeline.write().overwrite().save(str(tmp_path / "unfitted"))
    again = Pipeline.load(str(tmp_path / "unfitted"))
    again.getStages()[1].progress = heard.append
    fitted = again.fit(table)
    assert "epoch 4 of 4: loss " in capsys.readouterr().out
    assert all(torch.equal(v, before[k]) for k, v in e.model.state_dict().items())  # fit changes nothing of its own
    model = fitted.stages[1]
    assert isinstance(model.model, torch.nn.Linear) and torch.allclose(
        model.model.weight, torch.tensor([[2.0, -1.0]]), atol=0.05
    )
    assert [h["epoch"] for h in model.history] == [1, 2, 3, 4] == [h["epoch"] for h in heard]
    assert (
        set(model.history[0]) == {"epoch", "loss", "mae", "val_loss", "val_mae"}
        and model.history[-1]["val_loss"] < 0.01
    )
    scored = fitted.transform(table)
    assert RegressionEvaluator(labelCol="y", metricName="rmse").evaluate(scored) < 0.1
    row = scored.orderBy("a").first()
    assert row.raw.toArray().tolist() == [row.prediction]
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    loaded = PipelineModel.load(str(tmp_path / "fitted"))
    assert loaded.transform(table).orderBy("a").first().prediction == row.prediction
    assert loaded.stages[1].history == model.history
    model.export(str(tmp_path / "out"))
    weights = _safetensors.loads((tmp_path / "out/model.safetensors").read_bytes())
    assert np.array_equal(weights["weight"], model.model.weight.detach().numpy())
    assert torch.equal(torch.load(tmp_path / "out/model.pt", weights_only=False).weight, model.model.weight)
    listed = hora.spark.predict(model, scored, output="p")
    assert listed.orderBy("a").first().p == row.prediction
    model.save(str(tmp_path / "model"))
    kept = hora.spark.predict(str(tmp_path / "model"), scored, output="p")
    assert kept.orderBy("a").first().p == row.prediction


@longer
def test_a_run_goes_on_as_if_it_had_not_ended(table, tmp_path):
    whole = estimator(epochs=4, store=str(tmp_path / "a"), run_id="r", optimizer=torch.optim.Adam)
    parts = whole.copy()
    parts.set(parts.store, str(tmp_path / "b"))
    undisturbed = whole.fit(table)
    parts.fit(table, {parts.epochs: 2})
    fitted = parts.fit(table)
    assert fitted.history == undisturbed.history and len(fitted.history) == 4
    assert all(
        torch.equal(a, b) for a, b in zip(fitted.model.parameters(), undisturbed.model.parameters(), strict=True)
    )
    folder = tmp_path / "b/runs/r"
    assert json.loads((folder / "history.json").read_text()) == fitted.history
    assert {p.name for p in folder.iterdir()} == {"checkpoint", "history.json", "model.pt", "model.safetensors", "seal"}
    with pytest.raises(
        hora.ArgumentError, match=r"run_id='r' was begun with learning_rate=0.1 and would go on with 0.2; give another"
    ):
        parts.fit(table, {parts.learning_rate: 0.2})


@longer
def test_validation_runs_beside_the_next_steps(table, tmp_path):
    """It waits for one of them, in a process of its own; where that one is killed the fit ends with a sentence."""

    def tell(columns):
        import os

        open(f"{tmp_path}/{os.getpid()}", "a").close()
        return columns

    def mae(out, y):
        import os
        import time

        if os.path.exists(f"{tmp_path}/{os.getpid()}"):  # the rank's own process
            with open(f"{tmp_path}/{os.getpid()}", "a") as f:
                f.write("x")
        elif os.path.exists(f"{tmp_path}/kill"):
            os.kill(os.getpid(), 9)
        else:
            end = time.monotonic() + 60
            while os.path.getsize(f"{tmp_path}/{os.getppid()}") <= 2:  # an epoch has two steps
                if time.monotonic() > end:
                    raise TimeoutError("the next epoch has not begun")
                time.sleep(0.01)
        return (out.reshape(y.shape) - y).abs().mean()

    given = {"validation": "held", "metrics": [mae], "transform": tell, "batch_size": 100, "steps": 2}
    fitted = estimator(epochs=2, **given).fit(table)
    assert all({"val_loss", "val_mae"} <= set(h) for h in fitted.history) and len(fitted.history) == 2
    (tmp_path / "kill").touch()
    refused(r"the process that validates has ended: killed by signal 9 \(SIGKILL\)", table, epochs=1, **given)


SOAK = os.environ.get("HORA_SOAK") == "1"
SEED = int(os.environ.get("HORA_TEST_SEED", random.randrange(1 << 30)))


class Killer(threading.Thread):
    """Kills one of two ranks, so long after they have told of themselves; `hit` says whether there was one to kill."""

    def __init__(self, ranks, after, which):
        super().__init__(daemon=True)
        self.ranks, self.after, self.which, self.over, self.hit = ranks, after, which, threading.Event(), False

    def run(self):
        while not self.over.wait(0.01):
            found = sorted(int(p.name) for p in self.ranks.iterdir())
            if len(found) == 2:
                if not self.over.wait(self.after) and os.path.exists(f"/proc/{found[self.which]}"):
                    os.kill(found[self.which], 9)
                    self.hit = True
                return

    def end(self):
        self.over.set()
        self.join()


@pytest.mark.skipif(
    not SOAK and os.environ.get("HORA_SPARK") != "all", reason="kills at random moments (make test-spark, make soak)"
)
@pytest.mark.parametrize("kind", ["torch", "keras"])
def test_a_fit_killed_at_random_moments_goes_on_as_if_it_had_not_been(table, tmp_path, monkeypatch, kind):
    """A rank is killed between where it has its rows and its end; the same run is fitted again until it is done."""
    print(f"replay with HORA_TEST_SEED={SEED}")
    chance, ranks = random.Random(SEED), tmp_path / "ranks"

    def tell(columns):
        import os

        open(f"{ranks}/{os.getpid()}", "w").close()
        return columns

    def afresh():
        """No rank has told of itself: what a killer waits for is the next run's."""
        shutil.rmtree(ranks, ignore_errors=True)
        ranks.mkdir()

    if kind == "keras":
        monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")

    def normed():
        """A model that remembers the rows that each rank had."""
        if kind == "torch":
            torch.manual_seed(1)
            return torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
        import keras

        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])

    def weights(fitted):
        if kind == "keras":
            return fitted.model.get_weights()
        return [v.numpy() for v in fitted.model.state_dict().values()]

    def run(name):
        given = {"epochs": 60, "batch_size": 20, "validation": "held", "transform": tell}
        given["optimizer"] = torch.optim.Adam if kind == "torch" else "adam"
        e = estimator(store=str(tmp_path), run_id=name, **given)
        e.model = normed()
        return e.fit(table)

    afresh()
    undisturbed = run("undisturbed")
    took = (tmp_path / "runs/undisturbed/checkpoint").stat().st_mtime - min(p.stat().st_mtime for p in ranks.iterdir())
    wanted, killed, runs = 20 if SOAK else 2, 0, 0
    while killed < wanted:
        runs, fitted = runs + 1, None
        while fitted is None:
            afresh()
            killer = Killer(ranks, chance.uniform(0, took), chance.randrange(2))
            if killed < wanted:
                killer.start()
            try:
                fitted = run(f"run{runs}")
            except hora.HoraError:
                killer.end()
                assert killer.hit
                killed += 1
                print(f"run{runs}: a rank killed {killer.after:.2f} s after it had its rows")
            finally:
                if killer.ident:
                    killer.end()
        assert fitted.history == undisturbed.history and len(fitted.history) == 60
        assert all(np.array_equal(a, b) for a, b in zip(weights(fitted), weights(undisturbed), strict=True))
        assert runs < 10 * wanted


@longer
@pytest.mark.parametrize("kind", ["torch", "keras"])
def test_a_gang_that_lost_a_rank_inside_a_fit_goes_on_by_itself(table, tmp_path, monkeypatch, kind):
    """With restarts=1: from the last epoch that is in the store, with the history and the weights of a fit that nobody
    disturbed. Without, the fit ends."""
    if kind == "keras":
        monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")

    def made(run):
        """An estimator whose rank 1 is killed once, when an epoch has been kept."""
        store, died = str(tmp_path), str(tmp_path / f"died-{run}")
        kept = f"{store}/runs/{run}/checkpoint"

        def dies(*_, **__):
            import os

            import hora

            if run != "quiet" and hora.rank() == 1 and os.path.exists(kept) and not os.path.exists(died):
                open(died, "w").close()
                os.kill(os.getpid(), 9)

        told = []
        given = {"epochs": 5, "store": store, "run_id": run, "progress": told.append, "seed": 3}
        if kind == "keras":
            import keras

            keras.utils.set_random_seed(1)
            e = estimator(
                optimizer="adam", callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=dies)], **given
            )
            e.model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        else:

            def loss(out, y):
                dies()
                return ((out[:, 0] - y) ** 2).mean()

            e = estimator(optimizer=torch.optim.Adam, loss=loss, **given)
        return e, told

    def weights(fitted):
        return (
            fitted.model.get_weights() if kind == "keras" else [v.numpy() for v in fitted.model.state_dict().values()]
        )

    quiet, _ = made("quiet")
    undisturbed = quiet.fit(table)
    e, told = made("r")
    fitted = e.fit(table, {e.restarts: 1})
    assert (tmp_path / "died-r").exists()
    epochs = [t["epoch"] for t in told]
    assert sorted(set(epochs)) == [1, 2, 3, 4, 5] and epochs.count(1) == 1, epochs  # it did not begin anew
    assert fitted.history == undisturbed.history
    assert all(np.array_equal(a, b) for a, b in zip(weights(fitted), weights(undisturbed), strict=True))
    e, _ = made("once")
    with pytest.raises(hora.HoraError, match=r"killed by signal 9|signal 9"):
        e.fit(table)


@longer
def test_weights_and_classes(table):
    """Rows of weight 0 teach nothing; classes come as the likeliest one."""
    from pyspark.sql import functions as F

    wrong = table.withColumn("w", F.when(F.col("held"), 0.0).otherwise(F.col("w"))).withColumn(
        "c", F.when(F.col("held"), 1 - F.col("c")).otherwise(F.col("c"))
    )
    torch.manual_seed(0)
    e = hora.spark.Estimator(
        torch.nn.Linear(2, 2), loss=torch.nn.functional.cross_entropy, optimizer=torch.optim.Adam, learning_rate=0.1,
        metrics=["accuracy"],
        features="list", label="c", weight="w", np=2, epochs=8, batch_size=50, verbose=False,
        class_weight={0: 1.0, 1: 2.0},
    )  # fmt: skip
    fitted = e.fit(wrong)
    right = fitted.transform(table).where("prediction = c").count()
    assert right > 570 and fitted.history[-1]["accuracy"] < 0.85  # a fifth of what it saw was wrong


def test_a_function_of_the_users(table, tmp_path):
    def train(t):
        import hora

        x, y = t.rows["a"], t.rows["y"]
        top = hora.allreduce(float((x * y).sum()), hora.SUM, name="top", named=True)
        low = hora.allreduce(float((x * x).sum()), hora.SUM, name="low", named=True)
        t.end_epoch(0, {"slope": top / low})
        slope = top / low
        return lambda columns: columns["a"] * slope

    fitted = hora.spark.Estimator(train, features=["a", "b"], label="y", np=2).fit(table)
    assert fitted.history[0]["slope"] == pytest.approx(2, abs=0.4)
    row = fitted.transform(table).orderBy("a").first()
    assert row.prediction == pytest.approx(row.a * fitted.history[0]["slope"], rel=1e-5)
    if os.environ.get("HORA_SPARK") != "all":
        return
    fitted.save(str(tmp_path / "fitted"))
    again = hora.spark.EstimatorModel.load(str(tmp_path / "fitted"))
    assert again.history == fitted.history and again.transform(table).orderBy("a").first() == row
    listed = hora.spark.predict(str(tmp_path / "fitted"), table).orderBy("a").first()
    assert listed.prediction == row.prediction and listed.prediction_error is None


@longer
def test_batches_of_an_estimator_s_model(table, tmp_path):
    """transform asks with no more bytes of features than batch_bytes says."""
    seen = str(tmp_path)

    def train(t):
        t.end_epoch(0, {})

        def model(columns):
            import os

            with open(f"{seen}/{os.getpid()}", "a") as f:
                f.write(f"{len(columns['a'])}\n")
            return columns["a"] + columns["b"]

        return model

    e = hora.spark.Estimator(train, features=["a", "b"], label="y", np=2, batch_bytes=800, verbose=False)
    fitted = e.fit(table)
    for p in tmp_path.iterdir():  # of the rank that looked at what it gives
        p.unlink()
    got = fitted.transform(table).collect()
    assert len(got) == 600 and all(r.prediction == pytest.approx(r.a + r.b) for r in got)
    sizes = [int(line) for p in tmp_path.iterdir() for line in p.read_text().split()]
    assert max(sizes) == 50 and sum(sizes) == 600, sizes


@longer
def test_keras(table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(hora.ArgumentError, match="not compiled and loss is missing"):
        hora.spark.Estimator(model, label="y", np=2).fit(table)
    with pytest.raises(hora.ArgumentError, match=r"Keras has no metric 'mean_absolut_error'; did you mean"):
        hora.spark.Estimator(model, loss="mse", metrics=["mean_absolut_error"], label="y", np=2).fit(table)
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # the optimizer has nothing yet that could be loaded
        _net.keras_model(_net.keras_bytes(model), None, compile=True)
    e = hora.spark.Estimator(
        model,
        features=["a", "b"],
        label="y",
        np=2,
        epochs=2,
        batch_size=25,
        validation="held",
        verbose=False,
        store=str(tmp_path),
        run_id="k",
    )
    e.fit(table)
    fitted = e.fit(table, {e.epochs: 4})
    assert [h["epoch"] for h in fitted.history] == [1, 2, 3, 4] and fitted.history[-1]["val_loss"] < 0.02
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(fitted.history[0])
    kernel = fitted.model.get_weights()[0].ravel()
    assert np.allclose(kernel, [2, -1], atol=0.1)
    fitted.save(str(tmp_path / "saved"))
    row = hora.spark.EstimatorModel.load(str(tmp_path / "saved")).transform(table).orderBy("a").first()
    assert row.prediction == pytest.approx(2 * row.a - row.b + 1, abs=0.3)
    listed = hora.spark.predict(str(tmp_path / "saved"), table).orderBy("a").first()
    assert listed.prediction == pytest.approx(row.prediction, rel=1e-6)
    import tensorflow as tf

    events = [
        e for f in sorted((tmp_path / "runs/k/logs").iterdir()) for e in tf.compat.v1.train.summary_iterator(str(f))
    ]
    points = {(v.tag, e.step): v.simple_value for e in events for v in e.summary.value}
    assert [points["val_loss", i] for i in range(1, 5)] == pytest.approx([h["val_loss"] for h in fitted.history])
    alone = keras.saving.load_model(tmp_path / "runs/k/model.keras")
    assert np.array_equal(alone.get_weights()[0].ravel(), kernel)


@longer
def test_a_cross_validator_s_gangs_run_beside_each_other(table, tmp_path):
    """Gangs of two ranks on four slots: a rank begins when one with the other rate is alive. Only what is fitted on all
    folds at last is alone."""
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    rates = (0.1, 1e-6)
    for rate in rates:
        (tmp_path / str(rate)).mkdir()

    def meets(parameters, rate):
        import os
        import time

        (other,) = {0.1, 1e-6} - {rate}
        own = os.path.join(tmp_path, str(rate))
        open(os.path.join(own, str(os.getpid())), "w").close()
        end = time.monotonic() + 60
        if len(os.listdir(own)) <= 4:  # two folds of two ranks
            while not any(os.path.exists(f"/proc/{pid}") for pid in os.listdir(os.path.join(tmp_path, str(other)))):
                if time.monotonic() > end:
                    raise TimeoutError(f"no gang of rate {other} runs beside that of {rate}")
                time.sleep(0.01)
        return torch.optim.SGD(parameters, rate)

    e = estimator(np=2, epochs=2, optimizer=meets)
    grid = ParamGridBuilder().addGrid(e.learning_rate, list(rates)).build()
    judge = RegressionEvaluator(labelCol="y")
    found = CrossValidator(
        estimator=e, estimatorParamMaps=grid, evaluator=judge, numFolds=2, parallelism=2, seed=1
    ).fit(table)
    assert found.avgMetrics[0] < 0.2 < found.avgMetrics[1] and found.bestModel.history[-1]["loss"] < 0.1
    assert [len(list((tmp_path / str(rate)).iterdir())) for rate in rates] == [6, 4]


def refused(match, table, **more):
    with pytest.raises(hora.HoraError, match=match):
        estimator(**more).fit(table)


def test_what_bad_input_gets(table, tmp_path):
    from pyspark.sql import functions as F

    refused(r"no label column 'yy'; did you mean 'y'", table, label="yy")
    refused(r"no column 'aa'; did you mean 'a'", table, features=["aa"])
    refused(r"null values in 'a' \(120\); fill or drop", table.withColumn("a", F.when(~F.col("held"), F.col("a"))))
    ragged = table.withColumn("list", F.when(F.col("held"), F.array("a")).otherwise(F.array("a", "b")))
    refused(r"lists of column 'list' have from 1 to 2 values", ragged, features="list")
    refused(r"column 'b' holds string, no numbers; encode", table.withColumn("b", F.lit("text")))
    refused(r"column 'b' holds map<string,int>, no numbers", table.withColumn("b", F.create_map(F.lit("k"), F.lit(1))))
    refused(r"the table has 1 row for np=2 ranks; give np=1 or less", table.limit(1))
    refused(r"there is no metric 'acuracy'; did you mean 'accuracy'", table, metrics=["acuracy"])
    refused(r"there is no loss 'mes'; did you mean 'mse'", table, loss="mes")
    refused(r"validation=1.5; give a part of the rows", table, validation=1.5)
    refused(r"no validation column 'hold'; did you mean 'held'", table, validation="hold")
    refused(r"run_id='r' without a store", table, run_id="r")
    refused(r"batch_size=0 is no number of batch size; give 1 or more", table, batch_size=0)
    refused(r"the table has no rows", table.where("a > 1e9"))
    lock = threading.Lock()
    refused(
        r"the model, loss, optimizer or minibatch .* cannot be pickled", table, loss=lambda out, y: lock and out.mean()
    )
    with pytest.raises(hora.ArgumentError, match="model is the class Linear; give an instance"):
        hora.spark.Estimator(torch.nn.Linear, loss="mse").fit(table)
    with pytest.raises(hora.ArgumentError, match="table is a dict; give a Spark DataFrame"):
        estimator().fit({})


@longer
def test_partitions_without_rows_and_validation_of_one(table):
    """Spark's partitions may be empty, and of two ranks one may have no row to validate."""
    from pyspark.sql import functions as F

    most = table.agg(F.max("a")).first()[0]
    sparse = table.where("a > 1.5").withColumn("last", F.col("a") == most).repartition(6, F.col("b") > 0)
    assert sparse.select(F.spark_partition_id()).distinct().count() < 6
    fitted = estimator(epochs=1, features=["a", "b"], validation="last", batch_size=8).fit(sparse)
    got = fitted.transform(sparse).collect()
    assert len(got) == table.where("a > 1.5").count() > 20 and "val_loss" in fitted.history[0]
    (alone,) = [r for r in got if r["last"]]
    assert abs(fitted.history[0]["val_loss"] - (alone.prediction - alone.y) ** 2) < 1e-3
    assert fitted.transform(table.where("a > 1e9")).collect() == []


def test_a_store_that_other_machines_do_not_have(table, tmp_path, monkeypatch):
    from hora.spark import _store

    monkeypatch.setattr(
        _store, "seal", lambda *_: None
    )  # as where the driver wrote it into another machine's folder of that name
    refused(
        r"the store .* on .*, where rank 0 runs, is not the driver's folder of that name", table, store=str(tmp_path)
    )
