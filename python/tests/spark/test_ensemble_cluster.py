"""PartitionEnsemble and batch inference on a Spark cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import sessions
from sample import classic, longer, soak

import hora
from hora.spark import PartitionEnsemble, _batches, _ensemble_cluster, _frames, _members, _scoring, _work, predict
from hora.spark._ensemble_cluster import places

pd = pytest.importorskip("pandas")
functions = pytest.importorskip("pyspark.sql.functions")


def tree(**how):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=0, **how)


def booster(columns):
    import numpy as np
    import xgboost

    x = np.column_stack([columns[c] for c in "abc"])
    data = xgboost.DMatrix(x, label=columns["label"])
    return xgboost.train({"objective": "multi:softprob", "num_class": 2, "max_depth": 3, "nthread": 1}, data, 5)


@pytest.fixture(scope="module")
def rows():
    x = np.random.default_rng(0).normal(size=(600, 3))
    return pd.DataFrame(x, columns=list("abc")).assign(
        label=(x[:, 0] > 0).astype(int), town=np.array(["n", "s", "w"])[np.arange(600) % 3]
    )


@pytest.fixture(scope="module")
def frame(spark, rows):
    found = spark.createDataFrame(rows).repartition(4).cache()
    found.count()
    return found


def test_each_place_is_a_partition_of_its_own(spark):
    from pyspark.sql import functions as F

    many = 23
    frame = spark.createDataFrame([(p,) for p in places(many)], "place int").repartition(many, "place")
    got = {r.place: r.at for r in frame.withColumn("at", F.spark_partition_id()).collect()}
    assert [got[p] for p in places(many)] == list(range(many))


def remembering(columns):
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_depth=2).fit(columns["x"][:, None], columns["label"])
    model.seen = columns["x"].tolist()
    return model


@pytest.mark.parametrize("how", ["rows", "in turn", pytest.param("home", marks=longer)])
def test_a_task_fits_several_small_members(how, spark, monkeypatch):
    """Forty members are not forty tasks, and each has just its own rows, in the members' order."""
    told = []
    count = _ensemble_cluster._tasks
    monkeypatch.setattr(_ensemble_cluster, "_tasks", lambda *a: told.append(count(*a)) or told[-1])
    if how == "in turn":
        monkeypatch.setattr(_ensemble_cluster, "_FEW", 0)
    many = 1200
    frame = spark.range(many, numPartitions=4).selectExpr(
        "cast(id as double) as x", "cast(id div 40 % 2 as int) as label", "cast(id % 40 as int) as home"
    )
    settings = {"by": "home"} if how == "home" else {}
    ensemble = PartitionEnsemble(remembering, n=40, features="x", vote="hard", **settings)
    model = ensemble.fit(frame)
    assert 40 / 32 <= told[0] < 40, told
    if how == "in turn":
        again = ensemble.fit(frame)
        assert [sorted(m.seen) for m in again.models] == [sorted(m.seen) for m in model.models]
    assert [r["partition"] for r in model.report] == list(range(40))
    seen = [m.seen for m in model.models]
    assert sorted(x for xs in seen for x in xs) == list(range(many))
    sizes = [len(xs) for xs in seen]
    assert [r["rows"] for r in model.report] == sizes
    if how == "in turn":
        assert 25 <= min(sizes) and max(sizes) <= 35, sizes
    else:
        assert sizes == [30] * 40
    if how == "home":
        assert [{x % 40 for x in xs} for xs in seen] == [{i} for i in range(40)]


def test_how_many_tasks_members_take(monkeypatch):
    monkeypatch.setattr(_ensemble_cluster._cluster, "slots", lambda spark: 4)
    monkeypatch.setattr(_ensemble_cluster._cluster, "dynamic", lambda spark: False)
    small, large = 1 << 20, 1 << 34
    assert [_ensemble_cluster._tasks(None, many, small) for many in (1, 16, 17, 100, 1000)] == [1, 16, 4, 4, 32]
    assert _ensemble_cluster._tasks(None, 100, large) == 100  # 160 MiB each
    monkeypatch.setattr(_ensemble_cluster._cluster, "dynamic", lambda spark: True)
    assert _ensemble_cluster._tasks(None, 100, small) == 100  # executors come for tasks that wait
    for many, tasks in ((100, 4), (23, 7), (5, 5)):
        taken = places(many, tasks)
        assert len(set(taken)) == many
        assert [_ensemble_cluster._murmur(p) % tasks for p in taken] == [i % tasks for i in range(many)]


