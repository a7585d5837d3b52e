"""A package that executors lack is told before the job: which one, and where."""

from __future__ import annotations

import platform
import subprocess
import sys
import types
from pathlib import Path

import pytest
from sample import classic, longer

import hora
import hora.spark
from hora.spark import PartitionEnsemble, _cluster, _kinds, _packages, _run, predict, register_sql

pytest.importorskip("pyspark")


@pytest.fixture
def lost():
    """A module of the driver's memory, as one that is installed on its machine alone."""

    class Estimator:
        def fit(self, x, y):
            return self

        def predict(self, x):
            return x[:, 0]

        predict_proba = predict

    def train(columns, options=None):
        return Estimator()

    module = types.ModuleType("nowhere_else")
    for value in (Estimator, train):
        value.__module__, value.__qualname__ = "nowhere_else", value.__name__
        setattr(module, value.__name__, value)
    sys.modules["nowhere_else"] = module
    yield module
    del sys.modules["nowhere_else"]


@longer
@classic
def test_each_executor_is_asked_and_once(spark, monkeypatch):
    def where(batches):
        import os

        import pyarrow

        for _ in batches:
            pass
        yield pyarrow.RecordBatch.from_pydict({"folder": [os.getcwd()]})

    _cluster.wait_for_slots(spark, 4, 120, print)
    many = len(_packages.executors(spark))
    assert many == 2
    folders = sorted({r.folder for r in spark.range(8, numPartitions=8).mapInArrow(where, "folder string").collect()})
    assert len(folders) == many
    name = "of_one_executor"
    module = [Path(f) / f"{name}.py" for f in folders]
    _packages.check(spark, ["numpy"], "test")
    for has, lacks in ((0, 1), (1, 0)):
        module[has].touch()
        try:
            for _ in range(3):  # whichever is asked first
                with pytest.raises(
                    hora.HoraError,
                    match=rf"test: 1 of 2 executors \(that on .*, in {folders[lacks]}\) lacks the package '{name}'; inst",
                ):
                    _packages.check(spark, ["numpy", name], "test")
        finally:
            module[has].unlink()
    with pytest.raises(
        hora.HoraError, match=f"test: all 2 executors have no package '{name}'; install it in the Python of all workers"
    ):
        _packages.check(spark, [name], "test")
    _packages.check(spark, ["numpy", "pyarrow"], "test")
    monkeypatch.setattr(_packages, "_ask", lambda *a: pytest.fail("executors were asked again"))
    _packages.check(spark, ["pyarrow", "numpy"], "test")


def test_whatever_needs_a_package_says_so_before_it_begins(spark, lost, monkeypatch, tmp_path):
    frame = spark.createDataFrame([(float(i), i % 2) for i in range(40)], "a double, label int")
    frame.createOrReplaceTempView("packaged")
    words = "no package 'nowhere_else'; install it in the Python of all workers"
    monkeypatch.setattr(_run, "launch", lambda *a, **k: pytest.fail("a gang was started"))
    with pytest.raises(hora.HoraError, match="Estimator.fit: .*" + words):
        hora.spark.Estimator(lost.train, features="a", np=2).fit(frame)
    (tmp_path / "nowhere_else.py").touch()  # where the ranks find it by env=, and the workers that are asked do not
    with pytest.raises(pytest.fail.Exception, match="a gang was started"):
        hora.spark.Estimator(lost.train, features="a", np=2, env={"PYTHONPATH": str(tmp_path)}).fit(frame)
    sql = register_sql(spark)
    sql.register("mine", lost.train)
    with pytest.raises(hora.HoraError, match="sql: train_classifier: .*" + words):
        sql("select train_classifier(a, label, '-fn mine') as (model_id, model) from packaged")
    with pytest.raises(hora.HoraError, match="PartitionEnsemble.fit: .*" + words):
        PartitionEnsemble(lost.Estimator(), n=2, features="a").fit(frame)
    with pytest.raises(hora.HoraError, match="predict: .*" + words):
        predict(lost.Estimator(), frame, features="a")
    spark.catalog.dropTempView("packaged")


@classic
def test_executors_without_pyarrow_are_told_of_by_their_python(spark, tmp_path, monkeypatch):
    """Their Python is one of its own, which has no packages at all; the driver knows it by a name alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python3"
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    monkeypatch.setattr(_cluster, "_TELLS", 300.0)  # a Python starts slowly on a machine with much to do
    words = rf"the executors have no pyarrow.* in their Python, {python} on {platform.node()}: install it there, or set PYSPARK_PYTHON"
    with pytest.raises(hora.HoraError, match=f"^spark.run: {words}"):
        hora.spark.run(print, np=1)
    with pytest.raises(hora.HoraError, match=f"^test: {words}"):
        _packages.check(spark, ["numpy"], "test")


@pytest.mark.parametrize("package", ["tf_keras", "keras"])
def test_a_model_of_keras_goes_by_its_package(package, monkeypatch):
    """Keras 2 is tf_keras, or keras itself beside TensorFlow up to 2.15."""
    known = types.SimpleNamespace(__version__="2.15.0")
    monkeypatch.setitem(sys.modules, package, known)
    layer = type("Layer", (), {"__module__": f"{package}.src.engine.base_layer", "__call__": lambda self, x: x})
    model = type("Model", (layer,), {"__module__": f"{package}.src.engine.training"})()
    assert _kinds.kind_of(model) == "keras" and _kinds.keras_of(model) is known
