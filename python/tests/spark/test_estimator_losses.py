"""hora.spark.Estimator of a torch module: what weights, metrics and optimizers come to."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster, _losses, _optimizers

torch = pytest.importorskip("torch")


def losses():
    from torch import nn
    from torch.nn import functional as F

    heavy = torch.tensor([1.0, 10.0])
    return {
        "mean": (nn.MSELoss(), 1), "sum": (nn.MSELoss(reduction="sum"), 1), "named": ("mse", 1),
        "partial sum": (functools.partial(F.mse_loss, reduction="sum"), 1),
        "classes": (nn.CrossEntropyLoss(weight=heavy), 2),
        "classes, sum": (nn.CrossEntropyLoss(weight=heavy, reduction="sum"), 2),
        "classes, smoothed": (nn.CrossEntropyLoss(weight=heavy, label_smoothing=0.1), 2),
        "one is ignored": (nn.CrossEntropyLoss(ignore_index=1), 2),
        "partial classes": (functools.partial(F.cross_entropy, weight=heavy), 2),
        "logits": (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])), 1),
        "divergence": (nn.KLDivLoss(reduction="batchmean"), 2),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(losses()))
def test_weights_of_ones_are_no_weights(name):
    from hora.spark import _fit_torch

    function, width = losses()[name]
    torch.manual_seed(0)
    out = torch.randn(6, width)
    y = torch.tensor([0.0, 1, 1, 0, 1, 0])
    if name == "divergence":
        out, y = out.log_softmax(dim=1), torch.rand(6, 2)
    loss = _fit_torch._Loss(function, torch.device("cpu"))
    assert float(loss.weighed(out, y, torch.ones(6))) == pytest.approx(float(loss.mean(out, y)), rel=1e-5)
    twice = torch.tensor([2.0, 0, 0, 0, 0, 0])
    alone = float(_fit_torch._Loss(function, torch.device("cpu")).weighed(out, y, twice))
    assert alone != pytest.approx(float(loss.mean(out, y)), rel=1e-3)


def test_where_a_single_output_says_yes():
    """As the loss has it, whatever the outputs of a batch are."""
    out, y = torch.tensor([[0.2], [0.3], [0.4]]), torch.ones(3)
    for given, right in (("bce_with_logits", 1.0), (torch.nn.BCEWithLogitsLoss(), 1.0), ("bce", 0.0), ("mse", 0.0)):
        assert float(_losses.accuracy(out, y, _losses.threshold(_losses.loss_of(given)))) == right
    assert _losses.threshold(lambda out, y: out.mean()) is None


def made(given, rate=None):
    _optimizers.check(given, rate)
    return _optimizers.made(given, torch.nn.Linear(2, 1), rate).param_groups[0]


def test_an_optimizer_gets_the_rate_where_it_is_given():
    from torch.optim import SGD, Adam

    assert made(functools.partial(Adam, lr=0.25))["lr"] == 0.25
    assert made(functools.partial(Adam, lr=0.25), 0.5)["lr"] == 0.5
    group = made(functools.partial(SGD, momentum=0.9))
    assert (group["lr"], group["momentum"]) == (1e-3, 0.9)
    assert made(lambda p, lr=0.05: SGD(p, lr=lr))["lr"] == 0.05
    assert made(lambda p, lr=0.05: SGD(p, lr=lr), 0.5)["lr"] == 0.5
    assert made(lambda p, rate: SGD(p, lr=rate), 0.5)["lr"] == 0.5
    assert made(lambda p, *, weight_decay=0.1, lr=1: SGD(p, lr, weight_decay=weight_decay), 0.5)["weight_decay"] == 0.1
    assert made(lambda p: SGD(p, lr=0.125))["lr"] == 0.125 and made(Adam)["lr"] == 1e-3 and made(Adam, 0.5)["lr"] == 0.5
    for given, rate, words in (
        (lambda p, rate: SGD(p, rate), None, "wants 'rate'; give learning_rate="),
        (lambda p: SGD(p, 0.1), 0.5, r"takes the parameters alone, and learning_rate=0.5 would do nothing"),
        (lambda p, lr, more: SGD(p, lr), 0.5, "wants 'more' too; give a function"),
        ("adam", None, "optimizer is a str; give a torch.optim optimizer"),
    ):
        with pytest.raises(hora.ArgumentError, match=words):
            _optimizers.check(given, rate)


@pytest.fixture(scope="module")
def table(spark):
    """400 rows: a label of 0 and 1, a quarter that validates and weighs three times as much as the others."""
    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=400)
    rows = [(float(a), float(a > 0), i % 4 == 0, 3.0 if i % 4 == 0 else 1.0) for i, a in enumerate(x)]
    return spark.createDataFrame(rows, "a double, y double, held boolean, w double").repartition(3).cache()


def fitted(table, **more):
    torch.manual_seed(1)
    given = {"features": "a", "label": "y", "np": 2, "epochs": 2, "batch_size": 25, "verbose": False}
    return hora.spark.Estimator(torch.nn.Linear(1, 1), **given | more).fit(table)


def test_rows_that_validate_have_their_own_mean_weight(table):
    found = fitted(
        table, loss="mse", optimizer=functools.partial(torch.optim.SGD, lr=0.1), weight="w", validation="held"
    )
    errors = found.transform(table.where("held")).selectExpr("avg((prediction - y) * (prediction - y)) as e").first().e
    assert found.history[-1]["val_loss"] == pytest.approx(errors, rel=1e-4)


@longer
def test_accuracy_is_that_of_the_loss(table):
    """Also beside the next steps, and with a loss of the user's own, which is looked at once."""

    def own(out, y):
        import torch

        return torch.nn.functional.softplus((1 - 2 * y.reshape(out.shape)) * out)

    for loss in ("bce_with_logits", own):
        given = {"loss": loss, "optimizer": torch.optim.Adam, "learning_rate": 0.1, "metrics": ["accuracy"]}
        found = fitted(table, **given, validation="held")
        right = (
            found.transform(table.where("held")).selectExpr("avg(double((prediction > 0) = (y > 0.5))) as r").first().r
        )
        assert found.history[-1]["val_accuracy"] == pytest.approx(right)


