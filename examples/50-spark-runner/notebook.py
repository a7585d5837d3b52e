"""HorovodRunner from this machine to a Spark cluster, with one function.

    python examples/50-spark-runner/notebook.py          # a cluster of two executors on this machine

The cells of a notebook: two local processes first (np=-2), then two task slots of the cluster (np=2), where the rows of
a data frame are. The result is the same.
"""

# %%
from pyspark.sql import SparkSession


def train(steps, lr=0.1):
    import horovod.torch as hvd
    import torch
    from sparkdl.horovod import log_to_driver
    from torch import nn

    hvd.init()
    torch.manual_seed(0)
    truth = torch.arange(8.0).reshape(1, 8) / 8
    model = nn.Linear(8, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=lr), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    g = torch.Generator().manual_seed(hvd.rank())
    for step in range(steps):
        x = torch.randn(32, 8, generator=g)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x @ truth.t())
        loss.backward()
        optimizer.step()
        if hvd.rank() == 0 and step % 25 == 0:
            log_to_driver(f"step {step}: loss {loss.item():.4f}")
    weights = hvd.allgather(model.weight.detach())
    return {"ranks": hvd.size(), "loss": loss.item(), "equal": bool((weights == weights[0]).all())}


def mean_of(column):
    """The mean of a column, from the parts that the ranks hold."""
    import hora
    import hora.spark

    hora.init()
    total = rows = 0
    for batch in hora.spark.batches(256, last="short"):
        total += sum(batch.column(column).to_pylist())
        rows += batch.num_rows
    total, rows = hora.allreduce(float(total)), hora.allreduce(rows)
    return total / rows


# %%
def main():
    import hora.spark
    from sparkdl import HorovodRunner

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    here = HorovodRunner(np=-2).run(train, steps=100)
    print("np=-2:", here)
    there = HorovodRunner(np=2).run(train, steps=100)
    print("np=2:", there)
    assert here == there and there["ranks"] == 2 and there["equal"] and there["loss"] < 1e-3
    means = hora.spark.run(mean_of, args=("id",), np=2, dataframe=spark.range(10_001))
    print("mean:", means)
    assert means == [5000.0, 5000.0]
    print("the cluster and this machine agree")


if __name__ == "__main__":
    main()
    SparkSession.getActiveSession().stop()
