"""PartitionEnsemble without Spark: how tables become columns, who is fitted on what, how votes are counted, what bad
input gets."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import PartitionEnsemble, PartitionEnsembleModel, _plan, _travel, _votes, _work

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order[450:]], y[order[450:]], x[order[:450]], y[order[:450]]


def two_classes(rows: int = 240):
    source = np.random.default_rng(1)
    x = source.normal(size=(rows, 4))
    return x, (x[:, 0] + x[:, 1] > 0).astype(int)


def tree(**how):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=0, **how)


@pytest.mark.parametrize("by", ["rows", "columns", "both"])
def test_an_ensemble_reads_digits(by):
    from sklearn.ensemble import RandomForestClassifier

    x, y, test, truth = digits()
    base = RandomForestClassifier(20, random_state=0)
    model = PartitionEnsemble(base, n=4, by=by, workers=0, seed=1).fit(x, y)
    right = (model.predict(test) == truth).mean()
    members = [
        (_votes.answer(m, model.ensemble.layout, {"features": test}) == truth).mean() for m in model.ensemble.members
    ]
    if by == "rows":
        one = (base.fit(x, y).predict(test) == truth).mean()
        assert right > one - 0.02 and right > np.mean(members), (right, one, members)
    else:
        assert right > max(members), (right, members)
        assert [len(m.subset) for m in model.ensemble.members] == [32] * 4


# Bases: each fits two classes in four columns. `x` is the matrix, as a column of lists.
def xgb(objective, **more):
    def base(columns):
        import xgboost

        data = xgboost.DMatrix(columns["x"], label=columns["label"])
        return xgboost.train({"objective": objective, "max_depth": 3, "nthread": 1, **more}, data, 8)

    return base


def lgb(columns):
    import lightgbm

    data = lightgbm.Dataset(columns["x"], columns["label"])
    return lightgbm.train(
        {"objective": "multiclass", "num_class": 2, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3}, data, 8
    )


def net(columns):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x, y = torch.tensor(columns["x"], dtype=torch.float32), torch.tensor(columns["label"])
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(40):
        opt.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    return model


def rule(columns):
    at = float(np.median(columns["x"][:, 0]))

    def model(given):
        p = (given["x"][:, 0] > at).astype(float)
        return np.stack([1 - p, p], axis=1)

    return model


def estimators():
    import lightgbm
    import xgboost
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return [
        tree(), make_pipeline(StandardScaler(), LogisticRegression()), xgboost.XGBClassifier(n_estimators=8, n_jobs=1),
        lightgbm.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1, min_child_samples=3),
        xgb("multi:softprob", num_class=2), xgb("multi:softmax", num_class=2), xgb("binary:logistic"), lgb, net, rule,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "which", [0, *(pytest.param(n, marks=longer) for n in range(1, 8)), 8, pytest.param(9, marks=longer)]
)
def test_models_of_every_kind_vote(which, tmp_path):
    x, y = two_classes()
    base = estimators()[which]
    table = {"x": x, "label": y}
    model = PartitionEnsemble(base, n=3, workers=0).fit(table)
    assert len(model.models) == 3 and model.classes.tolist() == [0, 1]
    p = model.predict_proba(table)
    assert p.shape == (len(x), 2) and np.allclose(p.sum(axis=1), 1, atol=1e-5)
    assert (model.predict(table) == y).mean() > (0.6 if base is rule else 0.8)
    hard = PartitionEnsemble(base, n=3, vote="hard", workers=0).fit(table)
    assert set(np.round(hard.predict_proba(table) * 3, 6).ravel()) <= {0, 1, 2, 3}  # equal weights: thirds
    model.save(tmp_path / "m")
    assert np.array_equal(PartitionEnsembleModel.load(tmp_path / "m").predict_proba(table), p)


def test_a_booster_answers_as_its_framework_does():
    import xgboost

    x, y = two_classes()
    model = PartitionEnsemble(xgb("multi:softprob", num_class=2), n=1, workers=0).fit({"x": x, "label": y})
    assert np.allclose(model.predict_proba({"x": x}), model.models[0].predict(xgboost.DMatrix(x)), atol=1e-6)


def test_classes_that_a_partition_lacks_are_aligned():
    import xgboost

    x = np.random.default_rng(0).normal(size=(400, 3))
    y = np.array(["ant", "bee", "cat", "dog"])[np.arange(400) % 4]
    x[:, 0] += (np.arange(400) % 4) * 5
    town = np.where(np.isin(y, ["ant", "cat"]), "east", "west")
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(label=y, town=town)
    for base in (tree(), xgboost.XGBClassifier(n_estimators=5, n_jobs=1)):  # which wants classes 0, 1, … and gets them
        model = PartitionEnsemble(base, n=2, by="town", workers=0).fit(frame)
        assert [r["classes"] for r in model.report] == [["ant", "cat"], ["bee", "dog"]]
        assert model.classes.tolist() == ["ant", "bee", "cat", "dog"]
        p = model.predict_proba(frame)
        assert p.shape == (400, 4) and np.allclose(p.sum(axis=1), 1)
        alone = model.ensemble.members[0]
        said = _votes.answer(alone, model.ensemble.layout, {k: frame[k].to_numpy()[town == "east"] for k in "abc"})
        assert (said == y[town == "east"]).mean() > 0.95


def test_a_partition_with_one_class_is_reported():
    from sklearn.linear_model import LogisticRegression

    x, y = two_classes()
    frame = pd.DataFrame(x, columns=list("abcd")).assign(
        label=y, key=np.where(np.arange(240) < 60, np.where(y, 0, 2), 1)
    )
    frame = frame[frame.key < 2]
    with pytest.warns(UserWarning, match=r"partition 0: one class only \(1\), of which the estimator learns nothing"):
        model = PartitionEnsemble(LogisticRegression(), n=2, by="key", workers=0).fit(frame)
    assert model.report[0]["classes"] == [1] and model.predict_proba(frame).shape == (len(frame), 2)


@pytest.mark.parametrize("kind", ["LinearSVC", "Perceptron", "SVC"])
def test_a_classifier_of_labels_alone_in_a_partition_of_one_class(kind):
    """It says in its tags that it is one, as it has no probabilities."""
    from sklearn.linear_model import Perceptron
    from sklearn.svm import SVC, LinearSVC

    base = {"LinearSVC": LinearSVC, "Perceptron": Perceptron, "SVC": SVC}[kind]()
    x, y = two_classes()
    frame = pd.DataFrame(x, columns=list("abcd")).assign(label=y, town=np.where(y * (np.arange(240) % 2), "e", "w"))
    with pytest.warns(UserWarning, match=r"partition 0: one class only \(1\)"):
        model = PartitionEnsemble(base, n=2, by="town", vote="hard", features=list("abcd"), workers=0).fit(frame)
    assert model.report[0]["classes"] == [1] and set(model.predict(frame)) <= {0, 1}


def test_a_fitted_ensemble_votes_as_its_param_says(tmp_path):
    """Shares of 1/2 are counted votes, others are weighed probabilities."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    x, y = two_classes()
    soft = PartitionEnsemble(LogisticRegression(), n=2, workers=0).fit(x, y)
    hard = soft.copy({soft.vote: "hard"})
    assert set(np.unique(hard.predict_proba(x))) <= {0.0, 0.5, 1.0} and len(np.unique(soft.predict_proba(x))) > 100
    wanted = PartitionEnsemble(LogisticRegression(), n=2, vote="hard", workers=0).fit(x, y)
    assert np.array_equal(hard.predict_proba(x), wanted.predict_proba(x))
    hard.save(str(tmp_path / "hard"))
    assert np.array_equal(PartitionEnsembleModel.load(tmp_path / "hard").predict(x), hard.predict(x))
    labels = PartitionEnsemble(LinearSVC(), n=2, vote="hard", workers=0).fit(x, y)
    for model, vote, words in (
        (soft, "stack", "needs the model that weighs the others, which fit makes"),
        (soft, "mean", "the models predict classes; say vote='soft' or 'hard'"),
        (soft, "loud", "vote is 'loud'; it is one of soft, hard, mean, stack"),
        (labels, "soft", "model 0 answers without probabilities, so it cannot vote softly; say vote='hard'"),
    ):
        with pytest.raises(hora.ArgumentError, match=words):
            model.copy({model.vote: vote}).predict(x)


