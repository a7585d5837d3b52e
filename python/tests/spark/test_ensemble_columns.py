"""Columns of tables that ensembles add, and what is NaN in those that they are fitted on."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hora
from hora.spark import PartitionEnsemble

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def fitted(**more):
    from sklearn.tree import DecisionTreeClassifier

    x = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "label": (x[:, 0] > 0).astype(int)})
    return PartitionEnsemble(DecisionTreeClassifier(), n=2, workers=0, features=["a", "b"], **more).fit(frame), frame


@pytest.mark.parametrize("name", ["prediction", "probability"])
def test_a_column_that_is_there_is_not_replaced(name):
    model, frame = fitted()
    there = frame.assign(**{name: 1.0})
    for table in (there, pa.Table.from_pandas(there), {n: there[n].to_numpy() for n in there}):
        with pytest.raises(
            hora.ArgumentError, match=rf"transform: the table has a column '{name}' already; rename or drop it, or say"
        ):
            model.transform(table)
    model, _ = fitted(**{name: "other"})
    assert "other" in model.transform(there)
    if name == "probability":
        model, _ = fitted(probability="")
        assert list(model.transform(there)["probability"]) == [1.0] * 60


def test_a_column_that_is_there_is_not_replaced_on_spark(spark):
    model, frame = fitted()
    there = spark.createDataFrame(frame)
    for name in ("prediction", "probability"):
        with pytest.raises(hora.ArgumentError, match=f"the table has a column '{name}' already"):
            model.transform(there.withColumnRenamed("label", name))
    assert {"prediction", "probability"} < set(model.transform(there).columns)


def test_nan_in_features_is_told_and_given_as_it_is():
    from sklearn.ensemble import HistGradientBoostingClassifier

    _, frame = fitted()
    frame.loc[::7, "a"] = np.nan
    base = PartitionEnsemble(HistGradientBoostingClassifier(max_iter=5), n=2, workers=0, features=["a", "b"])
    with pytest.warns(
        UserWarning, match=r"PartitionEnsemble.fit: there is NaN in 'a' \(9 rows\), which the model is given as it is"
    ):
        model = base.fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(model.predict(frame)) == 60
    frame.loc[3, "label"] = np.nan
    with pytest.raises(hora.ArgumentError, match=r"the label column 'label' has 1 NaN"):
        base.fit(frame)