def test_values_to_split_by_are_found_in_the_look_at_the_rows(spark, frame, monkeypatch):
    """A job of its own for them took as long as the look."""
    from pyspark.sql import functions as F

    looked = _frames.looked_at(frame, "fit", by="town", most=3)
    assert (looked.rows, sorted(looked.values)) == (600, [("n", 200), ("s", 200), ("w", 200)])
    more = {"all": F.sum("label")}
    assert _frames.looked_at(frame, "fit", more=more, by="town", most=3).more == {
        "all": frame.where("label = 1").count()
    }
    assert _frames.looked_at(frame, "fit", by="town", most=2).values is None
    homes, known = _ensemble_cluster._homes, []
    monkeypatch.setattr(_ensemble_cluster, "_homes", lambda *a: known.append(sorted(a[3])) or homes(*a))
    models = PartitionEnsemble(tree(max_depth=2), n=3, features=list("abc"), by="town").fit(frame).models
    assert len(models) == 3 and known == [[("n", 200), ("s", 200), ("w", 200)]]


def test_rows_of_a_task_go_to_their_members_in_the_order_in_which_they_came():
    import pyarrow as pa

    number = np.array([7, 3, 7, 9, 3, 7], dtype=np.int32)
    whole = pa.table({"hora_place": number, "x": np.arange(6.0), "town": list("abcdef")})
    table = pa.concat_tables([whole.slice(0, 4), whole.slice(4)])
    homes = _ensemble_cluster.Homes(4, 1, [9, 5, 3, 7])
    got = {
        part: (its["x"].to_pylist(), its["town"].to_pylist()) for part, its in _ensemble_cluster.parted(table, homes, 0)
    }
    assert got == {0: ([3.0], ["d"]), 2: ([1.0, 4.0], ["b", "e"]), 3: ([0.0, 2.0, 5.0], ["a", "c", "f"])}
    ((part, its),) = _ensemble_cluster.parted(whole.filter(number == 3), homes, 0)
    assert part == 2 and its["x"].to_pylist() == [1.0, 4.0]


def test_an_estimator_tells_probabilities_once_in_a_process(rows, monkeypatch):
    """The other members are of the same, but for a constant, which stands for one that learned nothing."""
    asked = []
    proba = _members.Asked.proba
    monkeypatch.setattr(_members.Asked, "proba", lambda self, *a: asked.append(type(self.model)) or proba(self, *a))
    base = tree(max_depth=1)
    model = PartitionEnsemble(base, n=5, features=list("abc"), workers=0).fit(rows)
    assert asked == [type(base)] and all(m.classes.tolist() == [0, 1] for m in model.ensemble.members)
    asked.clear()
    few = rows.assign(part=np.arange(600) % 4)
    few.loc[few.part == 0, "label"] = 1
    monkeypatch.setattr(_members, "fit", refusing(_members.fit))
    model = PartitionEnsemble(base, n=4, by="part", features=list("abc"), workers=0).fit(few)
    assert asked == [_members.Constant, type(base)] and len(model.models) == 4


def refusing(fit):
    def fitted(base, columns, x, label):
        if len(np.unique(columns[label])) == 1:
            return _members.Constant(columns[label][0]), None, ""
        return fit(base, columns, x, label)

    return fitted


def test_infinities_are_values_and_no_holes(spark):
    """They add up to NaN, as a row with NaN does."""
    inf, nan = float("inf"), float("nan")
    data = [(1.0, 2.0, [1.0], 1, "x"), (inf, -inf, [inf], 2, "y")]
    kinds = "a double, b double, c array<double>, d int, e string"
    looked = _frames.looked_at(spark.createDataFrame(data, kinds), "fit")
    assert (looked.rows, looked.nans, looked.widths) == (2, {}, {"c": 1})
    with_nans = [*data, (nan, 1.0, [nan], 1, "x"), (1.0, 1.0, [nan], 1, "x")]
    assert _frames.looked_at(spark.createDataFrame(with_nans, kinds), "fit").nans == {"a": 1, "c": 2}
    for at, name in enumerate("abcde"):
        hole = [[None]] if name == "c" else []
        for value in (None, *hole):
            row = (1.0, 2.0, [1.0], 1, "x")
            holes = spark.createDataFrame([*data, (*row[:at], value, *row[at + 1 :])], kinds)
            with pytest.raises(hora.ArgumentError, match=rf"^fit: there are null values in '{name}' \(1\);"):
                _frames.looked_at(holes, "fit")


