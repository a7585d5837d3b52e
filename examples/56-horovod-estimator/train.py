"""A model_fn of TensorFlow's Estimators on a Spark table: HorovodEstimator, its folder, and a fit that goes on.

python examples/56-horovod-estimator/train.py DIR    # a cluster of two executors on this machine; DIR keeps the model
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def table(spark, rows=2000):
    """Points in the plane; the label says whether they lie in a ring; every tenth validates."""
    found = spark.range(rows).select(
        (F.rand(1) * 4 - 2).alias("x"), (F.rand(2) * 4 - 2).alias("y"), (F.col("id") % 10 == 0).alias("held")
    )
    far = F.sqrt(F.col("x") ** 2 + F.col("y") ** 2)
    return found.select(
        F.array("x", "y").alias("point"), ((far > 0.7) & (far < 1.6)).cast("int").alias("label"), "held"
    )


def model_fn(features, labels, mode, params):
    """Two layers, as a program of TensorFlow 1 has them."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    v1 = tf.compat.v1

    def dense(x, width, name):
        w = v1.get_variable(f"{name}/w", (x.shape[1], width), initializer=v1.glorot_uniform_initializer())
        return tf.matmul(x, w) + v1.get_variable(f"{name}/b", (width,), initializer=v1.zeros_initializer())

    logits = dense(tf.tanh(dense(features["point"], params["width"], "hidden")), 2, "output")
    predictions = {"class": tf.argmax(logits, axis=1), "probability": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        right = v1.metrics.accuracy(labels, predictions["class"])
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": right})
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.05))
    step = v1.train.get_global_step()
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, global_step=step))


def main(folder):
    from sparkdl.estimators.horovod_estimator.estimator import HorovodEstimator

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    rows = table(spark).cache()
    for steps in (200, 400):  # the second goes on where the first has ended
        estimator = HorovodEstimator(
            modelFn=model_fn, featureMapping={"point": "point"}, modelDir=f"{folder}/model", labelCol="label",
            batchSize=32,
            maxSteps=steps, isValidationCol="held", modelFnParams={"width": 32}, np=2,
        )  # fmt: skip
        fitted = estimator.fit(rows)
        last = fitted.history[-1]
        print(f"step {last['step']}: loss {last['val_loss']:.2f}, {last['val_accuracy']:.2f} of the held rows right")
    right = fitted.transform(rows).where(F.col("predictions.class") == F.col("label")).count() / rows.count()
    print(f"{right:.2f} of all rows right")
    assert right > 0.75  # 0.59 of them lie outside of the ring


if __name__ == "__main__":
    main(sys.argv[1])
    SparkSession.getActiveSession().stop()
