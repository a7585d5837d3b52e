"""The trainers that SQL knows, with their options, and the functions that predict with what they give."""

from __future__ import annotations

import difflib
import hashlib
import pickle
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import _members, _travel

NAMES = (
    "train_xgboost", "train_xgboost_classifier", "train_xgboost_regr", "train_randomforest",
    "train_randomforest_classifier",
    "train_randomforest_regressor", "train_classifier", "train_regressor",
)  # fmt: skip

_XGBOOST = """
alpha base_score booster colsample_bylevel colsample_bynode colsample_bytree device disable_default_eval_metric eta eval_metric gamma
grow_policy interaction_constraints lambda learning_rate max_bin max_cat_to_onehot max_delta_step max_depth max_leaves min_child_weight
min_split_loss monotone_constraints normalize_type nthread num_class num_parallel_tree objective one_drop process_type quantile_alpha
rate_drop refresh_leaf reg_alpha reg_lambda sample_type sampling_method scale_pos_weight seed skip_drop subsample tree_method
tweedie_variance_power validate_parameters verbosity num_round
""".split()
_XGBOOST_ALSO = {"iters": "num_round", "num_rounds": "num_round", "num_threads": "nthread"}
_FOREST = {
    "trees": "n_estimators", "num_trees": "n_estimators", "depth": "max_depth", "max_depth": "max_depth",
    "vars": "max_features",
    "num_variables": "max_features", "leafs": "max_leaf_nodes", "max_leaf_nodes": "max_leaf_nodes",
    "splits": "min_samples_split",
    "min_split": "min_samples_split", "min_samples_leaf": "min_samples_leaf", "seed": "random_state",
    "rule": "criterion",
}  # fmt: skip


def options_of(text: str) -> dict[str, Any]:
    """`-eta 0.1 -objective reg:linear` as a mapping; an option without a value is True."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise ArgumentError(f"sql: the options {text!r} cannot be read: {e}") from None
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("-") and not _is_number(word):
            name = word.lstrip("-").replace("-", "_")
            found[name] = True
        elif name and found[name] is True:
            found[name] = _value(word)
        else:
            raise ArgumentError(
                f"sql: in the options {text!r} {word!r} belongs to no option; options are written -name value"
            )
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
        return True
    except ValueError:
        return False


def _value(word: str) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


def _nearest(name: str, known: Any, what: str) -> ArgumentError:
    near = difflib.get_close_matches(name, list(known), 3, 0.5)
    return ArgumentError(
        f"sql: {what} has no option -{name}; "
        + (f"did you mean -{' or -'.join(near)}?" if near else f"it has -{', -'.join(sorted(known))}")
    )


@dataclass
class XGBoost:
    """A booster, as the bytes that Booster.load_model reads."""

    settings: dict[str, Any]
    rounds: int
    asks: bool = False  # how many classes there are, of all rows that it is trained on
    packages: list[str] = field(default_factory=lambda: ["xgboost"])

    def told(self, least: Any, most: Any, name: str) -> None:
        """The least and the largest label say the objective: every reducer's model then has the same classes."""
        if least is None:
            return  # of no rows
        if isinstance(least, str):
            raise ArgumentError(
                f"sql: {name}: labels are text, and xgboost takes numbers: number them 0, 1, …, or take train_randomforest"
            )
        if least < 0 or float(most) != int(most):
            raise ArgumentError(f"sql: {name}: labels go from {least} to {most}; number the classes 0, 1, …")
        self.settings |= (
            {"objective": "binary:logistic"}
            if most <= 1
            else {"objective": "multi:softprob", "num_class": int(most) + 1}
        )
        self.asks = False

    def __call__(self, columns: dict[str, np.ndarray]) -> bytes:
        import xgboost

        if columns["label"].dtype.kind not in "fiub":
            raise ArgumentError(
                "labels are text, and xgboost takes numbers: number them 0, 1, …, or take train_randomforest"
            )
        data = xgboost.DMatrix(_matrix(columns), label=columns["label"])
        return bytes(xgboost.train({"nthread": 1, **self.settings}, data, self.rounds).save_raw("ubj"))


@dataclass
class Forest:
    """A random forest of scikit-learn, pickled."""

    settings: dict[str, Any]
    classifies: bool
    packages: list[str] = field(default_factory=lambda: ["sklearn"])

    def __call__(self, columns: dict[str, np.ndarray]) -> bytes:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        kind = RandomForestClassifier if self.classifies else RandomForestRegressor
        return pickle.dumps(kind(**self.settings).fit(_matrix(columns), columns["label"]), protocol=5)


@dataclass
class Registered:
    """The fitted model that a function of the user's returns, pickled."""

    function: Callable[..., Any]
    options: dict[str, Any]
    packages: list[str] = field(default_factory=list)

    def __call__(self, columns: dict[str, np.ndarray]) -> bytes:
        model = self.function(columns, self.options)
        if model is None:
            raise ArgumentError(
                f"the function {getattr(self.function, '__name__', '')} returned nothing; let it return the fitted model"
            )
        _members.known(model)
        return _travel.pickled_with_code(model, "the fitted model")


def _matrix(columns: dict[str, np.ndarray]) -> np.ndarray:
    x = columns["features"]
    return x if x.ndim == 2 else x[:, None]