def test_small_partitions_are_merged_told_or_refused():
    sizes = [50, 2, 60, 3]
    key = np.repeat([0, 1, 2, 3], sizes)
    x = np.random.default_rng(0).normal(size=(len(key), 2))
    table = {"a": x[:, 0], "b": x[:, 1], "label": (x[:, 0] > 0).astype(int), "key": key}
    with pytest.warns(
        UserWarning, match=r"2 of 4 partitions have less than a tenth of the usual 50 rows: 1 \(2\), 3 \(3\); min_rows="
    ):
        model = PartitionEnsemble(tree(), n=4, by="key", workers=0).fit(table)
    assert [r["rows"] for r in model.report] == sizes and np.allclose(model.weights, np.array(sizes) / 115)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PartitionEnsemble(tree(), n=4, by="key", min_rows=10, workers=0).fit(table)
    assert [(r["merged"], r["rows"]) for r in model.report] == [([], 50), ([1, 2, 3], 65)]
    with pytest.raises(
        hora.ArgumentError,
        match=r"4 of 8 partitions \(4, 5, 6, 7\) have no rows, as the column 'key' has too few values; lower n",
    ):
        PartitionEnsemble(tree(), n=8, by="key", workers=0).fit(table)
    with pytest.warns(UserWarning):
        assert len(PartitionEnsemble(tree(), n=8, by="key", min_rows=1, workers=0).fit(table).models) == 4


