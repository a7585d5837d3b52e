"""Classes in SQL that trains: their number, text for labels, and sessions that several have registered SQL on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _trainers, register_sql

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def sql(spark):
    x = np.random.default_rng(0).normal(size=(200, 2))
    rows = [([float(a), float(b)], int(a > 0), int(a > 0) + int(b > 0), "right" if a > 0 else "left") for a, b in x]
    spark.createDataFrame(rows, "features array<double>, two int, three int, side string").createOrReplaceTempView(
        "points"
    )
    yield register_sql(spark)
    spark.catalog.dropTempView("points")


def objective(blob):
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(bytearray(blob))
    learner = json.loads(booster.save_config())["learner"]
    return learner["learner_train_param"]["objective"], int(learner["learner_model_param"]["num_class"])


@longer
def test_a_classifier_s_objective_is_that_of_its_classes(sql):
    """Of all rows: a reducer that has seen one class less has the others' probabilities."""
    train = "select train_xgboost_classifier(features, {}{}) from (select * from points distribute by least({}, 1))"
    sql("set mapred.reduce.tasks=2")
    assert {objective(r.model) for r in sql(train.format("two", "", "two")).collect()} == {("binary:logistic", 0)}
    assert {objective(r.model) for r in sql(train.format("three", "", "three")).collect()} == {("multi:softprob", 3)}
    assert {objective(r.model) for r in sql(train.format("three", ", '-num_class 5'", "three")).collect()} == {
        ("multi:softprob", 5)
    }
    assert {
        objective(r.model)[0] for r in sql(train.format("two", ", '-objective binary:logitraw'", "two")).collect()
    } == {"binary:logitraw"}
    for labels, said in (
        ("two - 1", "labels go from -1 to 0; number the classes 0, 1, …"),
        ("side", "labels are text, and xgboost takes"),
    ):
        with pytest.raises(hora.ArgumentError, match=said):
            sql(f"select train_xgboost_classifier(features, {labels}) from points")
    with pytest.raises(
        hora.ArgumentError, match="-objective binary:logistic is of classes; say train_xgboost_classifier"
    ):
        sql("select train_xgboost_regr(features, two, '-objective binary:logistic') from points")
    with pytest.raises(hora.HoraError, match="labels are text, and xgboost takes numbers"):
        sql("select train_xgboost(features, side) from points")
    sql("set mapred.reduce.tasks=-1")


@longer
def test_labels_of_text(spark, sql):
    sql(
        "select train_randomforest(features, side, '-trees 5 -seed 1') from (select * from points distribute by 1)"
    ).createOrReplaceTempView("f")
    got = sql("select side, predict_model_label(model, features) as said from points cross join f").collect()
    assert sum(r.side == r.said for r in got) > 195
    with pytest.raises(
        Exception, match=r"the model's labels are text \('\w+'\); use predict_model_label, which gives text"
    ):
        sql("select predict_model(model, features) from points cross join f").collect()
    assert len(sql("select predict_model_proba(model, features) as p from points cross join f").first().p) == 2
    assert _trainers.texts([1.0, None, 2.5, "a"]) == ["1", None, "2.5", "a"]
    spark.catalog.dropTempView("f")


@longer
def test_an_ensemble_of_labels_of_text_predicts(spark):
    from sklearn.tree import DecisionTreeClassifier

    table = spark.createDataFrame(
        [(float(i % 7), "low" if i % 7 < 3 else "high") for i in range(60)], "a double, label string"
    )
    model = hora.spark.PartitionEnsemble(DecisionTreeClassifier(), n=2, features=["a"]).fit(table)
    for scored in (hora.spark.predict(model, table), model.transform(table)):
        assert (
            scored.schema["prediction"].dataType.simpleString() == "string"
            and scored.where("prediction = label").count() == 60
        )


def test_a_session_has_one_lock(spark, sql):
    assert register_sql(spark)._lock is sql._lock
    assert register_sql(spark.range(1).sparkSession)._lock is sql._lock
    assert register_sql(spark.newSession())._lock is not sql._lock
