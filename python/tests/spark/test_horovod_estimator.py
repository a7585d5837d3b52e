"""sparkdl's HorovodEstimator: a model_fn on a v1 session, its folder, going on, faults, and what bad input gets."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import threading
import types

import beside
import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster


@pytest.fixture(scope="module")
def table(spark):
    """A vector of two, a class, text that nobody asks for, and which rows validate."""
    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(400, 2))
    rows = [([float(a), float(b)], int(a + b > 0), i % 5 == 0) for i, (a, b) in enumerate(x)]
    return spark.createDataFrame(rows, "point array<double>, label int, held boolean").repartition(3).cache()


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside.folder("tensorflow"))])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def model_fn(features, labels, mode, params, config):
    """A linear classifier, written as for TensorFlow 1."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    v1 = tf.compat.v1
    w = v1.get_variable("w", (2, 2), initializer=v1.zeros_initializer())
    b = v1.get_variable("b", (2,), initializer=v1.zeros_initializer())
    logits = tf.matmul(features["x"], w) + b
    predictions = {"probabilities": tf.nn.softmax(logits), "classes": tf.argmax(logits, axis=1)}

    class Heard(v1.train.SessionRunHook):
        """Writes down what it is called with, in a file of its process."""

        def tell(self, *words):
            with open(f"{params['heard']}/{mode}.{os.getpid()}", "a") as f:
                f.write(" ".join(str(w) for w in words) + "\n")

        def begin(self):
            self.tell("begin", "w" in [v.op.name for v in v1.global_variables()])

        def after_create_session(self, session, coord):
            self.tell("created", session.run(w).any())

        def before_run(self, run_context):
            return v1.train.SessionRunArgs(rows)

        def after_run(self, run_context, run_values):
            self.tell("run", run_values.results)
            if params.get("stops") == "by an error" and mode == tf.estimator.ModeKeys.EVAL and hvd.rank() == 1:
                raise tf.errors.OutOfRangeError(None, None, "the end")
            if params.get("stops"):
                run_context.request_stop()

        def end(self, session):
            self.tell("end", session.run(w).any())

    rows, hooks = tf.shape(logits)[0], [Heard()] if params.get("heard") else None
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(
            mode=mode, predictions=predictions, export_outputs=outputs, prediction_hooks=hooks
        )
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        right = v1.metrics.accuracy(labels=labels, predictions=predictions["classes"])
        return tf.estimator.EstimatorSpec(
            mode=mode, loss=loss, eval_metric_ops={"accuracy": right}, evaluation_hooks=hooks
        )
    optimizer = v1.train.MomentumOptimizer(params["rate"], 0.9)
    if params.get("wrapped", True):
        optimizer = hvd.DistributedOptimizer(optimizer)
    step = v1.train.get_global_step()
    hooks = []
    if params.get("dies"):  # rank 1, or the executor that it runs on, is killed once, in the middle
        import ends

        class Dies(v1.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                if hvd.rank() == 1 and run_context.session.run(step) == 12 and not os.path.exists(params["dies"]):
                    open(params["dies"], "w").close()
                    os.kill(ends.executor_of(os.getpid()) if params.get("executor") else os.getpid(), 9)
                    threading.Event().wait(600)  # the executor's agent ends this process soon

        hooks.append(Dies())
    if hvd.rank() == 0 and params.get("begun"):

        class Tells(v1.train.SessionRunHook):
            def after_create_session(self, session, coord):
                with open(params["begun"], "a") as f:
                    f.write(f"{session.run(step)}\n")

        hooks.append(Tells())
    return tf.estimator.EstimatorSpec(
        mode=mode, loss=loss, train_op=optimizer.minimize(loss, global_step=step), training_hooks=hooks
    )


def estimator(folder, **more):
    from sparkdl.estimators.horovod_estimator.estimator import HorovodEstimator

    given = dict(
        modelFn=model_fn, featureMapping={"point": "x"}, modelDir=str(folder), labelCol="label", batchSize=40,
        maxSteps=20,
        modelFnParams={"rate": 0.5}, np=2,
    )  # fmt: skip
    return HorovodEstimator(**(given | more))


LOAD = """
import sys, numpy as np, tensorflow as tf
found = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](x=tf.constant([[3.0, 1.0], [-3.0, -1.0]]))
print(found["classes"].numpy().tolist(), [n for n in sys.modules if n.split(".")[0] in ("hora", "horovod", "sparkdl")])
print(tf.train.list_variables(tf.train.latest_checkpoint(sys.argv[2])))
"""


@longer
def test_a_model_is_trained_kept_and_gone_on_with(table, tmp_path):
    folder = tmp_path / "model"
    fitted = estimator(folder, isValidationCol="held").fit(table)
    assert [h["step"] for h in fitted.history] == [20] and fitted.history[0]["val_accuracy"] > 0.9
    found = fitted.transform(table).orderBy("point")
    assert found.schema["predictions"].dataType.simpleString() == "struct<probabilities:array<double>,classes:bigint>"
    rows = found.collect()
    assert np.mean([r.predictions.classes == r.label for r in rows]) > 0.9
    assert all(abs(sum(r.predictions.probabilities) - 1) < 1e-5 for r in rows)
    listed = (
        hora.spark.predict(fitted, table, output="said").orderBy("point").collect()
    )  # all that it predicts, one after the other
    assert [r.said for r in listed] == [[*r.predictions.probabilities, r.predictions.classes] for r in rows]
    assert glob.glob(f"{folder}/events.out.tfevents.*") and glob.glob(f"{folder}/eval/events.out.tfevents.*")
    (exported,) = glob.glob(f"{folder}/export/*")
    clean = os.environ | {"PYTHONPATH": str(beside.folder("tensorflow"))}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, exported, str(folder)], env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("[1, 0] []\n") and "('global_step', [])" in done.stdout, (
        done.stdout + done.stderr
    )

    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    estimator(folder, maxSteps=30).write().overwrite().save(str(tmp_path / "unfitted"))
    from sparkdl.estimators.horovod_estimator.estimator import HorovodEstimator, TFTransformer

    kept = hora.spark.predict(str(tmp_path / "fitted"), table, output="said").orderBy("point").collect()
    assert [r.said for r in kept] == [r.said for r in listed]
    again = TFTransformer.load(str(tmp_path / "fitted"))
    assert (
        again.transform(table).orderBy("point").select("predictions").collect() == [(r.predictions,) for r in rows]
        and again.history == fitted.history
    )
    further = HorovodEstimator.load(str(tmp_path / "unfitted"))
    assert further.getMaxSteps() == 30 and further.getModelDir() == str(folder)
    assert [h["step"] for h in further.fit(table).history] == [30]
    assert os.path.exists(f"{folder}/model.ckpt-20.index") and os.path.exists(f"{folder}/model.ckpt-30.index")