def test_merging_keeps_order_and_loses_nothing():
    for seed in range(50):
        source = np.random.default_rng(seed)
        counts = source.integers(0, 6, size=source.integers(1, 12)).tolist()
        if not sum(counts):
            continue
        for least in (1, 4, 9):
            merged = _plan.merge(counts, least, "")
            assert [i for m in merged for i in m] == list(range(len(counts)))
            assert len(merged) == 1 or all(sum(counts[i] for i in m) >= least for m in merged), (seed, counts, merged)


def test_subsets_use_every_column_equally():
    from hora.spark._tables import Layout

    layout = Layout(("x", "y"), (6, 0))
    settings = {"n": 14, "by": "columns", "feature_subsets": None, "seed": 3}
    found = _plan.subsets(settings, layout)
    assert all(len(set(s)) == 4 for s in found) and set(np.bincount(np.concatenate(found))) == {8}
    named = _plan.subsets(settings | {"feature_subsets": [["x[1]", "y"], ["x"], [0, 5]]}, layout)
    assert named[:4] == [[1, 6], [0, 1, 2, 3, 4, 5], [0, 5], [1, 6]]
    with pytest.raises(hora.ArgumentError, match=r"no feature 'x\[9\]'; did you mean 'x\[5\]'"):
        _plan.subsets(settings | {"feature_subsets": [["x[9]"]]}, layout)


def test_a_function_sees_its_subset_of_the_columns():
    def base(columns):
        model = tree().fit(columns["m"], columns["label"])
        model.seen = {k: v.shape for k, v in columns.items()}
        return model

    table = {"m": np.arange(12.0).reshape(4, 3), "z": np.arange(4.0), "label": np.array([0, 1, 0, 1]), "w": np.ones(4)}
    model = PartitionEnsemble(
        base,
        n=2,
        by="columns",
        feature_subsets=[["m[0]", "m[2]"], ["m"]],
        features=["m", "z"],
        extra="w",
        vote="hard",
        workers=0,
    ).fit(table)
    assert [m.seen for m in model.models] == [
        {"m": (4, 2), "label": (4,), "w": (4,)},
        {"m": (4, 3), "label": (4,), "w": (4,)},
    ]
    assert model.predict(table).shape == (4,)


@pytest.mark.parametrize("weight", ["rows", "validation"])
@pytest.mark.parametrize("vote", ["mean", "stack"])
def test_values_are_averaged_or_stacked(vote, weight):
    from sklearn.tree import DecisionTreeRegressor

    x = np.random.default_rng(0).normal(size=(600, 3))
    y = x @ [1.0, 2.0, 3.0]
    model = PartitionEnsemble(DecisionTreeRegressor(), n=4, vote=vote, weight=weight, workers=0).fit(x[:500], y[:500])
    error = np.mean((model.predict(x[500:]) - y[500:]) ** 2)
    assert error < 0.15 * y.var() and model.classes is None
    if vote == "mean" and weight == "rows":
        alone = np.mean([m.predict(x[500:]) for m in model.models], axis=0)
        assert np.allclose(model.predict(x[500:]), alone)
    with pytest.raises(hora.ArgumentError, match="predict values, not classes"):
        model.predict_proba(x)


