"""horovod.spark's estimators: programs in the style of Horovod's own examples, stores, helpers, and what bad input
gets."""

from __future__ import annotations

import pickle
import re
import sys

import beside
import numpy as np
import pytest
from sample import longer

from hora.spark import _cluster

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def table(spark):
    """Two features as a vector, a class as a number and as a vector; 400 rows."""
    from pyspark.ml.feature import OneHotEncoder, VectorAssembler
    from pyspark.sql import functions as F

    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(400, 2))
    rows = [(float(a), float(b), float(a + b > 0), i % 5 == 0) for i, (a, b) in enumerate(x)]
    frame = spark.createDataFrame(rows, "a double, b double, label double, held boolean").withColumn(
        "y", F.col("label").cast("int")
    )
    frame = VectorAssembler(inputCols=["a", "b"], outputCol="features").transform(frame)
    encoder = OneHotEncoder(inputCols=["label"], outputCols=["label_vec"], dropLast=False)
    return encoder.fit(frame).transform(frame).repartition(3).cache()


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x):
        return torch.nn.functional.log_softmax(self.inner(x), dim=1)


def accuracy(frame, spark_type="label_prob"):
    import pyspark.sql.types as T
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.sql.functions import udf

    argmax = udf(lambda v: float(np.argmax(v)), returnType=T.DoubleType())
    frame = frame.withColumn("label_pred", argmax(frame[spark_type]))
    return MulticlassClassificationEvaluator(
        predictionCol="label_pred", labelCol="label", metricName="accuracy"
    ).evaluate(frame)


def test_torch_as_in_horovods_example(table, tmp_path):
    import horovod.spark.torch as hvd
    from horovod.spark.common.backend import SparkBackend
    from horovod.spark.common.store import Store

    store = Store.create(str(tmp_path))
    torch.manual_seed(1)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    backend = SparkBackend(num_proc=2, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True)
    estimator = hvd.TorchEstimator(
        backend=backend, store=store, model=model, optimizer=optimizer, loss=torch.nn.NLLLoss(), input_shapes=[[-1, 2]],
        feature_cols=["features"], label_cols=["label"], batch_size=20, epochs=3, validation=0.2, verbose=1,
        run_id="first",
        partitions_per_process=4, callbacks=[print],
    )  # fmt: skip
    with pytest.warns(UserWarning, match="horovod.spark: ") as told:
        fitted = estimator.fit(table).setOutputCols(["label_prob"])
    said = " ".join(str(w.message) for w in told)
    assert (
        "partitions_per_process: no effect, rows go from Spark to the ranks" in said and "callbacks: no effect" in said
    )
    history = fitted.getHistory()
    assert [h["epoch"] for h in history] == [0, 1, 2] and history[-1]["validation"]["loss"] < history[0]["train"][
        "loss"
    ]
    assert isinstance(fitted.getModel(), Classifier) and fitted.getRunId() == "first"
    assert accuracy(fitted.transform(table)) > 0.9
    assert store.exists(store.get_checkpoint_path("first")) and store.get_checkpoints("first")


@longer
def test_keras_as_in_horovods_example(table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    import horovod.spark.keras as hvd
    import keras
    from horovod.spark.common.store import Store

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2, "softmax")])
    store = Store.create(str(tmp_path))
    from horovod.keras.callbacks import BestModelCheckpoint

    estimator = hvd.KerasEstimator(
        checkpoint_callback=BestModelCheckpoint(monitor="val_loss", mode="min"),
        num_proc=2, store=store, model=model, optimizer=keras.optimizers.Adam(0.05),
        loss=keras.losses.categorical_crossentropy,
        metrics=["accuracy"], feature_cols=["features"], label_cols=["label_vec"], batch_size=20, epochs=4,
        validation="held", verbose=0,
    )  # fmt: skip
    fitted = estimator.fit(table).setOutputCols(["label_prob"])
    history = fitted.getHistory()
    assert len(history["loss"]) == 4 and {"loss", "accuracy", "val_loss", "val_accuracy"} <= set(history)
    assert accuracy(fitted.transform(table)) > 0.9
    best = list(tmp_path.rglob("best.keras"))
    assert len(best) == 1 and best[0].parent.name == fitted.getRunId()
    assert keras.saving.load_model(best[0]).count_params() == model.count_params()
    with pytest.raises(ValueError, match="checkpoint_callback has no filepath"):
        estimator.copy({estimator.store: None}).fit(table)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    loaded = hvd.KerasModel.load(str(tmp_path / "fitted"))
    first = [one.transform(table).orderBy("a").first().label_prob for one in (loaded, fitted)]
    assert first[0] == first[1]


