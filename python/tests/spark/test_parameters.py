"""What each parameter of the estimators does: a table of them, and tests of what others do not show, each on one rank
without Spark."""

from __future__ import annotations

import inspect
import io
import pickle
import re
import sys
from pathlib import Path

import beside
import here
import numpy as np
import pytest
from sample import longer

import hora
from hora.spark import _cluster

torch = pytest.importorskip("torch")

HERE = Path(__file__).resolve().parent
NOTHING = "test_what_cannot_matter_is_said_once"

# Parameter of horovod.spark's estimators → the test that shows its effect.
HOROVODS = {
    "num_proc": "test_ranks_and_their_variables", "backend": "test_ranks_and_their_variables",
    "backend_env": "test_ranks_and_their_variables",
    "model": "test_torch_as_in_horovods_example", "optimizer": "test_the_trained_optimizer_and_a_folder_for_predict",
    "loss": "test_torch_as_in_horovods_example", "loss_constructors": "test_on_parquet_with_whole_labels",
    "metrics": "test_metrics_and_several_losses", "loss_weights": "test_metrics_and_several_losses",
    "sample_weight_col": "test_rows_weigh_as_their_column_says", "feature_cols": "test_torch_as_in_horovods_example",
    "label_cols": "test_metrics_and_several_losses", "input_shapes": "test_shapes_of_inputs_and_labels",
    "label_shapes": "test_shapes_of_inputs_and_labels", "validation": "test_torch_as_in_horovods_example",
    "gradient_compression": "test_compressed_gradients_are_rounded",
    "backward_passes_per_step": "test_a_step_of_several_passes_takes_the_mean_of_their_gradients",
    "batch_size": "test_how_many_steps_and_how_large", "val_batch_size": "test_how_many_steps_and_how_large",
    "train_steps_per_epoch": "test_how_many_steps_and_how_large", "epochs": "test_how_many_steps_and_how_large",
    "validation_steps_per_epoch": "test_how_many_steps_and_how_large",
    "shuffle": "test_the_order_of_rows", "shuffle_buffer_size": "test_the_order_of_rows",
    "random_seed": "test_the_order_of_rows", "transformation_fn": "test_rows_are_transformed_before_the_training",
    "use_gpu": "test_gpus_are_used_where_they_are_asked_for", "verbose": "test_a_line_for_each_epoch",
    "store": "test_keras_as_in_horovods_example", "run_id": "test_lightning_as_in_horovods_example",
    "train_minibatch_fn": "test_a_step_of_the_users_own_and_a_store_with_options",
    "custom_objects": "test_horovods_keras_estimator_has_models_of_keras_2",
    "checkpoint_callback": "test_keras_as_in_horovods_example", "callbacks": "test_callbacks_of_keras_run",
    "trainer_args": "test_settings_of_lightnings_trainer", "logger": "test_settings_of_lightnings_trainer",
    "log_every_n_steps": "test_settings_of_lightnings_trainer", "profiler": "test_settings_of_lightnings_trainer",
    "terminate_on_nan": "test_settings_of_lightnings_trainer",
    **dict.fromkeys(
        (
            "data_module", "compress_sparse_cols", "continuous_cols", "categorical_cols", "partitions_per_process",
            "transformation_edit_fields", "transformation_removed_fields", "train_reader_num_workers",
            "val_reader_num_workers", "reader_pool_type", "inmemory_cache_all", "mp_start_method",
            "tensorflow_dataset_prefetch_buffer_size", "num_gpus", "loader_num_epochs", "debug_data_loader",
            "train_async_data_loader_queue_size", "val_async_data_loader_queue_size",
        ),
        NOTHING,
    ),
}  # fmt: skip

# Argument of hora.spark.Estimator → the test, or Horovod's parameter that becomes it.
HORAS = {
    "features": "feature_cols", "label": "label_cols", "weight": "sample_weight_col", "shapes": "input_shapes",
    "class_weight": "test_classes_weigh_as_they_are_told", "accumulate": "backward_passes_per_step",
    "compression": "gradient_compression", "steps": "train_steps_per_epoch", "np": "num_proc", "env": "backend_env",
    "validation_steps": "validation_steps_per_epoch", "validation_batch_size": "val_batch_size", "gpu": "use_gpu",
    "seed": "random_seed", "transform": "transformation_fn", "minibatch": "train_minibatch_fn",
    "learning_rate": "test_an_optimizer_gets_the_rate_where_it_is_given",
    "restarts": "test_a_gang_that_lost_a_rank_inside_a_fit_goes_on_by_itself",
    "prediction": "test_torch_in_a_pipeline_saved_and_loaded", "raw": "test_torch_in_a_pipeline_saved_and_loaded",
    "progress": "test_torch_in_a_pipeline_saved_and_loaded", "batch_bytes": "test_batches_of_an_estimator_s_model",
    "storage_options": "test_a_store_on_s3",
}  # fmt: skip


