"""One Spark table, two estimators: a PyTorch module and a Keras model, each trained by two tasks, as stages of
pipelines.

python examples/52-estimators/train.py DIR           # a cluster of two executors on this machine; DIR keeps the runs
"""

import sys

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def table(spark, rows=2000):
    """Points in the plane; the label says whether they lie in a ring."""
    found = spark.range(rows).select((F.rand(1) * 4 - 2).alias("x"), (F.rand(2) * 4 - 2).alias("y"))
    far = F.sqrt(F.col("x") ** 2 + F.col("y") ** 2)
    return found.withColumn("label", ((far > 0.7) & (far < 1.6)).cast("int"))


def pytorch():
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    return {"model": module, "loss": "cross_entropy", "optimizer": torch.optim.Adam, "metrics": ["accuracy"]}


def keras():
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(2, "softmax")])
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return {"model": model}


def main(folder):
    import hora.spark

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    train, test = table(spark).randomSplit([0.8, 0.2], seed=7)
    judge = MulticlassClassificationEvaluator(metricName="accuracy")
    vector = VectorAssembler(inputCols=["x", "y"], outputCol="features")
    for name, kind in (("pytorch", pytorch), ("keras", keras)):
        estimator = hora.spark.Estimator(
            **kind(),
            np=2,
            epochs=12,
            batch_size=16,
            learning_rate=0.02,
            validation=0.1,
            store=folder,
            run_id=name,
            verbose=False,
        )
        fitted = Pipeline(stages=[vector, estimator]).fit(train)
        last = fitted.stages[-1].history[-1]
        fitted.write().overwrite().save(f"{folder}/{name}")
        found = judge.evaluate(PipelineModel.load(f"{folder}/{name}").transform(test))
        print(f"{name}: {last['epoch']} epochs, loss {last['loss']:.2f}, {found:.2f} of the test rows right")
        assert found > 0.85
    print("both learned the ring")


if __name__ == "__main__":
    main(sys.argv[1])
    SparkSession.getActiveSession().stop()
