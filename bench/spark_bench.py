"""An empty function on two ranks of a warm session: hora.spark.run, TorchDistributor and an empty barrier job, interleaved."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python/tests/spark"))
import sessions
from pyspark.ml.torch.distributor import TorchDistributor

import hora.spark


def empty():
    return 1


def barrier(batches):
    import pyarrow

    list(batches)
    yield pyarrow.RecordBatch.from_pydict({"x": [1]})


def main():
    with tempfile.TemporaryDirectory() as folder:
        spark = sessions.start("local-cluster[2,1,1024]", Path(folder))
        rows = spark.range(2, numPartitions=2)
        turns = {
            "empty barrier job": lambda: (
                len(rows.mapInArrow(barrier, "x long", barrier=True).collect()) == 2
            ),
            "hora.spark.run": lambda: hora.spark.run(empty, np=2) == [1, 1],
            "TorchDistributor": lambda: (
                TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(
                    empty
                )
                == 1
            ),
        }
        times = {name: [] for name in turns}
        for turn in range(8):
            for name, run in turns.items():
                began = time.monotonic()
                assert run()
                if turn:  # the first one warms up
                    times[name].append(time.monotonic() - began)
        for name, took in times.items():
            print(
                f"{name}: median {statistics.median(took):.2f} s of",
                " ".join(f"{t:.2f}" for t in took),
            )
        spark.stop()


if __name__ == "__main__":
    main()