def trainer(name: str, text: str, functions: dict[str, Callable[..., Any]]) -> Any:
    """The trainer of a call, its options checked."""
    options = options_of(text)
    if name.startswith("train_xgboost"):
        options = {_XGBOOST_ALSO.get(k, k): v for k, v in options.items()}
        for k in options:
            if k not in _XGBOOST:
                raise _nearest(k, _XGBOOST, name)
        rounds = options.pop("num_round", 10)
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ArgumentError(f"sql: {name}: -num_round is {rounds!r}; give 1 or more")
        if str(options.get("objective", "")).startswith("multi:") and "num_class" not in options:
            raise ArgumentError(
                f"sql: {name}: -objective {options['objective']} needs -num_class, the number of classes"
            )
        if name == "train_xgboost_regr" and str(options.get("objective", "")).startswith(("multi:", "binary:")):
            raise ArgumentError(
                f"sql: {name}: -objective {options['objective']} is of classes; say train_xgboost_classifier"
            )
        if name == "train_xgboost_classifier" and "num_class" in options:
            options.setdefault("objective", "multi:softprob")
        return XGBoost(options, rounds, name == "train_xgboost_classifier" and "objective" not in options)
    if name.startswith("train_randomforest"):
        for k in options:
            if k not in _FOREST:
                raise _nearest(k, _FOREST, name)
        return Forest({_FOREST[k]: v for k, v in options.items()}, not name.endswith("regressor"))
    which = options.pop("fn", options.pop("function", None))
    if which is None:
        raise ArgumentError(f"sql: {name} needs '-fn NAME', a function that sql.register(NAME, function) made known")
    if which not in functions:
        near = difflib.get_close_matches(str(which), list(functions), 3, 0.5)
        raise ArgumentError(
            f"sql: {name}: no function {which!r} is registered; "
            + (f"did you mean {' or '.join(near)}?" if near else f"call sql.register({which!r}, function) first")
        )
    return Registered(functions[which], options)


_models: dict[bytes, Any] = {}


def asked(blob: bytes) -> _members.Asked:
    """The model that a cell of a table holds, kept while the worker lives."""
    key = hashlib.sha256(blob).digest()
    if key not in _models:
        if len(_models) >= 256:
            _models.clear()
        if blob[:1] == b"\x80":  # a pickle's first byte
            _models[key] = _members.known(pickle.loads(blob))
        else:
            import xgboost

            booster = xgboost.Booster()
            booster.load_model(bytearray(blob))
            _models[key] = _members.known(booster)
        _models[key].threads(1)
    return _models[key]


def by_model(models: Any, features: Any, shares: bool) -> list[Any]:
    """Predictions for rows that each name a model; the rows of one model are predicted together."""
    groups: dict[bytes, list[int]] = {}
    for i, blob in enumerate(models):
        if blob is not None and features[i] is not None:
            groups.setdefault(bytes(blob), []).append(i)
    found: list[Any] = [None] * len(models)
    for blob, rows in groups.items():
        model = asked(blob)
        given = [np.atleast_1d(f) for f in features.iloc[rows].tolist()]
        sizes = [len(g) for g in given]
        if min(sizes) != max(sizes):
            raise ArgumentError(
                f"predict_model: the lists of features have from {min(sizes)} to {max(sizes)} values; make them of one length, by cutting or "
                "padding, or leave such rows out"
            )
        x = np.array(given, dtype=float)
        columns = {"features": x}
        said = model.proba(x, columns) if shares else model.answer(x, columns)
        if said is None:
            raise ArgumentError("predict_model_proba: the model has no probabilities; use predict_model")
        for i, v in zip(rows, said.tolist(), strict=True):
            found[i] = v
    return found


def numbers(said: list[Any]) -> list[Any]:
    """The same, where none is text."""
    text = next((v for v in said if isinstance(v, str)), None)
    if text is not None:
        raise ArgumentError(
            f"predict_model: the model's labels are text ({text!r}); use predict_model_label, which gives text"
        )
    return said


def texts(said: list[Any]) -> list[Any]:
    """Labels as text."""
    return [None if v is None else str(int(v)) if isinstance(v, float) and v == int(v) else str(v) for v in said]


def register_predictions(spark: Any) -> None:
    """predict_model(model, features), predict_model_label and predict_model_proba, of the session's SQL."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    def predict_model(model: pd.Series, features: pd.Series) -> pd.Series:
        import pandas as pd

        from hora.spark._trainers import by_model, numbers

        return pd.Series(numbers(by_model(model, features, False)), dtype="float64")

    def predict_model_label(model: pd.Series, features: pd.Series) -> pd.Series:
        import pandas as pd

        from hora.spark._trainers import by_model, texts

        return pd.Series(texts(by_model(model, features, False)), dtype=object)

    def predict_model_proba(model: pd.Series, features: pd.Series) -> pd.Series:
        import pandas as pd

        from hora.spark._trainers import by_model

        return pd.Series(by_model(model, features, True), dtype=object)

    for function, kind in (
        (predict_model, "double"),
        (predict_model_label, "string"),
        (predict_model_proba, "array<double>"),
    ):
        function.__annotations__ = {"model": pd.Series, "features": pd.Series, "return": pd.Series}
        spark.udf.register(function.__name__, pandas_udf(function, kind))