@longer
def test_lightning_as_in_horovods_example(table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside.folder("trainers"))])
    import horovod.spark.lightning as hvd
    import pytorch_lightning
    from horovod.spark.common.store import Store

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.BatchNorm1d(2, momentum=0.5), Classifier())

        def forward(self, x):
            return self.inner(x)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.5)

        def training_step(self, batch, batch_idx):
            x, y = torch.nn.functional.dropout(batch["features"], 0.05), batch["label"]
            self.log("at", float(self.current_epoch), on_step=False, on_epoch=True, batch_size=len(y))
            return torch.nn.functional.nll_loss(self(x), y.long())

        def validation_step(self, batch, batch_idx):
            x, y = batch["features"], batch["label"]
            self.log("val_loss", torch.nn.functional.nll_loss(self(x), y.long()), batch_size=len(y))

    with pytest.raises(ValueError, match=r"model is a Linear, no LightningModule with .*: give its optimizer and loss"):
        hvd.TorchEstimator(
            num_proc=2, model=torch.nn.Linear(2, 2), feature_cols=["features"], label_cols=["label"]
        ).fit(table)
    torch.manual_seed(1)
    module = Module()

    def fitted(run, epochs):
        best = pytorch_lightning.callbacks.ModelCheckpoint(
            dirpath=str(tmp_path / f"best-{run}"), monitor="val_loss", filename="best"
        )
        return hvd.TorchEstimator(
            callbacks=[best],
            num_proc=2, store=Store.create(str(tmp_path)), model=module, input_shapes=[[-1, 2]],
            feature_cols=["features"],
            label_cols=["label"], batch_size=20, epochs=epochs, validation="held", verbose=0, run_id=run, random_seed=5,
            trainer_args={"gradient_clip_val": 10.0},
        ).fit(table)  # fmt: skip

    from horovod.spark.lightning.estimator import MIN_PL_VERSION

    assert MIN_PL_VERSION == "1.3.8"  # programs compare theirs with it
    whole = fitted("whole", 3)
    assert [p.name for p in (tmp_path / "best-whole").iterdir()] == ["best.ckpt"]  # one rank's
    assert [(h["epoch"], h["at"]) for h in whole.getHistory()] == [(1, 0), (2, 1), (3, 2)] and {
        "loss",
        "val_loss",
    } <= set(whole.getHistory()[0])
    assert accuracy(whole.setOutputCols(["label_prob"]).transform(table)) > 0.9
    fitted("parts", 1)
    parts = fitted("parts", 3)  # goes on as if it had not ended
    assert parts.getHistory() == whole.getHistory()
    weights = whole.getModel().state_dict()
    assert all(torch.equal(v, weights[k]) for k, v in parts.getModel().state_dict().items())


def step_by_hand(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):
    """What Horovod does by itself, with gradients that are clipped."""
    optimizer.zero_grad()
    outputs, labels = transform_outputs(model(*inputs), labels)
    loss = loss_fn(outputs, labels, sample_weights)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    optimizer.step()
    return outputs, loss