def test_a_cluster_fits_the_parts_of_a_frame(spark, frame, rows):
    from pyspark.sql import functions as F

    told = []
    model = PartitionEnsemble(
        booster, n=4, features=list("abc"), progress=lambda done, of: told.append((done, of))
    ).fit(frame)
    assert [r["rows"] for r in model.report] == [150] * 4
    assert told[-1] == (4, 4) and told == sorted(told)
    assert (model.predict(rows) == rows.label).mean() > 0.95
    scored = model.transform(frame.withColumn("note", F.lit("text")))  # text goes not through Python
    assert scored.columns == ["a", "b", "c", "label", "town", "note", "prediction", "probability"]
    got = scored.toPandas()
    assert np.array_equal(got.prediction, model.predict(got)) and np.allclose(
        np.array(got.probability.tolist()), model.predict_proba(got)
    )


@pytest.mark.parametrize(
    "how", [pytest.param("columns", marks=longer), "both", "town", pytest.param("stack", marks=longer)]
)
def test_rows_and_columns_are_dealt_on_the_cluster(how, frame, rows):
    base, settings = tree(max_depth=4), {"n": 3, "features": list("abc"), "by": how}
    if how == "stack":
        settings |= {"by": "rows", "vote": "stack", "validation": 0.2}
    model = PartitionEnsemble(base, **settings).fit(frame)
    counts = [r["rows"] for r in model.report]
    if how == "columns":
        assert counts == [600] * 3 and [m.n_features_in_ for m in model.models] == [2] * 3
    elif how == "stack":
        assert 400 < sum(counts) < 560 and max(counts) - min(counts) <= 1
    else:
        assert counts == [200] * 3
    if how == "town":
        alone = tree(max_depth=4).fit(rows[rows.town == "s"][list("abc")].to_numpy(), rows[rows.town == "s"].label)
        assert np.array_equal(
            alone.predict(rows[list("abc")].to_numpy()), model.models[1].predict(rows[list("abc")].to_numpy())
        )
    assert (model.predict(rows) == rows.label).mean() > 0.8


@pytest.mark.parametrize("kind", [pytest.param("int", marks=longer), "string"])
def test_a_column_of_many_values_is_dealt_in_turn(kind, frame, rows, monkeypatch):
    """More values than the driver takes in are dealt by the cluster, to the partitions that they have without Spark; a
    hash would leave some without a row."""
    from pyspark.sql import functions as F

    monkeypatch.setattr(_ensemble_cluster, "_VALUES", 3)
    values = rows.assign(count=(rows.a * 7).astype(int) % 12)
    part = (F.col("a") * 7).cast("int") % 12
    table = frame.withColumn("count", F.when(part < 0, part + 12).otherwise(part).cast(kind))
    if kind == "string":
        values["count"] = values["count"].astype(str)
    settings = {"n": 10, "features": list("abc"), "by": "count"}
    here = PartitionEnsemble(tree(max_depth=2), **settings, workers=0).fit(values)
    there = PartitionEnsemble(tree(max_depth=2), **settings).fit(table)
    assert [r["rows"] for r in there.report] == [r["rows"] for r in here.report]
    assert np.allclose(there.predict_proba(rows), here.predict_proba(rows))