def heard(folder, mode):
    """What the hooks of each process were called with."""
    return [open(p).read().splitlines() for p in glob.glob(f"{folder}/{mode}.*")]


@longer
@pytest.mark.parametrize("stops", [False, True, "by an error"])
def test_hooks_of_evaluation_and_prediction_are_called(table, tmp_path, stops):
    """Each rank's in each validation, with the trained weights; each worker's that predicts, of a saved one too. The
    first run of a validation may be its last."""
    (tmp_path / "heard").mkdir()
    params = {"rate": 0.5, "heard": str(tmp_path / "heard"), "stops": stops}
    e = estimator(
        tmp_path / "model", modelFnParams=params, isValidationCol="held", batchSize=25, maxSteps=2,
        saveCheckpointsSecs=1e-6,
    )  # fmt: skip
    fitted = e.fit(table)
    ranks, held = heard(tmp_path / "heard", "eval"), 0
    assert len(ranks) == 2
    for said in ranks:
        assert [s for s in said if not s.startswith("run")] == ["begin True", "created True", "end True"] * 2, said
        once = [int(s.split()[1]) for s in said[: said.index("end True")] if s.startswith("run")]
        assert len(once) == 1 if stops else len(once) > 1 and once[0] == 25, said
        held += sum(once)
    assert held == (50 if stops else table.where("held").count())
    for p in (tmp_path / "heard").glob("infer.*"):  # of the rank that looked at what its model gives
        p.unlink()
    got = sorted(fitted.transform(table).collect())  # to sort them Spark would ask for some of the rows twice
    said = heard(tmp_path / "heard", "infer")
    assert said and all(s[:2] == ["begin True", "created True"] for s in said), said
    lines = [line.split() for s in said for line in s[2:]]
    assert sum(int(rows) for word, rows in lines if word == "run") == 400
    assert stops or {word for word, _ in lines} == {"run"}  # one that stops has another session for the rows after that
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    kept = sorted(hora.spark.predict(str(tmp_path / "fitted"), table, output="said").collect())
    assert [r.said for r in kept] == [[*r.predictions.probabilities, r.predictions.classes] for r in got]
    assert sum(int(line.split()[1]) for s in heard(tmp_path / "heard", "infer") for line in s if "run" in line) == 800
    (exported,) = glob.glob(f"{tmp_path}/model/export/*")  # TensorFlow alone has the same model, without the hooks
    import tensorflow as tf

    alone = tf.saved_model.load(exported).signatures["serving_default"]
    assert alone(x=tf.constant([got[0].point]))["classes"].numpy() == [got[0].predictions.classes]


def weights(folder):
    import tensorflow as tf

    found = tf.train.load_checkpoint(str(folder))
    return {n: found.get_tensor(n).tobytes() for n in found.get_variable_to_shape_map()}


