"""A frame of Spark to two ranks of PyTorch: written once below a folder that all see, read by each rank in equal,
shuffled parts.

    pip install --no-index --find-links dist hora hora-petastorm
    python examples/60-spark-converter/train.py         # a cluster of two executors on this machine

With Petastorm's names, as docs/petastorm.md tells: no rank and no number of shards is said, they are the job's.
"""

import tempfile

from petastorm.spark import SparkDatasetConverter, make_spark_converter
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def train(converter, epochs):
    import torch

    import hora
    import hora.torch as hvd

    hora.init()
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.3), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    seen = []
    with converter.make_torch_dataloader(batch_size=50, num_epochs=epochs, seed=1) as loader:
        for batch in loader:
            optimizer.zero_grad()
            loss = ((model(batch["features"])[:, 0] - batch["label"]) ** 2).mean()
            loss.backward()
            optimizer.step()
            seen += batch["id"].tolist()
    rows = [i for part in hora.allgather_object(seen) for i in part]
    each = sorted(rows) == sorted([*range(len(converter))] * epochs)
    return {
        "rank": hora.rank(),
        "rows": len(seen),
        "each": each,
        "loss": loss.item(),
        "weights": model.weight.data.round(decimals=2).tolist()[0],
    }


def main():
    import hora.spark

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    columns = [F.randn(seed).alias(name) for seed, name in enumerate(["a", "b", "c"])]
    frame = spark.range(2000, numPartitions=4).select("id", *columns)
    frame = frame.select(
        "id", F.array("a", "b", "c").alias("features"), (2 * F.col("a") - F.col("b") + 0.5 * F.col("c")).alias("label")
    )
    with tempfile.TemporaryDirectory() as folder:
        spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, f"file://{folder}")
        converter = make_spark_converter(frame)  # doubles become float32
        results = hora.spark.run(train, args=(converter, 3), np=2)
        converter.delete()
    for result in results:
        print(f"rank {result['rank']}: {result['rows']} rows, loss {result['loss']:.4f}")
    first = results[0]
    print(
        f"each row once an epoch: {first['each']}; weights {first['weights']}, equal: {all(r['weights'] == first['weights'] for r in results)}"
    )


if __name__ == "__main__":
    main()
    SparkSession.getActiveSession().stop()