def refused(match, table, model=None, **more):
    given = {"features": "a", "label": "y", "np": 2, "verbose": False, "loss": "mse"} | more
    with pytest.raises(hora.ArgumentError, match=match):
        hora.spark.Estimator(model or torch.nn.Linear(1, 1), **{k: v for k, v in given.items() if v is not None}).fit(
            table
        )


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("torch", "callbacks", [print]), ("torch", "custom_objects", {"a": print})]
    + [("function", n, v) for n, v in (("loss", "mse"), ("optimizer", torch.optim.SGD), ("metrics", ["mae"]),
       ("callbacks", [print]), ("custom_objects", {"a": print}), ("loss_weights", [1.0]))],
)  # fmt: skip
def test_what_a_kind_has_no_use_for_is_refused(table, kind, name, value):
    model = torch.nn.Linear(1, 1) if kind == "torch" else lambda training: None
    loss = "mse" if kind == "torch" or name == "loss" else None
    called = {"torch": "a torch module", "function": "a training function"}[kind]
    refused(f"{name} does nothing with {called}: ", table, model, **{"loss": loss} | {name: value})


def test_what_the_driver_can_say_is_said_before_the_job(table):
    from pyspark.sql import functions as F

    none = table.withColumn("held", F.lit(False)).withColumn("zero", F.lit(0.0))
    refused(r"the validation column 'held' is true for no row; give", none, validation="held")
    refused(r"1 of 400 rows is left to train on for np=2", table.withColumn("held", F.col("a") < F.lit(
        table.agg(F.max("a")).first()[0])), validation="held")  # fmt: skip
    refused(r"the weights of all rows sum up to 0.0; give some", none, weight="zero")
    refused(r"the weights of all rows sum up to 0.0; give some", none, class_weight={0: 0.0, 1: 0})
    only = table.withColumn("w", F.when(F.col("held"), 0.0).otherwise(1.0))
    refused(r"the weights of the rows that validate sum up to 0.0", only, weight="w", validation="held")
    refused(r"compression='fp32': give one of 'none', 'fp16'", table, compression="fp32")
    refused(r"validation_steps=0 is no number of validation steps", table, validation_steps=0)
    refused(r"validation_batch_size=-1 is no number of validation batch size", table, validation_batch_size=-1)
    for rate in (-0.1, float("nan"), "fast", True):
        refused(r"learning_rate=.*; give a number, 0 or more", table, learning_rate=rate)
    for weights in ({"yes": 1.0}, {1: "much"}, {0: -1.0}):
        refused(r"class_weight has .*; give a mapping from the label's numbers", table, class_weight=weights)


def test_two_rows_in_two_partitions_are_a_row_a_rank(spark):
    """Spark deals each partition by itself: [0, 2] for some."""
    for n in (2, 3, 5):
        rows = spark.createDataFrame(
            [(float(i), float(i), i < n - 2) for i in range(n)], "a double, y double, held boolean"
        )
        found = fitted(rows.repartition(n), loss="mse", epochs=1, validation="held" if n > 2 else None)
        assert [h["epoch"] for h in found.history] == [1]


def test_what_a_loss_holds_is_where_the_labels_are():
    """The meta device stands for a GPU."""
    import torch

    from hora.spark.frontend import loss_of_outputs

    total = loss_of_outputs(torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])), None, 1)
    for device in ("cpu", "meta"):
        labels = torch.zeros(4, dtype=torch.long, device=device)
        assert total(torch.zeros(4, 2, device=device), [labels]).device.type == device