def test_votes_are_stacked_and_weighed_by_validation():
    x, y, test, truth = digits()
    for how in ({"vote": "stack"}, {"weight": "validation"}, {"vote": "hard", "weight": "validation"}):
        model = PartitionEnsemble(tree(max_depth=8), n=4, workers=0, **how).fit(x, y)
        assert (model.predict(test) == truth).mean() > 0.75, how
        assert all(0.5 < r["score"] <= 1 for r in model.report)
    assert np.ptp(model.weights) > 0


@pytest.mark.parametrize("kind", ["pandas", "arrow", "mapping", "lists"])
def test_tables_of_every_kind_give_the_same(kind):
    x, y = two_classes(60)
    frame = pd.DataFrame(
        {"a": x[:, 0], "b": x[:, 1].astype(np.float32), "c": (x[:, 2] * 10).astype(int), "d": x[:, 3] > 0, "label": y}
    )
    table = {
        "pandas": frame, "arrow": pa.Table.from_pandas(frame), "mapping": {k: frame[k].to_numpy() for k in frame},
        "lists": pd.DataFrame({"features": list(frame[list("abcd")].to_numpy(float)), "label": y}),
    }[kind]  # fmt: skip
    model = PartitionEnsemble(tree(), n=2, workers=0).fit(table)
    want = PartitionEnsemble(tree(), n=2, workers=0).fit(frame).predict(frame)
    assert np.array_equal(model.predict(table), want)
    out = model.transform(table)
    assert np.array_equal(np.asarray(out["prediction"]), want)
    assert np.allclose(
        np.array([list(v) for v in (out["probability"].to_pylist() if kind == "arrow" else out["probability"])]).sum(
            axis=1
        ),
        1,
    )


def test_arrow_slices_and_lists_keep_their_rows():
    from hora.spark._tables import columns_of

    lists = pa.array([[float(i), float(-i)] for i in range(10)])
    cut = pa.table({"x": lists, "i": pa.array(range(10))}).slice(3, 4)
    found = columns_of(cut, None, "test")
    assert found["x"].tolist() == [[3, -3], [4, -4], [5, -5], [6, -6]] and found["i"].tolist() == [3, 4, 5, 6]
    fixed = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)).slice(1)
    assert columns_of(pa.table({"x": fixed}), None, "test")["x"].tolist() == [[3, 4]]
    decimals = pa.array([1, 2]).cast(pa.decimal128(30, 2))
    assert columns_of(pa.table({"d": decimals}), None, "test")["d"].tolist() == [1.0, 2.0]


def bad_tables():
    import decimal

    y = [0, 1, 0, 1]
    return {
        "column 'a' has 1 null value; fill or drop such rows first": pa.table({"a": [1.0, None, 2.0, 3.0], "label": y}),
        "the lists of column 'a' have from 1 to 3 values": pa.table(
            {"a": [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0]], "label": y}
        ),
        "the lists of column 'b' have from 1 to 2 values": pd.DataFrame({"b": [[1], [1, 2], [1], [2]], "label": y}),
        "feature 'c' holds no numbers; encode it": pd.DataFrame({"c": list("wxyz"), "label": y}),
        "no label column 'label'; did you mean 'labels'": pd.DataFrame({"c": [1, 2, 3, 4], "labels": y}),
        "the table has no column but label": pd.DataFrame({"label": y}),
        "column 'm' holds map<": pa.table(
            {"m": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())), "label": y}
        ),
        "column 's' holds struct<": pa.table({"s": [{"u": 1}] * 4, "label": y}),
        "column 'o' holds builtins?.?object|column 'o' holds object": pd.DataFrame({"o": [object()] * 4, "label": y}),
        "column 'e' has 2 null values": pd.DataFrame(
            {"e": [decimal.Decimal(1), None, None, decimal.Decimal(2)], "label": y}
        ),
        "the label column 'label' has 1 NaN": pd.DataFrame({"a": [1.0, 2, 3, 4], "label": [0, 1, np.nan, 1]}),
        "columns have different numbers of rows: a 3, label 4": {"a": np.ones(3), "label": np.array(y)},
        "a table of type list is not known; give a pandas DataFrame": [[1, 2]],
    }


@pytest.mark.parametrize("words", list(bad_tables()))
def test_bad_tables_get_a_sentence(words):
    with pytest.raises(hora.ArgumentError, match=words):
        PartitionEnsemble(tree(), n=2, workers=0).fit(bad_tables()[words])


