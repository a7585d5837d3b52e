"""SQL that trains: one model a reducer, in tables, that predicts by a join."""

from __future__ import annotations

import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _sql, _trainers, register_sql

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

TEXT = """
-- one model for each reducer; a semicolon in here; means nothing
set mapred.reduce.tasks=3;
create table {table} as   /* of Spark's own: no Hive is needed */
select train_xgboost(features, label,
    '-objective multi:softmax -num_class 10 -num_round 10') as (model_id, model)
from (
    select features, label from digits  -- ';' and ")" too
    cluster by rand(43)
) shuffled;
select * from {table}
"""


@pytest.fixture(scope="module")
def sql(spark):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    table = pd.DataFrame({"rowid": range(len(y)), "features": [v.tolist() for v in x], "label": y})
    spark.createDataFrame(table, "rowid long, features array<double>, label int").repartition(
        4
    ).createOrReplaceTempView("digits")
    return register_sql(spark)


def test_a_table_of_boosters_predicts_by_a_join(spark, sql):
    import xgboost
    from sklearn.datasets import load_digits

    before = spark.conf.get("spark.sql.shuffle.partitions")
    models = sql(TEXT.format(table="boosters")).toPandas()
    assert sorted(models.model_id) == ["train_xgboost-00000", "train_xgboost-00001", "train_xgboost-00002"]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    x, y = load_digits(return_X_y=True)
    for blob in models.model:
        booster = xgboost.Booster()
        booster.load_model(bytearray(blob))
        assert (booster.predict(xgboost.DMatrix(x)) == y).mean() > 0.85
    joined = sql(
        "select rowid, label, cast(mode(digit) as int) as digit from (select rowid, label, predict_model(model, features) as digit "
        "from digits cross join boosters where rowid % 3 = 0) group by rowid, label"
    ).toPandas()
    assert len(joined) == 599 and (joined.digit == joined.label).mean() > 0.95
    p = sql(
        "select predict_model_proba(model, features) as p from digits cross join boosters where rowid = 7"
    ).toPandas()
    assert len(p) == 3 and all(abs(sum(v) - 1) < 1e-5 and len(v) == 10 for v in p.p)
    spark.sql("drop table boosters")


def test_other_trainers_stand_behind_the_same_form(spark, sql):
    def nearest(columns, options):
        centre = np.stack([columns["features"][columns["label"] == k].mean(axis=0) for k in range(options["classes"])])

        def model(given):
            return -((given["features"][:, None, :] - centre) ** 2).sum(axis=2) / 100

        return model

    sql.register("nearest", nearest)
    forests = sql(
        "with few as (select * from digits where rowid < 900) select count(*) as n, max(length(m)) as size from (select "
        "train_randomforest(features, label, '-trees 5 -depth 6 -seed 1') as (id, m) from (select * from few distribute by rand(1)) t) x"
    ).first()
    assert forests.n == 3 and forests.size > 1000
    sql("set mapred.reduce.tasks=1")
    sql(
        "create or replace temp view centres as select train_classifier(features, label, '-fn nearest -classes 10') from "
        "(select * from digits where rowid < 900 cluster by rand(2))"
    )
    got = sql(
        "select label, predict_model(model, features) as digit from digits cross join centres where rowid >= 900"
    ).toPandas()
    assert (got.digit == got.label).mean() > 0.8
    sql("set mapred.reduce.tasks=-1")


CASES = {
    "there is no trainer train_xgbost; did you mean train_xgboost": "select train_xgbost(features, label) as (a, b) from digits",
    "train_xgboost takes features, label and, quoted, options; it is given 1 argument": "select train_xgboost(features) as (a, b) from digits",
    "the options opts are no quoted text|'opts' are no quoted text": "select train_xgboost(features, label, opts) as (a, b) from digits",
    "train_xgboost gives two columns; say as (model_id, model)": "select train_xgboost(features, label) as (a) from digits",
    "comes as (model_id, model) and then from; here comes 'form digits'": "select train_xgboost(features, label) as (a, b) form digits",
    "the bracket behind train_xgboost is not closed": "select train_xgboost(features, label from digits",
    "train_xgboost stands directly behind select and alone": "select label, train_xgboost(features, label) from digits",
    "has no option -num_rounds_; did you mean -num_round": "select train_xgboost(features, label, '-num_rounds_ 3') from digits",
    "-objective multi:softprob needs -num_class": "select train_xgboost(features, label, '-objective multi:softprob') from digits",
    "-num_round is 0; give 1 or more": "select train_xgboost(features, label, '-num_round 0') from digits",
    "'x' belongs to no option": "select train_xgboost(features, label, 'x') from digits",
    "train_randomforest has no option -tree; did you mean -trees": "select train_randomforest(features, label, '-tree 3') from digits",
    "train_classifier needs '-fn NAME'": "select train_classifier(features, label) from digits",
    "no function 'nobody' is registered; call sql.register": "select train_classifier(features, label, '-fn nobody') from digits",
    "a comment /* has no end": "select /* 1",
    "a text that begins with ' has no end": "select 'a",
    "mapred.reduce.tasks is '0'; give the number of models": "set mapred.reduce.tasks=0",
    "the text has no statement": " ; -- nothing",
    "column 'features' holds map<": "select train_xgboost(map(1, 2), label) from digits",
    "the rows to train on are none": "select train_xgboost(features, label) from digits where rowid < 0",
    "reducer 0: train_xgboost: column 'label' has 599 null values|null value": (
        "select train_xgboost(features, nullif(label % 3, 0)) from (select * from digits distribute by 1)"
    ),
}