def test_each_parameter_has_its_test(monkeypatch):
    import horovod.spark.keras
    import horovod.spark.lightning
    import horovod.spark.torch

    tests = set(re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in HERE.glob("test_*.py")), re.M))
    kinds = (
        horovod.spark.keras.KerasEstimator,
        horovod.spark.torch.TorchEstimator,
        horovod.spark.lightning.TorchEstimator,
    )
    asked = {n for kind in kinds for n in inspect.signature(kind.__init__).parameters} - {"self"}
    assert asked == set(HOROVODS)
    own = set(inspect.signature(hora.spark.Estimator.__init__).parameters) - {"self"}
    assert own <= {*HOROVODS, *HORAS}, own - {*HOROVODS, *HORAS}
    shown = {*HOROVODS.values(), *(HOROVODS.get(v, v) for v in HORAS.values())}
    assert shown <= tests, shown - tests


COLUMNS = {"x": [1.0, 2.0, 3.0, 4.0], "y": [2.0, 4.0, 6.0, 9.0]}


def line(model=None):
    """y = w x, of w = 0."""
    model = torch.nn.Linear(1, 1, bias=False) if model is None else model
    torch.nn.init.zeros_(model.weight)
    return model


def trainer(model=None, **more):
    from horovod.spark.torch import TorchEstimator

    model = line() if model is None else model
    given = dict(
        num_proc=1, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.MSELoss(),
        feature_cols=["x"], label_cols=["y"], input_shapes=[[-1, 1]], batch_size=4, epochs=1, verbose=0, shuffle=False,
    )  # fmt: skip
    return TorchEstimator(**given | more)


def weight(made):
    return torch.load(io.BytesIO(made["weights"]))["weight"].item()


def test_a_step_of_several_passes_takes_the_mean_of_their_gradients(monkeypatch):
    w, rate = 0.0, 0.1
    x, y = (np.array(v) for v in COLUMNS.values())
    for pair in (slice(0, 2), slice(2, 4)):
        w -= rate * np.mean(2 * x[pair] * (w * x[pair] - y[pair]))
    two = here.fit(monkeypatch, trainer(batch_size=1, backward_passes_per_step=2), COLUMNS)
    assert weight(two) == pytest.approx(w, rel=1e-5)
    assert weight(here.fit(monkeypatch, trainer(batch_size=2), COLUMNS)) == pytest.approx(w, rel=1e-5)


@longer
def test_compressed_gradients_are_rounded(spark):
    """On two ranks: one alone sends nothing."""
    import horovod.torch as hvd

    _cluster.wait_for_slots(spark, 4, 90, print)
    table = spark.createDataFrame([(1.0, 0.1 + 1 / 3)] * 2, "x double, y double")

    def gradient(compression):
        fitted = trainer(num_proc=2, batch_size=1, gradient_compression=compression).fit(table)
        return -fitted.getModel().weight.item() / 0.1

    exact = gradient(hvd.Compression.none)
    half = gradient(hvd.Compression.fp16)
    assert half != exact and half == pytest.approx(float(np.float16(exact)), rel=1e-6)


def test_the_kinds_of_compression():
    import horovod.torch as of_torch

    for given, said in ((None, None), ("fp16", "fp16"), ("bf16", "bf16")):
        assert trainer(gradient_compression=given)._given(None)["compression"] == said
    for name, said in (("none", None), ("fp16", "fp16")):
        given = trainer(gradient_compression=getattr(of_torch.Compression, name))
        assert given._given(None)["compression"] == said


class Seen(torch.nn.Module):
    """Writes down the shapes of what it is asked with."""

    def __init__(self, path):
        super().__init__()
        self.inner, self.path = line(), path

    def forward(self, x):
        with open(self.path, "a") as f:
            f.write(f"{tuple(x.shape)}\n")
        return self.inner(x.reshape(len(x), -1)[:, :1])


