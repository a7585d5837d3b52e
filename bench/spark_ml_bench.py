"""Rows into the ranks of an Estimator, many models on partitions, predictions: hora.spark beside what one would write
by hand.

    $(sh tools/deps.sh path spark-4)/bin/python bench/spark_ml_bench.py [part …]

Parts: rows, partitions, predictions; without one all of them. One local cluster and one session; turns are interleaved
and the results compared in the run. The ensembles' accuracy and the killed fits are tests: test_ensemble.py,
test_estimator.py (HORA_SOAK=1).
"""

import itertools
import pickle
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "python/tests/spark"
sys.path.insert(0, str(TESTS))
import sessions  # isort: skip (first: where a tree has its library, it is the tree's hora)
import numpy as np

import hora
import hora.dataset
import hora.spark
from hora.spark import _cluster

TURNS = 5
WIDE = 50


def told(what, seconds, note=""):
    every = " ".join(f"{t:.2f}" for t in seconds)
    print(f"| {what} | {statistics.median(seconds):.2f} | {every} | {note} |", flush=True)


def taken(turns, times):
    """Every turn of all contestants, TURNS times after one that warms up; what each gives must be the same."""
    said = {}
    for turn in range(TURNS + 1):
        for name, call in turns.items():
            began = time.monotonic()
            found = call()
            took = found.pop("seconds", time.monotonic() - began)
            said.setdefault(name, found)
            assert said[name] == found, (name, said[name], found)
            if turn:
                times.setdefault(name, []).append(took)
    return said


def ratio(times, ours, theirs):
    return statistics.median([t / o for o, t in zip(times[ours], times[theirs], strict=True)])


def measured(pieces):
    """A rank's part: rows, the sum of the first column in thousandths, and the seconds until the last rank has all."""
    import time

    import hora

    hora.init()
    hora.allreduce(0.0, hora.SUM, name="begin", named=True)
    began, rows, total = time.monotonic(), 0, 0.0
    for x in pieces():
        assert x.shape[1] == 50 and str(x.dtype).endswith("float32")
        rows, total = rows + len(x), total + float(x[:, 0].sum())
    rows, total = (float(hora.allreduce(float(v), hora.SUM, name=n, named=True)) for n, v in (("rows", rows), ("total", total)))
    return {"rows": int(rows), "total": round(total / 10), "seconds": time.monotonic() - began}


def of_frame():
    import numpy as np

    import hora.spark

    for b in hora.spark.batches(4096, last="short"):
        yield np.stack([c.to_numpy(zero_copy_only=False) for c in b.columns], axis=1)


def of_parquet(folder):
    import hora.dataset

    for b in hora.dataset.open(folder, columns={"x": [f"f{i}" for i in range(50)]}, batch=4096, shuffle=False):
        yield b["x"]


def of_loader(folder):
    import glob
    import os

    import numpy as np
    import pyarrow.parquet as pq
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            worker, rank = torch.utils.data.get_worker_info(), int(os.environ["HORA_RANK"])
            for at, path in enumerate(sorted(glob.glob(f"{folder}/*.parquet"))):
                if at % 4 == 2 * rank + worker.id:
                    for b in pq.ParquetFile(path).iter_batches(4096):
                        yield torch.from_numpy(np.stack([c.to_numpy() for c in b.columns], axis=1))

    yield from torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=2)


def rows(spark, folder):
    from pyspark.sql import functions as F

    many, path = 1_000_000, str(folder / "rows")
    spark.range(many, numPartitions=8).select(*[F.rand(i).cast("float").alias(f"f{i}") for i in range(WIDE)]).write.parquet(path)
    frame = spark.read.parquet(path)

    def train(t):
        import hora

        total = float(hora.allreduce(float(t.rows["f0"].sum()), hora.SUM, name="total", named=True))
        t.end_epoch(0, {"total": round(total / 10)})
        return lambda columns: columns["f0"]

    def fit():
        features = [f"f{i}" for i in range(WIDE)]
        fitted = hora.spark.Estimator(train, features=features, label=[], np=2, verbose=False).fit(frame)
        return {"total": fitted.history[0]["total"]}

    def job(pieces, *args, **more):
        return lambda: hora.spark.run(lambda: measured(lambda: pieces(*args)), np=2, **more)[0]

    times = {}
    loader, parquet = "pyarrow → DataLoader, 2 workers a rank, to tensors", "hora.dataset on the Parquet files, to matrices"
    data, whole = "`dataframe=` and hora.spark.batches, to matrices", "Estimator.fit of a function, whole: looked at, started, sorted"
    staged = "the Parquet path of a frame: Spark writes files, hora.dataset reads them"
    own = "Spark alone reads the files and sums each column: no row leaves it"
    reads, count = job(of_parquet, path), itertools.count()

    def write_and_read():
        began, files = time.monotonic(), str(folder / f"staged-{next(count)}")
        frame.repartition(2).write.parquet(files)
        wrote = time.monotonic() - began
        found = job(of_parquet, files)()
        shutil.rmtree(files)
        return found | {"seconds": wrote + found["seconds"]}

    def summed():
        frame.agg(*[F.sum(f"f{i}") for i in range(WIDE)]).collect()
        return {}

    turns = {
        loader: job(of_loader, path), parquet: reads, data: job(of_frame, dataframe=frame), staged: write_and_read,
        whole: fit, own: summed,
    }  # fmt: skip
    said = taken(turns, times)
    assert len({v["total"] for v in said.values() if v}) == 1 and said[data]["rows"] == many == said[parquet]["rows"], said
    for name in turns:
        note = f"{many / statistics.median(times[name]):,.0f} rows a second"
        if name in (parquet, data):
            note += f"; {ratio(times, name, loader):.2f} times the DataLoader's (goal 2)"
        if name == data:
            note += f", {ratio(times, data, staged):.2f} times the Parquet path's (goal 1), {ratio(times, data, parquet):.2f} times files' that lie there"
        told(name, times[name], note)


