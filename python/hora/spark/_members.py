"""Fitted models of any kind, asked in one way: for probabilities of classes, or for values.

Known are estimators with `predict`, xgboost's and lightgbm's `Booster`, torch modules, and functions of a mapping of
columns.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError


def known(model: Any) -> Asked:
    """The model with one way to be asked; raises where it is of no known kind. A torch module is set to evaluate."""
    return model if isinstance(model, Asked) else kind_of(model)(model)


def kind_of(model: Any) -> type[Asked]:
    """What asks such a model, which stays as it is; raises where it is of no known kind."""
    for cls in type(model).__mro__:
        root, name = cls.__module__.partition(".")[0], cls.__name__
        if (root, name) == ("torch", "Module"):
            return _Torch
        if (root, name) == ("xgboost", "Booster"):
            return _XGBoost
        if (root, name) == ("lightgbm", "Booster"):
            return _LightGBM
    if callable(getattr(model, "predict", None)):
        return Asked
    if callable(model) and not isinstance(model, type):
        return _Function
    raise ArgumentError(
        f"a model of type {type(model).__module__}.{type(model).__qualname__} is not known: it has no predict and cannot be called; return "
        "a fitted estimator, a Booster of xgboost or lightgbm, a torch module, or a function of a mapping of columns"
    )


class Asked:
    """An estimator with `predict` and, perhaps, `predict_proba`; the others derive from it."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def classes(self) -> np.ndarray | None:
        """What the columns of `proba` stand for, where the model says so."""
        found = getattr(self.model, "classes_", None)
        return None if found is None else np.asarray(found)

    def proba(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Probabilities, a row each; None where the model has none."""
        ask = getattr(self.model, "predict_proba", None)
        return None if ask is None else np.asarray(ask(x))

    def answer(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Labels or values."""
        return np.asarray(self.model.predict(x))

    def threads(self, count: int) -> None:
        """How many threads the model may use."""
        set_params = getattr(self.model, "set_params", None)
        if set_params is not None and getattr(self.model, "n_jobs", None) is not None:
            try:
                set_params(n_jobs=count)
            except (TypeError, ValueError):
                pass

    def place(self, gpu: str) -> None:
        """The address of the GPU that the task has."""

    def settle(self, threads: int, gpu: str) -> None:
        """What the task has that asks it: threads, and a GPU by its address, or none."""
        self.threads(threads)
        if gpu:
            self.place(gpu)


def _softmax(margins: np.ndarray) -> np.ndarray:
    e = np.exp(margins - margins.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _shares(out: np.ndarray) -> np.ndarray:
    """Probabilities of logits; rows that are probabilities already stay as they are."""
    whole = len(out) and bool((out >= 0).all()) and np.allclose(out.sum(axis=1), 1, atol=1e-3)
    return out if whole else _softmax(out)


def _two(p: np.ndarray) -> np.ndarray:
    p = p.reshape(-1)
    return np.stack([1 - p, p], axis=1)


def _likeliest(model: Asked, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    p = model.proba(x, columns)
    assert p is not None
    classes = model.classes()
    best = p.argmax(axis=1)
    return best if classes is None else classes[best]


class _XGBoost(Asked):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        import json

        learner = json.loads(model.save_config())["learner"]
        self.objective = learner["learner_train_param"]["objective"]

    def classes(self) -> np.ndarray | None:
        return None

    def _ask(self, x: np.ndarray, kind: str) -> np.ndarray:
        # A model with names would refuse an array, which has none.
        return np.asarray(self.model.inplace_predict(x, predict_type=kind, validate_features=False))

    def proba(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if self.objective == "multi:softprob":
            return self._ask(x, "value").reshape(len(x), -1)
        if self.objective == "multi:softmax":  # which answers with labels, but has the same margins
            return _softmax(self._ask(x, "margin").reshape(len(x), -1))
        if self.objective in ("binary:logistic", "reg:logistic"):
            return _two(self._ask(x, "value"))
        if self.objective == "binary:logitraw":
            return _two(1 / (1 + np.exp(-self._ask(x, "margin"))))
        return None

    def answer(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        if self.objective in ("multi:softprob", "multi:softmax", "binary:logistic", "binary:logitraw"):
            return _likeliest(self, x, columns)
        return self._ask(x, "value")

    def threads(self, count: int) -> None:
        self.model.set_param({"nthread": count})

    def place(self, gpu: str) -> None:
        self.model.set_param({"device": f"cuda:{gpu}"})


class _LightGBM(Asked):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        said = [line for line in model.model_to_string(num_iteration=1).splitlines() if line.startswith("objective=")]
        self.objective = said[0].removeprefix("objective=").split()[0] if said else ""
        self.count = 0

    def classes(self) -> np.ndarray | None:
        return None

    def _ask(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(x, **({"num_threads": self.count} if self.count else {})))

    def proba(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if self.objective in ("multiclass", "multiclassova"):
            return self._ask(x).reshape(len(x), -1)
        return _two(self._ask(x)) if self.objective == "binary" else None

    def answer(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        return (
            _likeliest(self, x, columns)
            if self.objective in ("multiclass", "multiclassova", "binary")
            else self._ask(x)
        )

    def threads(self, count: int) -> None:
        self.count = count


class _Torch(Asked):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        model.eval()

    def _ask(self, x: np.ndarray) -> np.ndarray:
        import torch

        first = next(self.model.parameters(), None)
        with torch.no_grad():
            given = torch.from_numpy(np.ascontiguousarray(x))
            given = given.to(first.device, first.dtype) if first is not None else given.float()
            out = self.model(given)
        if not isinstance(out, torch.Tensor) or out.ndim == 0 or len(out) != len(x):
            raise ArgumentError("a torch module must return one tensor with a row for each row that it is given")
        return out.float().cpu().numpy()

    def outputs(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """What the module returns, as it is."""
        return self._ask(x)

    def proba(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Two and more outputs are classes: logits, but for rows that are probabilities already."""
        out = self._ask(x)
        if out.ndim != 2 or out.shape[1] < 2:
            return None
        return _shares(out)

    def answer(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        out = self._ask(x)
        if out.ndim == 1 or out.shape[1] == 1:
            return out.reshape(-1)
        best, classes = out.reshape(len(out), -1).argmax(axis=1), self.classes()
        return best if classes is None else classes[best]

    def threads(self, count: int) -> None:
        import torch

        torch.set_num_threads(count)

    def place(self, gpu: str) -> None:
        self.model.to(torch_device(gpu))


def torch_device(gpu: str) -> str:
    """Where a torch model goes that Spark gave this GPU: a torch without devices keeps it on the processor, and says
    so."""
    import warnings

    import torch

    if torch.cuda.is_available():
        return f"cuda:{gpu}"
    warnings.warn(f"Spark gave this task GPU {gpu}, but this torch sees none: the model stays on the CPU", stacklevel=2)
    return "cpu"


class _Function(Asked):
    """Columns in, one row of probabilities or one value out. One with `on_task` is told of what the task has."""

    def settle(self, threads: int, gpu: str) -> None:
        told = getattr(self.model, "on_task", None)
        if told is not None:
            told(threads, gpu)

    def _ask(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(self.model(columns))

    def outputs(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """What the function returns, as it is."""
        return self._ask(columns)

    def proba(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
        out = self._ask(columns)
        return out if out.ndim == 2 and out.shape[1] > 1 else None

    def answer(self, x: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        out = self._ask(columns)
        if out.ndim == 1:
            return out
        classes = self.classes()
        best = out.argmax(axis=1)
        return best if classes is None else classes[best]


class Constant:
    """Stands for an estimator in a partition that has one class only, of which the estimator can learn nothing."""

    def __init__(self, value: Any) -> None:
        self.classes_ = np.array([value])

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(self.classes_, len(x))

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.ones((len(x), 1))


def is_estimator(base: Any) -> bool:
    return callable(getattr(base, "fit", None))


def check_base(base: Any, vote: str, who: str) -> None:
    """What can be said about a base before anything runs."""
    if isinstance(base, type):
        raise ArgumentError(f"{who}: base is the class {base.__name__}; give an estimator, such as {base.__name__}()")
    if is_estimator(base):
        if not callable(getattr(base, "predict", None)):
            raise ArgumentError(
                f"{who}: base (a {type(base).__name__}) has fit but no predict; give an estimator that predicts"
            )
        if vote == "soft" and not hasattr(base, "predict_proba"):
            raise ArgumentError(
                f"{who}: base (a {type(base).__name__}) has no predict_proba, so it cannot vote softly; say vote='hard' for classes or "
                "vote='mean' for values" + (", or give it probability=True" if hasattr(base, "probability") else "")
            )
    elif not callable(base):
        raise ArgumentError(
            f"{who}: base is a {type(base).__name__}; give an estimator with fit and predict, or a function of one argument, a mapping from "
            "column to NumPy array, that returns a fitted model"
        )


def classifies(base: Any) -> bool:
    """Whether an estimator answers with classes: it has probabilities, or says so, as scikit-learn's do in its tags or,
    before it had those, in an attribute."""
    if hasattr(base, "predict_proba") or getattr(base, "_estimator_type", "") == "classifier":
        return True
    try:
        return base.__sklearn_tags__().estimator_type == "classifier"
    except Exception:  # of an estimator that has none, or whose class is written for another release
        return False


def fit(base: Any, columns: Mapping[str, np.ndarray], x: np.ndarray, label: str) -> tuple[Any, np.ndarray | None, str]:
    """A fitted model, the classes its answers are positions in (None: they are the labels themselves), and a remark."""
    if not is_estimator(base):
        model = base(columns)
        if model is None:
            raise ArgumentError(
                f"the function {getattr(base, '__name__', base)!r} returned nothing; let it return the fitted model"
            )
        known(model)
        return model, None, ""
    y = columns[label]
    model = copy.deepcopy(base)
    root = type(base).__module__.partition(".")[0]
    if classifies(base):
        classes = np.unique(y)
        if root == "xgboost" and not (classes.dtype.kind in "fiu" and np.array_equal(classes, np.arange(len(classes)))):
            model.fit(x, np.searchsorted(classes, y))  # it wants classes without gaps, counted from 0
            return model, classes, ""
        if len(classes) == 1:
            try:
                model.fit(x, y)
                if known(model).answer(x[:1], {})[0] == classes[0]:
                    return model, None, f"one class only ({classes[0]})"
            except Exception:
                pass
            return (
                Constant(classes[0]),
                None,
                f"one class only ({classes[0]}), of which the estimator learns nothing: a constant votes for it",
            )
    model.fit(x, y)
    return model, None, ""