def test_folders_of_fits_of_long_ago_are_removed(tmp_path):
    for name, age in (("hora-ensemble-0-old", 90000), ("hora-ensemble-0-new", 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "place.0").touch()
        os.utime(tmp_path / name / "place.0", (time.time() - age,) * 2)
    with _work.turn(str(tmp_path / "hora-ensemble-0-mine"), 1) as place:
        assert place == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hora-ensemble-0-mine", "hora-ensemble-0-new"]


@longer
def test_a_thousand_rows_a_model_come_in_turn(spark):
    frame = spark.range(60_000, numPartitions=3).selectExpr(
        "cast(id % 7 as double) as x", "cast(id % 2 as int) as label"
    )
    model = PartitionEnsemble(tree(max_depth=2), n=6, features="x").fit(frame)
    assert sum(r["rows"] for r in model.report) == 60_000 and all(9_900 < r["rows"] < 10_100 for r in model.report)


THOUSAND = """
import json, resource, time
from pyspark.sql import SparkSession
from hora.spark import PartitionEnsemble
from hora.spark._work import resident

def base(columns):
    from sklearn.tree import DecisionTreeClassifier
    model = DecisionTreeClassifier(max_depth=2).fit(columns["x"][:, None], columns["label"])
    model.seen = columns["x"].tolist()
    return model

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "1g").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
frame = spark.range(10_000, numPartitions=4).selectExpr("cast(id as double) as x", "cast(id % 2 as int) as label")
began, before, told = time.monotonic(), resident(), []
ensemble = PartitionEnsemble(base, n=1000, features="x", vote="hard", progress=lambda done, of: told.append(done))
model = ensemble.fit(frame)
print(json.dumps({
    "seconds": time.monotonic() - began, "grown": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before,
    "bytes": sum(len(m.blob) for m in model.ensemble.members), "told": told[-1],
    "partitions": [r["partition"] for r in model.report], "rows": [r["rows"] for r in model.report],
    "seen": [m.seen for m in model.models],
}))
"""


@soak
@classic
def test_a_thousand_partitions_of_ten_rows_on_two_slots():
    """Exactly as many models, in order, each of its own rows; the driver holds little more than them."""
    done = subprocess.run([sys.executable, "-c", THOUSAND], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    megabytes = [round(said[k] / 1e6, 1) for k in ("grown", "bytes")]
    print(
        f"1,000 partitions: {said['seconds']:.0f} s; {megabytes[0]} MB more on the driver for {megabytes[1]} MB of models"
    )
    assert said["partitions"] == list(range(1000)) and said["told"] == 1000 == len(said["seen"])
    assert said["rows"] == [10] * 1000 == [len(rows) for rows in said["seen"]]
    assert sorted(x for rows in said["seen"] for x in rows) == list(range(10_000))
    assert said["grown"] < 512 << 20


@pytest.mark.skipif(
    os.environ.get("HORA_SPARK") != "all", reason="test_ensemble.py has the main path (make test-spark)"
)
def test_pipelines_keep_estimator_and_model(spark, frame, rows, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler

    stages = [
        VectorAssembler(inputCols=list("abc"), outputCol="features"),
        PartitionEnsemble(tree(), n=2, prediction="p"),
    ]
    Pipeline(stages=stages).save(str(tmp_path / "pipeline"))
    fitted = Pipeline.load(str(tmp_path / "pipeline")).fit(frame)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    got = PipelineModel.load(str(tmp_path / "fitted")).transform(frame).select("a", "b", "c", "label", "p").toPandas()
    assert (got.p == got.label).mean() > 0.95
    ensemble = fitted.stages[1]
    ensemble.save(str(tmp_path / "model"))
    with pytest.raises(hora.ArgumentError, match="is there already"):
        ensemble.save(str(tmp_path / "model"))
    scored = predict(str(tmp_path / "model"), fitted.stages[0].transform(frame), probability="shares")
    assert scored.where("prediction <> label").count() < 30 and "shares" in scored.columns
    code = "import sys; sys.modules['pyspark'] = None; import numpy as np; from hora.spark import PartitionEnsembleModel as M; "
    code += "print(len(M.load(sys.argv[1]).predict(np.zeros((5, 3)))))"
    assert (
        subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True).stdout == "5\n"
    )


def test_bad_frames_get_a_sentence(spark, frame, tmp_path, monkeypatch):
    from pyspark.sql import functions as F

    def wrong(columns):
        raise ValueError("no such luck")

    (tmp_path / "only_here.py").write_text(
        "class Estimator:\n def fit(self, x, y): pass\n def predict(self, x): pass\n predict_proba = predict\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    nulls = frame.withColumn("b", F.when(F.col("a") > 0, F.col("b")))
    ragged = frame.select("label", F.when(F.col("a") > 0, F.array("a", "b")).otherwise(F.array("a")).alias("features"))
    cases = [
        (
            tree(),
            {"features": ["a", "b"]},
            nulls,
            r"there are null values in 'b' \(\d+\); fill or drop such rows first",
        ),
        (tree(), {}, ragged, r"the lists of column 'features' have from 1 to 2 values"),
        (tree(), {}, frame.select("label", F.create_map("a", "b").alias("m")), r"column 'm' holds map<double,double>"),
        (tree(), {"features": ["a", "town"]}, frame, "feature 'town' holds no numbers"),
        (tree(), {"label": "lable"}, frame, "no label column 'lable'; did you mean 'label'"),
        (tree(), {}, frame.where("a > 1e9"), "the table has no rows"),
        (tree(), {"features": "a", "n": 700}, frame, r"100 of 700 partitions \(600, .*as the table has 600; lower n"),
        (
            tree(),
            {"features": "a", "n": 5, "by": "town"},
            frame,
            r"2 of 5 partitions \(3, 4\) have no rows, as the column 'town' has too few",
        ),
        (
            wrong,
            {"features": "a", "n": 2},
            frame,
            r"(?s)partition 0 \(300 rows\) failed: ValueError: no such luck \(2 of 2 .*in wrong",
        ),
        (
            only_here.Estimator(),
            {"features": "a"},
            frame,
            r"have no package 'only_here'; install it in the Python of all workers",
        ),
    ]
    for base, how, table, words in cases:
        with pytest.raises(hora.HoraError, match=words):
            PartitionEnsemble(base, **how).fit(table)
    assert "raise spark.driver.maxResultSize" in str(
        _frames.explained(RuntimeError("bigger than spark.driver.maxResultSize (1024.0 MiB)"), "fit")
    )
    assert "install hora's wheel" in str(
        _frames.explained(RuntimeError("ModuleNotFoundError: No module named 'hora'"), "fit")
    )


def linear():
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(np.eye(3), [1.0, 2.0, 3.0])


def test_rows_that_fail_are_listed(spark, frame, rows):
    from pyspark.sql import functions as F

    counted = []
    holes = frame.drop("town").withColumn("b", F.when(F.col("a") < 2, F.col("b")))
    got = predict(linear(), holes, features=list("abc"), progress=lambda *n: counted.append(n)).toPandas()
    bad = got.prediction_error.notna()
    assert (bad == (got.a >= 2)).all() and got[bad].prediction.isna().all()
    assert set(got[bad].prediction_error) == {"column 'b' is null"} and (
        not counted if sessions.CONNECT else counted[-1] == (600, int(bad.sum()))
    )
    assert np.allclose(got[~bad].prediction, linear().predict(got[~bad][list("abc")].to_numpy()))

    def picky(columns):
        if (columns["a"] > 2).any():
            raise ValueError("too large")
        return columns["a"] * 2

    for beside in ([], ["town"]):
        got = predict(picky, frame.select("a", *beside), features="a", batch_bytes=400).toPandas()
        bad = got.prediction_error.notna()
        assert bad.sum() == (rows.a > 2).sum() > 0 and set(got[bad].prediction_error) == {"ValueError: too large"}
        assert np.allclose(got[~bad].prediction, got[~bad].a * 2)
    with pytest.raises(Exception, match="too large"):
        predict(picky, frame, features="a", errors=None).collect()


@longer
def test_a_batch_whose_rows_all_fail_is_listed(spark):
    """A thousand of them are a model that is broken, and one is a row."""

    def never(columns):
        raise ValueError("no such model")

    table = spark.range(3, numPartitions=3).selectExpr("cast(id as double) as a")
    got = predict(never, table, features="a", returns="double").collect()
    assert [r.prediction_error for r in got] == ["ValueError: no such model"] * 3
    many = spark.range(2000, numPartitions=1).selectExpr("cast(id as double) as a")
    with pytest.raises(Exception, match="fails on each of the first 1000 rows of a batch"):
        predict(never, many, features="a", returns="double").collect()


def test_what_a_function_loads_is_loaded_anew_by_the_next_call(spark, tmp_path):
    """Spark's workers go on from job to job: predictions were the earlier file's on those that had it."""
    at = str(tmp_path / "factor")

    def load():
        with open(at) as f:
            factor = float(f.read())
        return lambda columns: columns["a"] * factor

    table = spark.range(8, numPartitions=8).selectExpr("cast(id as double) as a")
    for factor in (2.0, 3.0):
        (tmp_path / "factor").write_text(str(factor))
        got = predict(load, table, features="a", returns="double").collect()
        assert all(r.prediction == r.a * factor for r in got), (factor, got)


def test_vectors_that_are_null(spark):
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import StructField, StructType

    rows = [(Vectors.dense([1.0, 2.0]),), (None,), (Vectors.sparse(2, {1: 5.0}),)]
    table = spark.createDataFrame(rows, StructType([StructField("v", VectorUDT())]))
    got = predict(lambda columns: columns["v"].sum(axis=1), table, features="v", returns="double").collect()
    assert sorted((r.prediction or 0, r.prediction_error) for r in got) == [
        (0, "column 'v' is null"),
        (3.0, None),
        (5.0, None),
    ]


WAYS = ["arrays", "series"] if hasattr(functions, "arrow_udf") else ["series"]


@pytest.fixture(params=WAYS if os.environ.get("HORA_SPARK") == "all" else WAYS[:1])
def carried(request, monkeypatch):
    """Each way that features take to Python: Arrow's arrays, where Spark knows functions of them, and pandas' series
    (make test-spark)."""
    if request.param == "series":
        monkeypatch.setattr(_batches, "of_arrays", lambda spark: False)


@longer
@classic
def test_nothing_but_features_goes_to_python_and_once(carried, spark, frame, rows):
    counted = []
    scored = predict(linear(), frame, features=list("abc"), progress=lambda *n: counted.append(n))
    got = scored.where(
        "prediction > 0 and prediction_error is null"
    ).toPandas()  # for which the model is asked once all the same
    assert counted[-1] == (600, 0) and len(got) == (linear().predict(rows[list("abc")].to_numpy()) > 0).sum()
    plan = scored._jdf.queryExecution().executedPlan().toString()
    (python,) = [line for line in plan.splitlines() if "EvalPython" in line]
    assert "town" not in python and "label" not in python and "MapInArrow" not in plan


@longer
def test_ragged_rows_and_holes_are_listed_whatever_their_type(carried, spark):
    data = [([1.0, 2.0], 1, 0.5, "x"), ([3.0], 1, 0.5, "x"), ([1.0, 1.0], None, 0.5, "x"), ([2.0, 0.0], 2, None, None),
            ([None, 0.0], 2, 1.0, "x"), (None, 2, 1.0, "x"), ([0.0, 0.0], 7, 1.0, "x")]  # fmt: skip
    table = spark.createDataFrame(data, "pair array<double>, whole bigint, part double, note string").coalesce(1)

    def total(columns):
        return columns["pair"].sum(axis=1) + columns["whole"] + columns["part"]

    got = predict(total, table, features=["pair", "whole", "part"]).collect()
    assert [r.prediction for r in got] == [4.5, None, None, None, None, None, 8.0]
    assert [r.prediction_error for r in got] == [
        None, "column 'pair' has 1 values where other rows have 2", "column 'whole' is null", "column 'part' is null",
        "column 'pair' is null", "column 'pair' is null", None,
    ]  # fmt: skip
    for wrong, words in (
        ("size(pair) = 1 or whole = 7", "lists of column 'pair' have from 1 to 2"),
        ("part is null", "'part' has 1 null"),
    ):
        with pytest.raises(Exception, match=words):
            predict(
                total, table.where(wrong), features=["pair", "whole", "part"], errors=None, returns="double"
            ).collect()


@longer
def test_partitions_without_rows_are_predicted_and_fitted(carried, spark, frame, rows):
    sparse = frame.where("a > 2.2").repartition(12, "a")
    assert sparse.select(functions.spark_partition_id()).distinct().count() < 12
    got = predict(linear(), sparse, features=list("abc")).toPandas()
    assert len(got) == (rows.a > 2.2).sum() and np.allclose(
        got.prediction, linear().predict(got[list("abc")].to_numpy())
    )
    nothing = predict(linear(), frame.where("a > 1e9"), features=list("abc"), probability=None)
    assert nothing.collect() == [] and nothing.schema["prediction"].dataType.simpleString() == "double"
    model = PartitionEnsemble(tree(), n=2, features=list("abc")).fit(frame.where("a > 1").repartition(40, "a"))
    assert sum(r["rows"] for r in model.report) == (rows.a > 1).sum()
    assert len(model.transform(sparse).collect()) == len(got)


@longer
def test_a_model_is_loaded_once_a_worker(spark, frame, tmp_path):
    seen = str(tmp_path)

    def load():
        import os
        import tempfile

        import torch

        os.close(tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=seen)[0])
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[1.0, 0, 0], [-1, 0, 0]]))
            model.bias.zero_()
        return model

    scored = predict(load, frame.repartition(8), features=list("abc"), probability="p", threads=1)
    assert scored.schema["prediction"].dataType.simpleString() == "bigint"
    got = scored.toPandas()
    assert (got.prediction == (got.a < 0)).all() and np.allclose(
        got.p.map(max), 1 / (1 + np.exp(-2 * got.a.abs())), atol=1e-5
    )
    pids = [name.split("-")[0] for name in os.listdir(seen)]
    assert len(pids) == len(set(pids)) <= 5