def test_shapes_of_inputs_and_labels(monkeypatch, tmp_path):
    truths = tmp_path / "truths"

    def loss(out, y):
        with truths.open("a") as f:
            f.write(f"{tuple(y.shape)}\n")
        return ((out - y.reshape(len(y), -1)[:, :1]) ** 2).mean()

    columns = {"x": [[1.0] * 6] * 4, "y": [[1.0] * 4] * 4}
    given = {"input_shapes": [[-1, 1, 2, 3]], "label_shapes": [[-1, 2, 2]], "loss": loss}
    here.fit(monkeypatch, trainer(Seen(tmp_path / "inputs"), **given), columns)
    assert (tmp_path / "inputs").read_text().splitlines()[-1] == "(4, 1, 2, 3)"
    assert truths.read_text().splitlines() == ["(4, 2, 2)"]


class Two(torch.nn.Module):
    """One output that is right, and one that is w."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x * 1.0 + 0 * self.weight, torch.ones_like(x) * self.weight


def furthest(out, y):
    """A metric of the user's own."""
    return (out.reshape(-1) - y.reshape(-1)).abs().max()


def test_metrics_and_several_losses(monkeypatch):
    columns = {"x": [1.0, 2.0], "y": [3.0, 4.0], "z": [4.0, 4.0]}
    given = {"label_cols": ["y", "z"], "metrics": [furthest, "mae"]}
    made = here.fit(monkeypatch, trainer(Two(), loss_weights=[0.5, 0.25], **given), columns)
    (said,) = made["history"]
    assert said["loss"] == pytest.approx(0.5 * 4 + 0.25 * 16)
    assert said["y_furthest"] == 2 and said["z_mae"] == 4
    made = here.fit(monkeypatch, trainer(Two(), **given), columns)
    assert made["history"][0]["loss"] == pytest.approx(4 + 16)


def test_rows_weigh_as_their_column_says(monkeypatch):
    columns = {"x": [1.0, 2.0], "y": [1.0, 4.0], "w": [3.0, 1.0]}
    said = here.fit(monkeypatch, trainer(sample_weight_col="w"), columns)["history"][0]["loss"]
    assert said == pytest.approx((3 * 1 + 1 * 16) / 4)


def rows_of(path):
    return [int(line.partition(",")[0].strip("(")) for line in path.read_text().splitlines()]


def test_how_many_steps_and_how_large(monkeypatch, tmp_path):
    """As the losses see them: of the training on the rank, of the validation in a process of its own."""
    path = tmp_path / "steps"

    def loss(out, y):
        with path.open("a") as f:
            f.write(f"({len(y)}, {'train' if out.requires_grad else 'held'}\n")
        return ((out[:, 0] - y) ** 2).mean()

    columns = {"x": [1.0] * 18, "y": [1.0] * 18, "held": [i >= 10 for i in range(18)]}
    given = {"loss": loss, "batch_size": 2, "epochs": 2, "val_batch_size": 3}
    made = here.fit(
        monkeypatch, trainer(train_steps_per_epoch=3, validation_steps_per_epoch=2, **given), columns, "held"
    )
    said = path.read_text().split("\n")
    assert said.count("(2, train") == 2 * 3 and said.count("(3, held") == 2 * 2 and len(made["history"]) == 2
    path.unlink()
    here.fit(monkeypatch, trainer(**given), columns, "held")
    said = path.read_text().split("\n")
    assert (said.count("(2, train"), said.count("(3, held"), said.count("(2, held")) == (2 * 5, 2 * 2, 2)


def test_the_order_of_rows(monkeypatch, tmp_path):
    path = tmp_path / "order"

    def order(**more):
        path.unlink(missing_ok=True)

        def loss(out, y):
            with path.open("a") as f:
                f.write("".join(f"{int(v)} " for v in y))
            return (out[:, 0] * y).mean()

        columns = {"x": [1.0] * 12, "y": [float(i) for i in range(12)]}
        here.fit(monkeypatch, trainer(loss=loss, **{"shuffle": True} | more), columns)
        return path.read_text().split()

    straight = [str(i) for i in range(12)]
    assert order(shuffle=False) == straight == order(shuffle_buffer_size=0)
    first = order(random_seed=1)
    assert sorted(first, key=int) == straight != first == order(random_seed=1) != order(random_seed=2)


