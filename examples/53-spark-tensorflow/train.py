"""MirroredStrategyRunner: TensorFlow's MultiWorkerMirroredStrategy on two task slots of a Spark cluster.

python examples/53-spark-tensorflow/train.py         # a cluster of two executors on this machine
"""

from pyspark.sql import SparkSession


def train(steps):
    import tensorflow as tf
    from pyspark import BarrierTaskContext

    strategy = tf.distribute.get_strategy()
    w = tf.Variable(tf.zeros([8, 1]))
    truth = tf.reshape(tf.range(8.0) / 8, [8, 1])
    place = BarrierTaskContext.get().partitionId()

    @tf.function
    def step(x):
        def each(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ w - x @ truth) ** 2)
            gradient = tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.MEAN, tape.gradient(loss, w)
            )
            w.assign_sub(0.1 * gradient, read_value=False)
            return loss

        return strategy.run(each, args=(x,))

    g = tf.random.Generator.from_seed(place)
    for _ in range(steps):
        loss = step(g.normal([32, 8]))
    return {"workers": strategy.num_replicas_in_sync, "loss": float(loss)}


def main():
    from spark_tensorflow_distributor import MirroredStrategyRunner

    SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    result = MirroredStrategyRunner(num_slots=2, use_gpu=False).run(train, steps=100)
    print("result:", result)
    assert result["workers"] == 2 and result["loss"] < 1e-3
    print("two workers trained as one")


if __name__ == "__main__":
    main()
    SparkSession.getActiveSession().stop()