@longer
def test_a_step_of_the_users_own_and_a_store_with_options(table, tmp_path):
    """The same weights as without it; the run lies where the file system's own options say."""
    import horovod.spark.torch as hvd
    from horovod.spark.common.store import Store

    found = []
    for name, more in (("plain", {}), ("own", {"train_minibatch_fn": step_by_hand})):
        (tmp_path / name).mkdir()
        store = Store.create("dir://kept", storage_options={"path": str(tmp_path / name), "target_protocol": "file"})
        torch.manual_seed(2)
        model = Classifier()
        fitted = hvd.TorchEstimator(
            num_proc=2, store=store, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            loss=torch.nn.NLLLoss(),
            feature_cols=["features"], label_cols=["label"], batch_size=30, epochs=2, validation="held", verbose=0,
            run_id="r", **more,
        ).fit(table)  # fmt: skip
        found.append((fitted.getHistory(), [p.tolist() for p in fitted.getModel().parameters()]))
        assert list((tmp_path / name).rglob("runs/r/checkpoint")) and store.get_checkpoints("r")
    (history, weights), (own_history, own_weights) = found
    np.testing.assert_allclose(
        np.concatenate([np.ravel(w) for w in own_weights]), np.concatenate([np.ravel(w) for w in weights]), atol=1e-6
    )
    assert own_history[-1]["validation"]["loss"] == pytest.approx(history[-1]["validation"]["loss"], abs=1e-5)


@longer
def test_the_trained_optimizer_and_a_folder_for_predict(table, tmp_path):
    """getOptimizer is of getModel and has the momentum that was gathered; hora.spark.predict loads what was saved."""
    import horovod.spark.torch as hvd

    import hora

    torch.manual_seed(2)
    model = Classifier()
    estimator = hvd.TorchEstimator(
        num_proc=2, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5),
        loss=torch.nn.NLLLoss(), feature_cols=["features"], label_cols=["label"], batch_size=30, epochs=1, verbose=0,
    )  # fmt: skip
    fitted = estimator.fit(table)
    fitted.save(str(tmp_path / "fitted"))
    for one in (fitted, hvd.TorchModel.load(str(tmp_path / "fitted"))):
        optimizer, weights = one.getOptimizer(), list(one.getModel().parameters())
        (group,) = optimizer.param_groups
        assert group["lr"] == 0.25 and all(a is b for a, b in zip(group["params"], weights, strict=True))
        assert all(optimizer.state[w]["momentum_buffer"].abs().sum() > 0 for w in weights)
    assert not estimator.getOptimizer().state and not torch.equal(weights[0], next(model.parameters()))
    got = hora.spark.predict(str(tmp_path / "fitted"), table).select("a", "b", "prediction").collect()
    with torch.no_grad():
        wanted = fitted.getModel()(torch.tensor([[r.a, r.b] for r in got])).argmax(dim=1)
    assert [r.prediction for r in got] == wanted.tolist()
    estimator.save(str(tmp_path / "unfitted"))
    with pytest.raises(hora.ArgumentError, match=r"holds a horovod.spark.torch.estimator.TorchEstimator, not a fitted"):
        hora.spark.predict(str(tmp_path / "unfitted"), table)


def test_rows_whose_flag_of_validation_is_null_are_trained_on(spark, tmp_path):
    from horovod.spark.common import util
    from horovod.spark.common.store import Store

    rows = [(1.0, True), (2.0, None), (3.0, False)]
    frame = spark.createDataFrame(rows, "a double, held boolean")
    store = Store.create(str(tmp_path))
    with util.prepare_data(1, store, frame, feature_columns=["a"], validation="held") as idx:
        assert util.get_dataset_properties(idx)[:2] == (2, 1)
        assert sorted(r.a for r in spark.read.parquet(store.get_train_data_path(idx)).collect()) == [2.0, 3.0]