@pytest.mark.parametrize("words", list(CASES))
def test_sql_that_is_nearly_right_gets_a_sentence(words, spark, sql):
    with pytest.raises(hora.HoraError) as told:
        sql(CASES[words])
    assert any(w in str(told.value) for w in words.split("|")), str(told.value)


def test_names_that_look_like_trainers():
    """Tables are called so, and functions of the user's where no select stands before them."""
    for text in (
        "insert into train_rows (a, b) values (1, 2)", "create table train_set (id int)",
        "select max(train_loss(x)) from t", "select 'train_xgboost(' from t",
    ):  # fmt: skip
        assert _sql.find(text) is None, text
    two = "select train_xgboost(f, l) as (i, m) from (select f, l from a union select f, l from b) x union all select train_xgboost(g, h) from b"
    first = _sql.find(two)
    assert first.source == " from (select f, l from a union select f, l from b) x "
    assert _sql.find("select * from v " + two[first.end :]).source == " from b"


def test_other_sql_is_the_sessions_own(spark, sql):
    from pyspark.errors import AnalysisException

    assert sql("select 1 as one; select 'train_xgboost(' as two").first().two == "train_xgboost("
    with pytest.raises(AnalysisException, match="no_such_column"):
        sql("select train_xgboost(features, no_such_column) from digits")
    with pytest.raises(hora.ArgumentError, match="is no SparkSession"):
        register_sql("spark")
    with pytest.raises(hora.ArgumentError, match="give a function of"):
        sql.register("name", 3)


def test_statements_are_cut_where_they_end():
    text = 'a \'x;y\' ; /* ; */ b -- ; \n c; `d;e` "f;\\";" /*+ hint */'
    assert [" ".join(s.split()) for s in _sql.statements(text)] == ["a 'x;y'", "b c", '`d;e` "f;\\";" /*+ hint */']
    call = _sql.find(
        "select x from (select train_xgboost(array(a, b), if(c, 1, 0), '-eta 0.1') as (i, m) from t join (u) where (d)) z"
    )
    assert call.arguments == ["array(a, b)", "if(c, 1, 0)", "'-eta 0.1'"] and call.names == ("i", "m")
    assert call.source == " from t join (u) where (d)"
    assert _trainers.options_of("-eta 0.1 -a -1 -verbose -name 'x y'") == {
        "eta": 0.1,
        "a": -1,
        "verbose": True,
        "name": "x y",
    }


@longer
def test_rows_of_odd_lengths_and_holes_are_told(spark, sql):
    rows = [([1.0, 2.0], 1), ([3.0], 0), ([1.0, 4.0], 1), ([1.0, None], 0)]
    spark.createDataFrame(rows, "features array<double>, label int").coalesce(1).createOrReplaceTempView("odd")
    train = (
        "select train_randomforest(features, label, '-trees 2') as (model_id, model) from (select * from odd where {})"
    )
    with pytest.raises(
        hora.HoraError,
        match="reducer 0: .*the lists of column 'features' have from 1 to 2 values; make them of one length",
    ):
        sql(train.format("label < 2"))
    with pytest.raises(hora.HoraError, match="reducer 0: .*column 'features' has 1 null value; fill or drop"):
        sql(train.format("size(features) = 2"))
    sql(train.format("label = 1")).createOrReplaceTempView("even")
    asked = "select predict_model(model, features) as p from odd cross join even where size(features) = 2 and label = 1"
    assert [r.p for r in sql(asked).collect()] == [1.0, 1.0]
    with pytest.raises(
        Exception, match="predict_model: the lists of features have from 1 to 2 values; make them of one length"
    ):
        sql(
            "select predict_model(model, features) as p from odd cross join even where not exists(features, v -> v is null)"
        ).collect()
    for view in ("odd", "even"):
        spark.catalog.dropTempView(view)