def test_a_fitted_model_tells_its_type_without_a_job_and_stays_as_it_is(spark, frame, monkeypatch):
    import torch

    monkeypatch.setattr(_scoring, "_asked_there", None)
    module, threads = torch.nn.Linear(3, 2), torch.get_num_threads()
    scored = predict(module, frame, features=list("abc"))
    assert scored.schema["prediction"].dataType.simpleString() == "bigint"
    assert module.training and torch.get_num_threads() == threads


def test_predictions_have_the_types_of_what_the_model_says(spark, frame):
    cases = [
        (lambda columns: np.where(columns["a"] > 0, "up", "down"), "string"),
        (lambda columns: columns["a"] > 0, "boolean"),
        (lambda columns: np.stack([columns["a"]] * 3, axis=1), "array<double>"),
    ]
    for model, kind in cases:

        def asked(columns, model=model):
            return model(columns)

        scored = predict(asked, frame, features="a", returns=kind if kind.startswith("array") else None)
        assert scored.schema["prediction"].dataType.simpleString() == kind
        first = scored.first()
        want = model({"a": np.array([first.a])})[0]
        assert first.prediction == (want.tolist() if kind == "array<double>" else want)


def test_what_cannot_be_predicted_is_told_before_the_job(spark, frame, rows, tmp_path):
    def broken():
        raise OSError("the model is away")

    fitted = tree().fit(rows[list("abc")].to_numpy(), rows.label)
    cases = [
        (fitted, {"features": ["a", "bb"]}, "no column 'bb'; did you mean 'b'"),
        (fitted, {}, "features is missing; name the columns"),
        (
            fitted,
            {"features": ["a", "b"]},
            r"the model fails on the first row: ValueError: X has 2 features, .*look whether features=",
        ),
        (broken, {"features": "a"}, "the model cannot be loaded: OSError: the model is away"),
        (fitted, {"features": list("abc"), "output": "label"}, "has a column 'label' already; say output="),
        (fitted, {"features": list("abc"), "returns": "decimal"}, "returns='decimal' is not known; say double"),
        (3, {"features": "a"}, "a model of type builtins.int is not known"),
        (type(fitted), {"features": "a"}, "model is the class DecisionTreeClassifier"),
        (fitted, {"features": "town"}, "feature 'town' holds no numbers|holds no numbers"),
    ]
    for model, how, words in cases:
        with pytest.raises(hora.HoraError, match="(?s)" + words):
            predict(model, frame, **how)
    for made, kind in (
        ("map(a, b)", "map<double,double>"),
        ("struct(a, b)", "struct<a:double,b:double>"),
        ("array(town)", "array<string>"),
    ):
        with pytest.raises(
            hora.ArgumentError, match=f"predict: column 'm' holds {kind}, of which no array is made; turn it into"
        ):
            predict(fitted, frame.selectExpr(f"{made} as m"), features="m")
    with pytest.raises(hora.ArgumentError, match="give a Spark DataFrame"):
        predict(fitted, rows, features="a")