def partitions(spark, _):
    import resource

    import xgboost
    from pyspark.sql import functions as F

    names = [f"f{i}" for i in range(20)]
    columns = [F.rand(i).alias(n) for i, n in enumerate(names)]
    made = spark.range(100_000, numPartitions=4).select((F.col("id") % 100).cast("int").alias("part"), *columns)
    frame = made.withColumn("label", (F.col("f0") + F.col("f1") > 1).cast("int")).cache()
    frame.count()
    settings = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1}

    def train(table):
        import pandas as pd

        model = xgboost.XGBClassifier(**settings).fit(table[names].to_numpy(), table["label"].to_numpy())
        return pd.DataFrame({"part": [int(table["part"].iloc[0])], "model": [pickle.dumps(model)]})

    def by_hand():
        found = frame.groupBy("part").applyInPandas(train, "part int, model binary").collect()
        return {"models": len([pickle.loads(r.model) for r in found])}

    grew = []

    def ours():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        base = xgboost.XGBClassifier(**settings)
        fitted = hora.spark.PartitionEnsemble(base, n=100, by="part", features=names, label="label").fit(frame)
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grew.append((now - before, sum(len(pickle.dumps(m)) for m in fitted.models)))
        return {"models": len(fitted.models)}

    times = {}
    said = taken({"applyInPandas, models collected": by_hand, "PartitionEnsemble(n=100)": ours}, times)
    assert [v["models"] for v in said.values()] == [100, 100]
    told("100 × XGBoost, 1,000 rows × 20: applyInPandas", times["applyInPandas, models collected"])
    most, models = max(g[0] for g in grew[1:]) / 1024, grew[0][1] / (1 << 20)
    faster = ratio(times, "PartitionEnsemble(n=100)", "applyInPandas, models collected")
    told(
        "the same: PartitionEnsemble", times["PartitionEnsemble(n=100)"],
        f"{faster:.2f} times (goal 1); the driver's Python grew by {grew[0][0] / 1024:.0f} MiB at the first fit, {most:.0f} MiB later, for {models:.1f} MiB of models",
    )  # fmt: skip


def predictions(spark, folder):
    """Of a table of ten columns, and of one with the same numbers of fifty features as a list in each row."""
    from pyspark.sql import functions as F

    many = 1_000_000
    for what, width in (("10 columns", 10), ("a list of 50", 50)):
        values = [F.rand(i).cast("float") for i in range(width)]
        columns = [F.array(*values).alias("x")] if width == 50 else [v.alias(f"f{i}") for i, v in enumerate(values)]
        frame = spark.range(many, numPartitions=8).select(*columns).cache()
        frame.count()
        predicted(frame, list(frame.columns), what, width, str(folder / f"model-{width}.pt"))
        frame.unpersist()


def predicted(frame, names, what, width, path):
    import pandas as pd
    import torch
    from pyspark.sql import functions as F

    many = frame.count()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).eval()
    torch.save(model, path)

    def answer(model, columns):
        import torch

        x = np.stack([c.to_numpy() for c in columns], axis=1) if len(columns) > 1 else np.array(columns[0].tolist())
        with torch.no_grad():
            return pd.Series(model(torch.from_numpy(x))[:, 0].double().numpy())

    def loaded():
        import torch

        torch.set_num_threads(1)  # of the two cores that two tasks share
        return torch.load(path, weights_only=False)

    @F.pandas_udf("double")
    def each(*columns: pd.Series) -> pd.Series:
        return answer(loaded(), columns)

    def iterated(batches: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        model = loaded()
        for columns in batches:
            yield answer(model, columns if isinstance(columns, tuple) else (columns,))

    def nothing(batches: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        for columns in batches:
            yield pd.Series(np.zeros(len(columns[0] if isinstance(columns, tuple) else columns)))

    once, free = (F.pandas_udf(f, "double") for f in (iterated, nothing))

    def summed(found):
        return lambda: {"sum": round(found().agg(F.sum("prediction")).first()[0] / 100)}

    first, second = f"{what}: a pandas UDF that loads the model for each batch", f"{what}: a pandas UDF that loads it once"
    ours, idle = f"{what}: hora.spark.predict", f"{what}: a pandas UDF that computes nothing, which is Spark's own part"
    turns = {
        first: summed(lambda: frame.withColumn("prediction", each(*names))),
        second: summed(lambda: frame.withColumn("prediction", once(*names))),
        ours: summed(lambda: hora.spark.predict(model, frame, features=names)),
    }
    times = {}
    said = taken(turns | {idle: summed(lambda: frame.withColumn("prediction", free(*names)))}, times)
    assert len({said[name]["sum"] for name in turns}) == 1, said
    for name in (*turns, idle):
        note = f"{many / statistics.median(times[name]):,.0f} rows a second"
        if name in (ours, idle):
            note += f"; {ratio(times, name, first):.2f} times the first (goal 3), {ratio(times, name, second):.2f} times the second (goal 1.2)"
        told(name, times[name], note)


PARTS = {"rows": rows, "partitions": partitions, "predictions": predictions}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    folder = Path(tempfile.mkdtemp(prefix="spark-ml-bench-"))
    spark = sessions.start("local-cluster[2,2,1024]", folder)
    try:
        _cluster.wait_for_slots(spark, 4, 120, print)
        print("| what | median, s | turns, s | |\n| --- | --- | --- | --- |")
        for name in wanted:
            PARTS[name](spark, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