def bad_settings():
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    return {
        r"has no predict_proba, so it cannot vote softly; say vote='hard'": (LinearSVC(), {}),
        r"cannot vote softly; say vote='hard' for classes or vote='mean'": (DecisionTreeRegressor(), {}),
        r"base is the class DecisionTreeClassifier; give an estimator": (DecisionTreeClassifier, {}),
        r"has fit but no predict": (StandardScaler(), {}),
        r"base is a str; give an estimator": ("tree", {}),
        r"there is no base": (None, {}),
        r"n is 0; give the number of models": (tree(), {"n": 0}),
        r"vote is 'median'; it is one of": (tree(), {"vote": "median"}),
        r"weight is 'size'; it is 'rows' or": (tree(), {"weight": "size"}),
        r"min_rows is 0": (tree(), {"min_rows": 0}),
        r"validation is 1.5; give the part": (tree(), {"validation": 1.5}),
        r"feature_subsets goes with by='columns'": (tree(), {"feature_subsets": 2}),
        r"feature_subsets asks for 9 columns of 4": (tree(), {"feature_subsets": 9, "by": "columns"}),
        r"feature_subsets has 3 subsets for n=2": (tree(), {"feature_subsets": [["a"]] * 3, "by": "columns"}),
        r"by is 'rows', 'columns', 'both' or the name of a column: the table has no column 'row'": (
            tree(),
            {"by": "row"},
        ),
        r"6 of 16 partitions \(10, 11, 12, 13, 14, 15\) have no rows, as the table has 10": (tree(), {"n": 16}),
        r"the table has no column 'aa'; did you mean 'a'": (tree(), {"features": ["aa"]}),
    }


@pytest.mark.parametrize("words", list(bad_settings()))
def test_bad_settings_get_a_sentence(words):
    base, how = bad_settings()[words]
    x = np.random.default_rng(0).normal(size=(10, 4))
    frame = pd.DataFrame(x, columns=list("abcd")).assign(label=[0, 1] * 5)
    with pytest.raises(hora.ArgumentError, match=words):
        PartitionEnsemble(base, workers=0, **({"n": 2} | how)).fit(frame)


def test_what_goes_wrong_in_a_partition_is_told_with_its_number():
    x, y = two_classes(40)
    table = {"x": x, "label": y}

    def wrong(columns):
        return 1 / 0

    def nothing(columns):
        pass

    def odd(columns):
        return "a text"

    def labels_only(columns):
        return lambda given: np.zeros(len(given["x"]))

    def absent(columns):
        import no_such_trainer  # noqa: F401

    for base, words in (
        (wrong, r"partition 0 \(20 rows\) failed: ZeroDivisionError: division by zero\n.*in wrong"),
        (nothing, r"the function 'nothing' returned nothing; let it return the fitted model"),
        (odd, r"a model of type builtins.str is not known"),
        (
            labels_only,
            r"its model \(a builtins.function\) answers without probabilities, so it cannot vote softly; say vote='hard'",
        ),
        (absent, r"there is no package 'no_such_trainer' on .*; install it in the Python of all workers"),
    ):
        with pytest.raises(hora.HoraError, match="(?s)" + words):
            PartitionEnsemble(base, n=2, workers=0).fit(table)


def test_a_base_that_cannot_be_pickled_is_named():
    lock = threading.Lock()

    def base(columns):
        with lock:
            return tree().fit(columns["features"], columns["label"])

    with pytest.raises(
        hora.ArgumentError, match=r"base \(a function\) cannot be pickled.*uses the variable 'lock' \(a _thread.lock\)"
    ):
        PartitionEnsemble(base, n=2, workers=0).fit(*two_classes(20))


def test_processes_fit_what_this_one_does_and_their_output_harms_nothing(tmp_path):
    x, y = two_classes(90)
    calls = []

    def base(columns):
        print("this goes to standard error")
        return tree().fit(columns["features"], columns["label"])

    far = PartitionEnsemble(base, n=5, workers=2, progress=lambda done, of: calls.append((done, of))).fit(x, y)
    near = PartitionEnsemble(base, n=5, workers=0).fit(x, y)
    assert np.array_equal(far.predict_proba(x), near.predict_proba(x))
    assert sorted(calls) == [(i, 5) for i in range(1, 6)]
    assert far.report[0]["memory"] > 0 and all(r["seconds"] >= 0 for r in far.report)