def double():
    """A function of a pandas data frame, as Horovod's transformation_fn returns it."""

    def of_frame(frame):
        frame["y"] = 2 * frame["y"]
        return frame

    return of_frame


def test_rows_are_transformed_before_the_training(monkeypatch):
    plain, twice = (
        here.fit(monkeypatch, trainer(transformation_fn=f), COLUMNS)["history"][0]["loss"] for f in (None, double)
    )
    assert twice == pytest.approx(4 * plain)


def test_gpus_are_used_where_they_are_asked_for(monkeypatch):
    from hora.spark import _fit_torch

    assert trainer()._given(None)["gpu"] is True and trainer(use_gpu=False)._given(None)["gpu"] is False
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    placed = []
    monkeypatch.setattr(torch.cuda, "set_device", placed.append)
    monkeypatch.setattr(hora, "local_rank", lambda: 3)
    assert _fit_torch._device(False) == torch.device("cpu") and not placed
    assert _fit_torch._device(True) == torch.device("cuda", 1) == placed[0]


def test_a_line_for_each_epoch():
    from hora.spark import _fit

    assert trainer(verbose=2)._given(None)["verbose"] is True and trainer(verbose=0)._given(None)["verbose"] is False
    told, said = [], '<mark>{"epoch": 1, "epochs": 2, "run_id": "r", "loss": 0.5}'
    assert _fit._show("<mark>", told.append, True)(said) == "epoch 1 of 2: loss 0.5\n"
    assert _fit._show("<mark>", told.append, False)(said) is None and len(told) == 2


def test_ranks_and_their_variables():
    from horovod.spark.common.backend import SparkBackend
    from horovod.spark.keras import KerasEstimator

    assert trainer(num_proc=3)._given(None)["np"] == 3
    given = trainer(num_proc=None, backend=SparkBackend(2, env={"A": "b"}))._given(None)
    assert (given["np"], given["env"]) == (2, {"A": "b"})
    keras = KerasEstimator(
        num_proc=1, model=object(), feature_cols=["x"], label_cols=["y"], loss="mse", backend_env={"C": "d"}
    )
    assert keras._given(None)["env"] == {"C": "d"}


UNLIKE_THE_DEFAULT = {
    "data_module": "petastorm", "compress_sparse_cols": True, "continuous_cols": ["x"], "categorical_cols": ["x"],
    "shuffle_buffer_size": 7, "partitions_per_process": 3, "transformation_edit_fields": [("x", float, (), False)],
    "transformation_removed_fields": ["z"], "train_reader_num_workers": 5, "val_reader_num_workers": 5,
    "reader_pool_type": "process", "inmemory_cache_all": True, "mp_start_method": "spawn",
    "tensorflow_dataset_prefetch_buffer_size": 9, "num_gpus": 2, "loader_num_epochs": 3, "debug_data_loader": True,
    "train_async_data_loader_queue_size": 4, "val_async_data_loader_queue_size": 4,
}  # fmt: skip


def test_what_cannot_matter_is_said_once(monkeypatch):
    import warnings

    from horovod.spark.common import estimator
    from horovod.spark.keras import KerasEstimator
    from horovod.spark.lightning import TorchEstimator as Lightning
    from horovod.spark.torch import TorchEstimator

    assert {k for k, v in HOROVODS.items() if v == NOTHING} | {"shuffle_buffer_size"} == set(UNLIKE_THE_DEFAULT)
    for kind in (KerasEstimator, TorchEstimator, Lightning):
        monkeypatch.setattr(estimator, "_said", set())
        names = [n for n in UNLIKE_THE_DEFAULT if n in inspect.signature(kind.__init__).parameters]
        given = kind(num_proc=1, **{n: UNLIKE_THE_DEFAULT[n] for n in names})
        for said_again in (False, True):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                given._tell()
            said = " ".join(str(w.message) for w in told)
            assert said == "" if said_again else all(n in said for n in names), (kind, said)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            kind(num_proc=1)._tell()
        assert not told
    for name in ("partitions_per_process", "inmemory_cache_all", "reader_pool_type"):
        plain = trainer()
        assert (
            trainer(plain.getModel(), **{name: UNLIKE_THE_DEFAULT[name]})._given(None).keys()
            == plain._given(None).keys()
        )


