"""Trainings under Spark Connect: an estimator, Horovod's, an ensemble, and what they predict, where there is no
SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import sessions
from pyspark.sql import SparkSession, functions as F

os.environ["SPARK_TESTING"] = "1"  # any free port
builder = SparkSession.builder.remote("local-cluster[2,1,1024]")
for k, v in sessions.settings(Path(sys.argv[2])).items():
    builder = builder.config(k, v)
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__

import numpy as np, torch
import hora, hora.spark

x = np.random.default_rng(0).normal(size=(400, 2))
rows = [(float(a), float(b), float(2 * a - b + 1), int(2 * a - b > 0), i % 5 == 0) for i, (a, b) in enumerate(x)]
table = spark.createDataFrame(rows, "a double, b double, y double, c int, held boolean").repartition(3)
os.chdir(sys.argv[2])
store = "store"  # the driver's, also where executors have folders of their own
torch.manual_seed(1)
e = hora.spark.Estimator(
    torch.nn.Linear(2, 1), loss="mse", optimizer=torch.optim.SGD, features=["a", "b"], label="y", np=2, learning_rate=0.1,
    batch_size=25, epochs=4, validation="held", store=store, run_id="r", verbose=False,
)
fitted = e.fit(table)
print("fitted", [h["epoch"] for h in fitted.history], fitted.history[-1]["val_loss"] < 0.05)
scored = fitted.transform(table)
worst = scored.select(F.max(F.abs(F.col("prediction") - F.col("y")))).first()[0]
print("transformed", scored.count(), worst < 0.5)
fitted.write().overwrite().save(str(Path(sys.argv[2]) / "saved"))
again = hora.spark.EstimatorModel.load(str(Path(sys.argv[2]) / "saved"))
print("loaded", again.transform(table).orderBy("a").first().prediction == scored.orderBy("a").first().prediction)
try:
    e.fit(table.withColumn("a", F.lit("x")))
except hora.HoraError as error:
    print("said", error)

from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import LocalStore
from horovod.spark.torch import TorchEstimator
net = torch.nn.Linear(2, 1)
points = table.withColumn("point", F.array("a", "b"))
h = TorchEstimator(
    backend=SparkBackend(num_proc=2), store=LocalStore(store), model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
    loss=lambda out, y: torch.nn.functional.mse_loss(out.reshape(-1), y.reshape(-1).float()), feature_cols=["point"], label_cols=["y"],
    input_shapes=[[-1, 2]], batch_size=25, epochs=2, verbose=0,
)
print("horovod", h.fit(points).transform(points).count())

from sklearn.linear_model import LogisticRegression
many = hora.spark.PartitionEnsemble(LogisticRegression(), features=["a", "b"], label="c", n=3).fit(table)
voted = many.transform(table)
print("ensemble", voted.where("prediction = c").count() > 360)
spark.stop()
"""


@pytest.mark.skipif(
    os.environ.get("HORA_SPARK") != "all" or pyspark.__version__ < "4",
    reason="needs a session of its own, and pyspark 4 (make test-spark)",
)
def test_trainings_under_connect(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", Path(__file__).parent, tmp_path],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("fitted [1, 2, 3, 4] True", "transformed 400 True", "loaded True", "horovod 400", "ensemble True"):
        assert line in done.stdout, done.stdout + done.stderr
    assert "said Estimator.fit: column 'a' holds string" in done.stdout, done.stdout