@longer
def test_helpers_of_data_frames(spark):
    from horovod.spark.common import util
    from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
    from pyspark.sql.types import FloatType, StructField, StructType

    rows = [
        (1, 1.0, [1, 1], DenseVector([1.0, 2.0]), SparseVector(2, {1: 1.0}), True),
        (2, None, [1, 2], SparseVector(2, {1: 1.0}), SparseVector(2, {}), False),
    ]
    frame = spark.createDataFrame(rows, ["who`le", "part", "list", "mixed", "sparse", "held"])
    kinds, shapes, sizes = util._get_col_info(frame)
    assert (
        kinds["part"] == {float, type(None)}
        and kinds["mixed"] == {DenseVector, SparseVector}
        and kinds["list"] == {list}
    )
    assert shapes == {"who`le": 1, "part": 1, "list": 2, "mixed": 2, "sparse": 2, "held": 1} and (
        sizes["mixed"],
        sizes["sparse"],
    ) == (2, 1)
    with pytest.raises(ValueError, match="Column list does not have uniform shape"):
        util._get_col_info(spark.createDataFrame([([1],), ([1, 2],)], ["list"]))
    train, val, part = util._train_val_split(frame, "held")
    assert (train.count(), val.count(), part) == (1, 1, 0.5) and "held" not in val.columns
    assert util._train_val_split(frame, None)[1:] == (None, 0.0) and util._train_val_split(frame, 0.25)[2] == 0.25
    schema = StructType([StructField("a", FloatType()), StructField("y", VectorUDT())])
    metadata = {"a": {"spark_data_type": FloatType}, "y": {"spark_data_type": DenseVector}}
    made = util.get_spark_df_output_schema(schema, ["a", "y"], ["a_out", "y_out"], metadata)
    assert made.names == ["a", "y", "a_out", "y_out"] == util.get_output_cols(schema, ["a_out", "y_out"])
    assert made["a_out"].dataType == FloatType() and made["y_out"].dataType == VectorUDT()
    with pytest.raises(ValueError, match="Output col 'a' exists"):
        util.get_spark_df_output_schema(schema, ["y"], ["a"], metadata)
    assert (util.data_type_to_str(VectorUDT), util.data_type_to_str(FloatType), util.is_databricks()) == (
        "Vector",
        "Float",
        False,
    )


@longer
def test_on_parquet_with_whole_labels(table, tmp_path):
    """What prepare_data wrote is trained on; a label of whole numbers comes back rounded, in its type."""
    import horovod.spark.torch as hvd
    from horovod.spark.common import util
    from horovod.spark.common.store import Store

    store = Store.create(str(tmp_path))
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Sigmoid())
    estimator = hvd.TorchEstimator(
        num_proc=2, store=store, model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.1),
        feature_cols=["features"],
        label_cols=["y"], loss_constructors=[torch.nn.BCELoss], batch_size=20, epochs=5, verbose=0, random_seed=3,
        sample_weight_col="w", transformation_fn=lambda: lambda frame: frame,
    )  # fmt: skip
    from pyspark.sql import functions as F

    weighed = table.withColumn("w", F.lit(1.0))
    with util.prepare_data(2, store, weighed, ["y"], ["features"], validation="held", sample_weight_col="w") as idx:
        rows, held, metadata, _ = util.get_dataset_properties(idx)
        assert (rows, held) == (320, 80) and metadata["features"]["shape"] == 2
        util.check_shape_compatibility(metadata, ["features"], ["y"], input_shapes=[[-1, 2]], output_shapes=[[-1, 1]])
        fitted = estimator.fit_on_parquet(dataset_idx=idx)
    assert "validation" in fitted.getHistory()[0]
    scored = fitted.transform(table)
    assert scored.schema["y__output"].dataType.simpleString() == "int"
    assert scored.where("y = y__output").count() > 360
    fitted.save(str(tmp_path / "fitted"))
    again = hvd.TorchModel.load(str(tmp_path / "fitted")).setOutputCols("out")
    assert again.transform(table).where("y = out").count() == scored.where("y = y__output").count()
    alone = hvd.TorchModel(
        model=fitted.getModel(), feature_columns=["features"], label_columns=["label"], input_shapes=[[-1, 2]]
    )
    said = alone.transform(table).select("label__output", "y").collect()  # of a label of fractions: as it is
    assert 0 < said[0]["label__output"] < 1 and sum((r["label__output"] > 0.5) == (r.y == 1) for r in said) > 360


