"""A session whose driver takes 2 MiB of results: what is larger, and what comes of it, a line of JSON for each. Run by
test_limits.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import sessions

import hora.spark
from hora.spark import PartitionEnsemble, register_sql

LARGE = 3 << 20


class Large:
    """An estimator whose fitted model is larger than the driver takes."""

    def fit(self, x, y):
        import os

        self.weights = os.urandom(LARGE)
        return self

    def predict(self, x):
        return x[:, 0]


def trained(columns, options):
    return Large().fit(None, None)


def wide(frames):
    """Rows of 100,000 numbers that cannot be compressed."""
    import numpy as np
    import pandas as pd

    for frame in frames:
        rows = [np.random.default_rng(i).random(100_000) for i in frame.id]
        yield pd.DataFrame({"a": rows, "label": frame.id % 2})


def weights():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(1, LARGE // 8), torch.nn.Linear(LARGE // 8, 1))


def main():
    spark = sessions.start("local[2]", Path(sys.argv[1]), **{"spark.driver.maxResultSize": "2m"})
    frame = spark.range(40).selectExpr("cast(id as double) as a", "cast(id % 2 as double) as label").repartition(2)
    frame.createOrReplaceTempView("numbers")
    sql = register_sql(spark)
    sql.register("large", trained)
    held = PartitionEnsemble(Large(), n=2, features="a", vote="mean", weight="validation", validation=0.5)
    estimator = hora.spark.Estimator(weights(), loss="mse", features="a", np=1, batch_size=20, verbose=False)
    cases = {
        "ensemble": lambda: PartitionEnsemble(Large(), n=2, features="a", vote="mean").fit(frame),
        "sql": lambda: sql("select train_classifier(a, label, '-fn large') as (model_id, model) from numbers"),
        "held out": lambda: held.fit(spark.range(16).mapInPandas(wide, "a array<double>, label long")),
        "estimator": lambda: sum(p.numel() for p in estimator.fit(frame).model.parameters()),
        "run": lambda: len(hora.spark.run(lambda: bytes(LARGE), np=1)[0]),
    }
    for name, call in cases.items():
        try:
            said = call()
        except Exception as e:
            said = f"{type(e).__name__}: {e}"
        print(json.dumps([name, said if isinstance(said, (int, str)) else str(type(said))]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