def test_settings_of_lightnings_trainer(monkeypatch):
    from horovod.spark.lightning import TorchEstimator

    class Module(torch.nn.Linear):
        def training_step(self, batch, at): ...

        def configure_optimizers(self): ...

    def settings(**more):
        given = dict(num_proc=1, model=Module(1, 1), feature_cols=["x"], label_cols=["y"])
        return TorchEstimator(**given | more)._given(None)["model"].settings

    plain = settings()
    assert (plain["logger"], plain["log_every_n_steps"], plain["profiler"], plain["detect_anomaly"]) == (
        False, 50, None, False,
    )  # fmt: skip
    logger = object()
    said = settings(
        logger=logger, log_every_n_steps=3, profiler="simple", terminate_on_nan=True, backward_passes_per_step=2,
        trainer_args={"gradient_clip_val": 0.5, "log_every_n_steps": 4},
    )  # fmt: skip
    assert said["logger"] is logger and said["profiler"] == "simple" and said["detect_anomaly"] is True
    assert (said["accumulate_grad_batches"], said["gradient_clip_val"], said["log_every_n_steps"]) == (2, 0.5, 4)


def mae(out, y):
    """A metric of Lightning's plain modules."""
    return (out.reshape(-1) - y.reshape(-1)).abs().mean()