@longer
@pytest.mark.parametrize("who", ["worker", "executor"])
def test_a_kill_costs_the_steps_since_the_last_commit(table, tmp_path, who):
    """And the weights are those of a fit that nobody disturbed, which runs beside it."""
    failed = []

    def quiet():
        try:
            estimator(tmp_path / "quiet", isValidationCol="held", batchSize=32).fit(table)
        except Exception as e:
            failed.append(e)

    beside_it = threading.Thread(target=quiet)
    beside_it.start()
    params = {
        "rate": 0.5,
        "dies": str(tmp_path / "died"),
        "begun": str(tmp_path / "begun"),
        "executor": who == "executor",
    }
    killed = estimator(
        tmp_path / "killed", modelFnParams=params, saveCheckpointsSecs=1e-6, isValidationCol="held", batchSize=32
    ).fit(table)
    beside_it.join()
    if failed:
        raise failed[0]
    assert os.path.exists(tmp_path / "died")
    begun = [int(line) for line in (tmp_path / "begun").read_text().split()]
    assert len(begun) == 2 and begun[0] == 0 and begun[1] in (11, 12), begun
    print(killed.history)
    assert [h["step"] for h in killed.history] == list(range(1, 21))  # those before the restart too
    assert all("val_accuracy" in h for h in killed.history)
    assert weights(tmp_path / "killed") == weights(tmp_path / "quiet")


@longer
def test_a_cross_validator_s_fits_run_at_once_in_folders_of_their_own(table, tmp_path):
    """A fold that went on in another's folder would be at maxSteps already, with what that one learned."""
    from pyspark.ml.evaluation import Evaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    class Right(Evaluator):
        def _evaluate(self, dataset):
            return np.mean([r.predictions.classes == r.label for r in dataset.select("predictions", "label").collect()])

    e = estimator(tmp_path, np=1)
    grid = (
        ParamGridBuilder().addGrid(e.modelFnParams, [{"rate": 0.5}, {"rate": -0.5}]).build()
    )  # the second learns the opposite
    found = CrossValidator(
        estimator=e, estimatorParamMaps=grid, evaluator=Right(), numFolds=2, parallelism=2, seed=1
    ).fit(table)
    assert found.avgMetrics[0] > 0.9 > 0.1 > found.avgMetrics[1], found.avgMetrics
    folders = glob.glob(f"{tmp_path}/maps/*")
    assert len(folders) == 4 and all(glob.glob(f"{f}/model.ckpt-20.index") for f in folders), folders
    assert os.path.exists(f"{tmp_path}/model.ckpt-20.index") and found.bestModel.getModelDir() == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modelFn": None}, "modelFn is missing"),
        ({"modelFn": lambda x: x}, "takes no argument `features`"),
        ({"featureMapping": {}}, "featureMapping={}; give a mapping from column"),
        ({"featureMapping": {"nope": "x"}}, "the table has no column 'nope'"),
        ({"labelCol": "lable"}, "the table has no label column 'lable'; it has point, label, held"),
        ({"modelDir": "s3://bucket/x"}, "modelDir='s3://bucket/x' is a URL"),
        ({"modelDir": "/proc/nowhere"}, "cannot be written"),
        ({"maxSteps": 0}, "maxSteps=0; give a whole number, 1 or more"),
        ({"saveCheckpointsSecs": -1}, "saveCheckpointsSecs=-1; give seconds"),
        ({"isValidationCol": "hold"}, "no validation column 'hold'; did you mean 'held'"),
    ],
)
def test_refused_before_the_job(table, tmp_path, given, said):
    with pytest.raises(Exception, match=said.replace("(", r"\(").replace("{}", r"\{\}")):
        estimator(**({"folder": tmp_path, "restarts": 0} | given)).fit(table)


def canned(features, labels, mode):
    import tensorflow as tf

    return tf.estimator.DNNClassifier([8])


def untrained(features, labels, mode, params, config):
    import tensorflow as tf

    if mode == tf.estimator.ModeKeys.EVAL:
        tf.compat.v1.get_variable("scale", ())
    return model_fn(features, labels, mode, params, config)


@longer
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modelFn": canned}, "tf.estimator.DNNClassifier is not in TensorFlow 2"),
        (
            {"modelFnParams": {"rate": 0.5, "wrapped": False}},
            "the ranks' weights differ after a step .* hvd.DistributedOptimizer",
        ),
        (
            {"modelFn": untrained, "isValidationCol": "held"},
            "modelFn makes scale for evaluation or prediction and not for training, .* make it in every mode",
        ),
    ],
)
def test_refused_by_the_ranks(table, tmp_path, given, said):
    with pytest.raises(Exception, match=said):
        estimator(tmp_path, restarts=0, **given).fit(table)


def test_a_prediction_of_one_number_is_one_for_predict():
    from sparkdl.estimators.horovod_estimator._saved import Saved
    from sparkdl.estimators.horovod_estimator.estimator import TFTransformer

    for kind, width, said in (("bigint", None, "bigint"), ("float", None, "double"), ("float", 1, "array<double>")):
        saved = Saved("", {"point": "x"}, [("", "predictions", width, kind)], True)
        saved._session = types.SimpleNamespace(run=lambda names, fed: [fed["x"] * 2])
        fitted = TFTransformer()
        fitted.saved = saved
        model, loads, features, found = fitted.for_predict(None)
        assert (loads, features, found) == (False, ["point"], said)
        assert model({"point": np.array([1, 2])}).shape == ((2,) if width is None else (2, 1))
    with pytest.raises(ValueError, match="TFTransformer: it is empty"):
        TFTransformer().for_predict(None)