def test_a_process_that_dies_is_an_error():
    def base(columns):
        if len(columns["label"]) and columns["features"][:, 0].max() > 100:
            os.kill(os.getpid(), 9)
        return tree().fit(columns["features"], columns["label"])

    x, y = two_classes(60)
    x[7, 0] = 1000
    with pytest.raises(
        hora.HoraError, match=r"its process was ended by signal 9; perhaps memory ran out: give workers= a lower number"
    ):
        PartitionEnsemble(base, n=3, workers=2).fit(x, y)


def test_as_many_fits_at_once_as_memory_holds(tmp_path):
    assert _work.at_once({"memory": 1 << 30}, 16, 10 << 30) == 8
    assert _work.at_once({"memory": 1 << 30}, 4, 10 << 30) == 4
    assert _work.at_once({"memory": 64 << 30}, 4, 10 << 30) == 1
    folder = str(tmp_path / "turns")
    most, now, guard = [0], [0], threading.Lock()
    first = threading.Event()

    def work():
        with _work.turn(folder, 8) as place:
            with guard:
                now[0] += 1
                most[0] = max(most[0], now[0])
                if place is not None:
                    assert now[0] == 1 and not first.is_set()
            if place is not None:
                first.set()
                _work.tell_first(folder, 3)
            threading.Event().wait(0.02)
            with guard:
                now[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert now[0] == 0 and most[0] <= 3


NO_SPARK = """
import sys
sys.modules["pyspark"] = None
import numpy as np
from hora.spark import PartitionEnsemble, PartitionEnsembleModel
from sklearn.tree import DecisionTreeClassifier
model = PartitionEnsembleModel.load(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], model.predict_proba(x))
again = PartitionEnsemble(DecisionTreeClassifier(), n=2, workers=0).fit(x, x[:, 0] > 0)
again.save(sys.argv[1] + "-again")
print(again.copy().getOrDefault("vote"), PartitionEnsemble.load(sys.argv[4]).settings()["n"])
"""


def test_many_partitions_are_as_many_models():
    """1,000 in the soak; the ordinary run has 100 of them."""
    n = 1000 if os.environ.get("HORA_SOAK") else 100
    x, y = two_classes(10 * n)
    model = PartitionEnsemble(tree(max_depth=2), n=n, workers=0).fit(x, y)
    assert len(model.models) == n and [r["rows"] for r in model.report] == [10] * n
    assert (model.predict(x) == y).mean() > 0.9


def test_a_folder_is_read_where_there_is_no_spark(tmp_path):
    x, y = two_classes(60)
    ensemble = PartitionEnsemble(tree(), n=3, workers=0)
    model = ensemble.fit(x, y)
    model.save(tmp_path / "model")
    ensemble.save(tmp_path / "estimator")
    np.save(tmp_path / "x.npy", x)
    given = [tmp_path / "model", tmp_path / "x.npy", tmp_path / "p.npy", tmp_path / "estimator"]
    done = subprocess.run([sys.executable, "-c", NO_SPARK, *map(str, given)], capture_output=True, text=True)
    assert done.stdout == "soft 3\n", done.stderr
    assert np.array_equal(np.load(tmp_path / "p.npy"), model.predict_proba(x))
    again = PartitionEnsembleModel.load(tmp_path / "model-again")
    assert len(again.models) == 2
    with pytest.raises(hora.ArgumentError, match="is there already; remove it"):
        model.save(tmp_path / "model")
    model.write().overwrite().save(str(tmp_path / "model"))
    with pytest.raises(hora.ArgumentError, match=r"holds a hora.spark.PartitionEnsemble, not a fitted ensemble"):
        PartitionEnsembleModel.load(tmp_path / "estimator")
    with pytest.raises(hora.ArgumentError, match="has no metadata/part-00000"):
        PartitionEnsembleModel.load(tmp_path / "nothing")
    for part in (tmp_path / "model" / "data").glob(
        "*.parquet"
    ):  # Spark gives it another name, where a session is active
        part.unlink()
    with pytest.raises(hora.HoraError, match=r"lacks the models \[0, 1, 2\]"):
        PartitionEnsembleModel.load(tmp_path / "model")


def test_packages_that_a_pickle_wants():
    import xgboost

    assert _travel.packages(pickle.dumps(tree())) == ["numpy", "sklearn"] or _travel.packages(pickle.dumps(tree())) == [
        "sklearn"
    ]
    assert "xgboost" in _travel.packages(pickle.dumps(xgboost.XGBClassifier()))
    assert _travel.packages(pickle.dumps({"sys": np.float64(1)})) == ["numpy"]