@longer
def test_a_plain_module_on_lightnings_trainer(monkeypatch):
    """Its loss, losses of several outputs with their weights, metrics of each, rows that weigh, what validates, and
    steps of its optimizer."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside.folder("trainers"))])
    from horovod.spark.lightning import TorchEstimator

    def fitted(model, columns, validates=None, **more):
        given = dict(
            num_proc=1, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.MSELoss(),
            feature_cols=["x"], label_cols=["y"], input_shapes=[[-1, 1]], label_shapes=[[-1, 1]], batch_size=4,
            epochs=1, verbose=0, shuffle=False,
        )  # fmt: skip
        made = here.fit(monkeypatch, TorchEstimator(**given | more), columns, validates)
        return made["history"][0], pickle.loads(made["model"]).module

    x, y = (np.array(v) for v in COLUMNS.values())
    said, module = fitted(line(), COLUMNS, metrics=[mae])
    assert said["loss"] == pytest.approx(np.mean(y * y)) == said["train_loss"]
    assert said["train_mae"] == pytest.approx(np.mean(y))
    assert module.weight.item() == pytest.approx(0.1 * np.mean(2 * x * y), rel=1e-5)
    weighed = {"x": [1.0, 2.0], "y": [1.0, 4.0], "w": [3.0, 1.0]}
    said, module = fitted(line(), weighed, sample_weight_col="w")
    assert said["loss"] == pytest.approx((3 * 1 + 1 * 16) / 4)
    assert module.weight.item() == pytest.approx(0.1 * (3 * 2 * 1 + 1 * 2 * 8) / 4, rel=1e-5)
    several = {"x": [1.0, 2.0], "y": [3.0, 4.0], "z": [4.0, 4.0]}
    given = {"label_cols": ["y", "z"], "label_shapes": [[-1, 1]] * 2, "metrics": [mae]}
    said, _ = fitted(Two(), several, **given, loss_weights=[0.5, 0.25])
    assert said["loss"] == pytest.approx(0.5 * 4 + 0.25 * 16) and (said["train_y_mae"], said["train_z_mae"]) == (2, 4)
    assert fitted(Two(), several, **given)[0]["loss"] == pytest.approx(4 + 16)
    made = fitted(line(), COLUMNS, loss=None, loss_constructors=[torch.nn.L1Loss])
    assert made[0]["loss"] == pytest.approx(np.mean(y))
    held = {n: v * 2 for n, v in COLUMNS.items()} | {"held": [False] * 4 + [True] * 4}
    said, module = fitted(line(), held, "held", metrics={"off": mae}, validation="held")
    w = module.weight.item()
    assert said["val_loss"] == pytest.approx(np.mean((w * x - y) ** 2), rel=1e-5)
    assert said["val_off"] == pytest.approx(np.mean(np.abs(w * x - y)), rel=1e-5)
    with pytest.raises(ValueError, match=r"metrics has 'mae'; give functions of \(output, label\)"):
        fitted(line(), COLUMNS, metrics={"mae": "mae"})
    with pytest.raises(ValueError, match="give its optimizer and loss too"):
        fitted(line(), COLUMNS, optimizer=None, loss=None)


@pytest.fixture
def keras_of_tensorflow(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@longer
def test_callbacks_of_keras_run(monkeypatch, keras_of_tensorflow, tmp_path):
    """And Keras' own ways of accumulating, weighing and compressing come to the same as torch's."""
    import keras
    from horovod.spark.keras import KerasEstimator
    from horovod.tensorflow import Compression

    path = tmp_path / "epochs"

    def told(epoch, logs):
        with path.open("a") as f:
            f.write(f"{epoch} {sorted(logs)}\n")

    def fitted(columns=COLUMNS, **more):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        given = dict(
            num_proc=1, model=model, optimizer=keras.optimizers.SGD(0.1), loss="mse", feature_cols=["x"],
            label_cols=["y"], batch_size=4, epochs=1, verbose=0, shuffle=False,
        )  # fmt: skip
        made = here.fit(monkeypatch, KerasEstimator(**given | more), columns)
        return np.load(io.BytesIO(made["weights"]))["0"].item(), made["history"]

    fitted(callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=told)], epochs=2, metrics=["mae"])
    assert path.read_text() == "0 ['loss', 'mae']\n1 ['loss', 'mae']\n"
    two, _ = fitted(batch_size=1, backward_passes_per_step=2)
    assert two == pytest.approx(weight(here.fit(monkeypatch, trainer(batch_size=2), COLUMNS)), rel=1e-5)
    few = {"x": [1.0], "y": [0.1 + 1 / 3]}
    exact, half = (fitted(few, gradient_compression=c)[0] for c in (None, Compression.fp16))
    assert half != exact and half == pytest.approx(float(np.float16(exact / 0.1)) * 0.1, rel=1e-6)
    weighed = {"x": [1.0, 2.0], "y": [1.0, 4.0], "w": [3.0, 1.0]}
    assert fitted(weighed, sample_weight_col="w")[1][0]["loss"] == pytest.approx((3 * 1 + 1 * 16) / 4)
    assert fitted(loss_weights=[0.5])[1][0]["loss"] == pytest.approx(0.5 * fitted()[1][0]["loss"])
    assert fitted(transformation_fn=double)[1][0]["loss"] == pytest.approx(4 * fitted()[1][0]["loss"])
    once, _ = fitted(batch_size=1, train_steps_per_epoch=1)
    assert once == pytest.approx(0.1 * 2 * 1 * 2)


@longer
def test_a_store_on_s3(spark, monkeypatch):
    """Through s3fs, against moto's server in this process: Horovod's store, ours, and a run that goes on from there."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside.folder("s3"))])
    import s3fs
    from horovod.spark.common.store import Store
    from moto import server

    from hora.spark import _store

    s3 = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    s3.start()
    try:
        host, port = s3.get_host_and_port()
        where = {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-west-1"}
        options = {"key": "k", "secret": "s", "client_kwargs": where}
        files = s3fs.S3FileSystem(**options)
        files.mkdir("bucket")
        store = Store.create("s3://bucket/kept", storage_options=options)
        assert not store.exists(store.get_run_path("r"))
        store.write_text(f"{store.get_run_path('r')}/note", "said")
        assert store.read(f"{store.get_run_path('r')}/note") == b"said" and store.exists(store.get_run_path("r"))
        for url in ("s3://bucket/runs", "s3a://bucket/runs"):
            kept = _store.Store(url, options)
            assert kept.read("nothing") is None and not kept.local
            kept.write("runs/r/checkpoint", b"1" * 100_000)
            kept.write("runs/r/checkpoint", b"2" * 10)
            assert _store.Store(url, options).read("runs/r/checkpoint") == b"2" * 10
        given = trainer(store=store, run_id="r")._given(None)
        assert given["storage_options"] == options and given["store"] == "s3://bucket/kept"

        _cluster.wait_for_slots(spark, 4, 90, print)
        table = spark.createDataFrame([(float(i), 2.0 * i) for i in range(-8, 8)], "x double, y double")
        e = trainer(num_proc=2, store=store, run_id="r")
        histories = [e.setEpochs(epochs).fit(table).getHistory() for epochs in (1, 2)]
        assert [len(h) for h in histories] == [1, 2] and histories[1][0] == histories[0][0]
        names = {p.rsplit("/", 1)[1] for p in files.find("bucket/kept/runs/r")}
        assert {"history.json", "model.pt", "model.safetensors", "note"} < names, names
    finally:
        s3.stop()