def test_what_bad_input_gets_from_horovods_estimators(table, tmp_path):
    from horovod.spark.common.backend import LocalBackend, SparkBackend
    from horovod.spark.common.store import LocalStore
    from horovod.spark.torch import TorchEstimator

    given = {
        "model": Classifier(),
        "loss": torch.nn.NLLLoss(),
        "feature_cols": ["features"],
        "label_cols": ["label"],
        "num_proc": 2,
    }

    def refused(match, **more):
        with pytest.raises(ValueError, match=match):
            TorchEstimator(**given | more).fit(table)

    refused(r"model parameter is required", model=None)
    refused(r"no label column 'lable'; did you mean 'label'", label_cols=["lable"])
    refused(r"Validation split 1.5 must be in the range", validation=1.5)
    refused(r"Validation column hold does not exist", validation="hold")
    refused(r'At most one of parameters "backend" and "num_proc"', backend=SparkBackend(2))
    refused(r"only one of loss_constructors and loss", loss_constructors=[torch.nn.NLLLoss])
    refused(r"train_minibatch_fn is a str; give a function", train_minibatch_fn="no")
    refused(
        r"accumulate=2 with minibatch, a function that makes the step of a torch module itself",
        train_minibatch_fn=print,
        backward_passes_per_step=2,
    )
    with pytest.raises(
        ValueError, match=r"there is no data in file://.*intermediate_train_data; write it there as Parquet"
    ):
        TorchEstimator(**given, store=LocalStore(str(tmp_path))).fit_on_parquet()
    assert SparkBackend().num_processes() == 4 and LocalBackend(2).num_processes() == 2
    again = TorchEstimator(**given).setEpochs(7)
    again.write().save(str(tmp_path / "unfitted"))
    loaded = TorchEstimator.load(str(tmp_path / "unfitted"))
    assert (loaded.getEpochs(), loaded.getNumProc(), loaded.getLabelCols()) == (
        7,
        2,
        ["label"],
    ) and loaded.getTrainReaderNumWorker() == 2


def test_the_names_of_the_list_are_there():
    import importlib

    listed = re.findall(
        r"^\| `((?:horovod\.spark|sparkdl\.estimators)\.[^`]+)` \| works",
        (beside.ROOT / "docs/horovod.md").read_text(),
        re.M,
    )
    assert "horovod.spark.torch.TorchEstimator" in listed and "horovod.spark.keras.KerasModel" in listed
    for name in listed:
        parts = name.split(".")
        at = next(i for i, p in enumerate(parts) if i > 1 and (p[0].isupper() or i == len(parts) - 1))
        if name.startswith("horovod.spark.tensorflow."):  # test_compute_worker.py has TensorFlow in a process
            continue
        thing = importlib.import_module(".".join(parts[:at])) if parts[at] != "conf" else importlib.import_module(name)
        for part in parts[at:] if parts[at] != "conf" else ():
            thing = getattr(thing, part)


def test_stores(tmp_path):
    from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

    kinds = {
        "hdfs://h:9000/a": HDFSStore,
        "dbfs:/a": DBFSLocalStore,
        "/dbfs/a": DBFSLocalStore,
        "s3://b/a": FilesystemStore,
        "/a": LocalStore,
    }
    for path, kind in kinds.items():
        assert type(pickle.loads(pickle.dumps(Store.create(path)))) is kind
    assert (
        DBFSLocalStore.normalize_path("dbfs:/x/y") == "/dbfs/x/y" == DBFSLocalStore.normalize_path("file:///dbfs/x/y")
    )
    store = Store.create(str(tmp_path))
    assert store.get_train_data_path(3) == f"file://{tmp_path}/intermediate_train_data.3"
    assert store.get_checkpoint_path("r") == f"file://{tmp_path}/runs/r" and store.get_logs_path("r").endswith(
        "/runs/r/logs"
    )
    assert not store.exists(store.get_run_path("r")) and not store.is_parquet_dataset(store.get_train_data_path())
    store.write_text(f"{store.get_run_path('r')}/note", "said")
    assert store.read(f"{store.get_run_path('r')}/note") == b"said" == (tmp_path / "runs/r/note").read_bytes()
    with store.get_local_output_dir_fn("r")() as folder:
        (tmp_path / folder / "logs").mkdir()
        (tmp_path / folder / "logs/events").write_text("e")
        store.sync_fn("r")(folder)
    assert (tmp_path / "runs/r/logs/events").read_text() == "e" and store.to_remote("r", 1).train_data_path.endswith(
        ".1"
    )
    other = Store.create("memory://hora-test")
    other.write_text("memory://hora-test/runs/x", "there")
    assert other.read("memory://hora-test/runs/x") == b"there" and other.saving_runs()
