"""PartitionEnsemble on a cluster with bases of other kinds than trees, the votes that need values or held-out rows, and
no more fits at once than memory holds."""

from __future__ import annotations

import numpy as np
import pytest
import test_ensemble
from sample import longer

from hora.spark import PartitionEnsemble, _work, predict

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark.sql.functions")


@pytest.fixture(scope="module")
def rows():
    x, y = test_ensemble.two_classes(400)
    return pd.DataFrame({"x": x.tolist(), "label": y, "value": x @ [1.0, 2.0, 3.0, 4.0], "town": np.arange(400) % 2})


@pytest.fixture(scope="module")
def frame(spark, rows):
    found = spark.createDataFrame(rows, "x array<double>, label long, value double, town long").repartition(4).cache()
    found.count()
    return found


KINDS = {1: "a pipeline", 2: "XGBClassifier", 3: "LGBMClassifier", 5: "xgboost's labels", 7: "lightgbm", 8: "torch"}


@longer
@pytest.mark.parametrize("which", KINDS, ids=KINDS.values())
def test_models_of_every_kind_are_fitted_and_asked_on_the_cluster(which, frame, rows):
    base = test_ensemble.estimators()[which]
    model = PartitionEnsemble(base, n=2, by="town", features="x").fit(frame)
    assert [r["rows"] for r in model.report] == [200, 200] and len(model.models) == 2
    got = model.transform(frame).toPandas()
    table = {"x": np.array(got.x.tolist())}
    assert (got.prediction == got.label).mean() > 0.8
    assert np.allclose(np.array(got.probability.tolist()), model.predict_proba(table), atol=1e-6)
    one = model.models[1]  # a Booster, a module, a pipeline: each alone
    said = predict(one, frame, features="x", probability="shares", output="said").toPandas()
    x = np.array(said.x.tolist())
    assert said.prediction_error.isna().all() and (said.said == said.label).mean() > 0.8
    assert np.allclose(np.array(said.shares.tolist()), own_shares(one, x), atol=1e-5)
    alone = PartitionEnsemble(base, n=2, by="town", features="x", workers=0).fit(rows)
    assert (alone.predict(table) == got.prediction).mean() > 0.95  # of the same rows, which come in another order


def own_shares(model, x):
    """The probabilities as the framework itself gives them."""
    kind = f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}"
    if kind == "xgboost.Booster":
        import xgboost

        margin = model.predict(xgboost.DMatrix(x), output_margin=True)
        return np.exp(margin) / np.exp(margin).sum(axis=1, keepdims=True)
    if kind == "lightgbm.Booster":
        return model.predict(x)
    if kind == "torch.Sequential":
        import torch

        with torch.no_grad():
            return torch.softmax(model(torch.tensor(x, dtype=torch.float32)), dim=1).numpy()
    return model.predict_proba(x)


@longer
@pytest.mark.parametrize("vote", ["mean", "hard"])
@pytest.mark.parametrize("weight", ["rows", "validation"])
def test_values_are_averaged_and_votes_weighed_by_held_out_rows(vote, weight, frame):
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    base, label = (
        (DecisionTreeRegressor(), "value") if vote == "mean" else (DecisionTreeClassifier(max_depth=2), "label")
    )
    settings = {"n": 3, "features": "x", "label": label, "vote": vote, "weight": weight}
    model = PartitionEnsemble(base, **settings, validation=0.2 if weight == "validation" else None).fit(frame)
    fitted = sum(r["rows"] for r in model.report)
    assert fitted == 400 if weight == "rows" else 290 < fitted < 350
    scored = model.transform(frame).toPandas()
    x = np.array(scored.x.tolist())
    assert np.allclose(scored.prediction, model.predict({"x": x}))
    shares = np.array(model.weights) / np.sum(model.weights)
    assert np.allclose(shares, 1 / 3, atol=0.01) if weight == "rows" else np.ptp(shares) > 0
    each = np.array([m.predict(x) for m in model.models])
    if vote == "mean":
        assert np.allclose(scored.prediction, shares @ each)
        assert np.mean((scored.prediction - scored.value) ** 2) < 0.2 * scored.value.var()
        assert "probability" not in scored.columns
    else:
        assert np.array_equal(scored.prediction, (shares @ each > 0.5).astype(int))
        assert (scored.prediction == scored.label).mean() > 0.75


ROOM = 1_700_000_000  # bytes


def hungry(folder, many):
    """A base that takes 500 MB, of which with its packages two fit into ROOM, and writes down how many do so at once; all but the first wait until `many` have met."""

    def base(columns):
        import os
        import time

        import numpy as np
        from sklearn.tree import DecisionTreeClassifier

        from hora.spark import _work

        held = np.ones(500_000_000, np.uint8)
        active, end = os.path.join(folder, "active"), time.monotonic() + 60
        own = os.path.join(active, f"{os.getpid()}")
        open(own, "w").close()
        try:
            if not os.path.exists(os.path.join(folder, "first")):
                free = _work.free

                def room():
                    _work.free = free
                    return ROOM

                if many == 0:  # on the cluster, where this process tells the others
                    _work.free = room
                open(os.path.join(folder, "first"), "w").close()
            else:
                while not os.path.exists(os.path.join(folder, "met")):
                    if len(os.listdir(active)) >= (many or 2):
                        open(os.path.join(folder, "met"), "w").close()
                    elif time.monotonic() > end:
                        raise TimeoutError(f"{os.listdir(active)} are fitted at once")
                    time.sleep(0.01)
            with open(os.path.join(folder, "most"), "a") as f:
                f.write(f"{len(os.listdir(active))}\n")
            model = DecisionTreeClassifier(max_depth=2).fit(columns["x"], columns["label"])
        finally:
            os.remove(own)
        del held
        return model

    return base


@longer
@pytest.mark.parametrize(("room", "many"), [(ROOM, 2), (10 << 30, 4)])
def test_processes_are_as_many_as_memory_holds(rows, tmp_path, monkeypatch, room, many):
    (tmp_path / "active").mkdir()
    monkeypatch.setattr(_work, "free", lambda: room)
    model = PartitionEnsemble(hungry(str(tmp_path), many), n=8, features="x", workers=4).fit(rows)
    assert 500_000_000 <= model.report[0]["memory"] < 700_000_000, model.report
    most = [int(n) for n in (tmp_path / "most").read_text().split()]
    assert len(most) == 8 and most[0] == 1 and max(most) == many, most


@longer
def test_tasks_of_a_host_fit_as_many_at_once_as_memory_holds(frame, tmp_path):
    """Two, on four slots: the first alone, of which the others learn what one takes."""
    (tmp_path / "active").mkdir()
    model = PartitionEnsemble(hungry(str(tmp_path), 0), n=6, features="x").fit(frame)
    assert 500_000_000 <= max(r["memory"] for r in model.report) < 700_000_000, model.report
    most = [int(n) for n in (tmp_path / "most").read_text().split()]
    assert len(most) == 6 and most[0] == 1 and max(most) == 2, most
