"""A model's predictions as a column of a Spark table: loaded once a worker, with the rows that fail listed.

python examples/55-inference/predict.py
"""

import numpy as np
import torch
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import hora.spark


def load():
    """Runs once in each worker; a real one reads a file that all of them see."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def main(spark):
    rows = spark.range(20_000, numPartitions=4).select("id", *[F.randn(i).alias(c) for i, c in enumerate("abcd")])
    rows = rows.withColumn("c", F.when(F.col("id") % 5000 != 7, F.col("c")))  # four rows have a null

    scored = hora.spark.predict(load, rows, features=["a", "b", "c", "d"], probability="p").cache()
    print(f"{scored.count():,} rows, {scored.where('prediction is not null').count():,} predicted")
    for row in scored.where("prediction_error is not null").orderBy("id").collect():
        print(f"row {row.id}: {row.prediction_error}")

    first = scored.where("prediction is not null").orderBy("id").first()
    alone = load()(torch.tensor([[first.a, first.b, first.c, first.d]])).softmax(1).detach().numpy()[0]
    print(
        f"row {first.id} is of class {first.prediction}, as the model alone says: {np.allclose(first.p, alone, atol=1e-5)}"
    )


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    main(session)
    session.stop()
