"""Horovod's published estimator examples, as they are, but for paths and for the data that they download.

They are not here: HOROVOD_EXAMPLES names the folder examples/spark of a copy of Horovod's sources (0.28).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import beside
import published_data
import pytest
from sample import soak

FOLDER = os.environ.get("HOROVOD_EXAMPLES", "")
MORE = os.environ.get("TENSORBOARD", "").split()  # a folder with the package tensorboard, which a callback of one needs

# Each example with the packages that it needs beside it, and its settings.
EXAMPLES = {
    "pytorch/pytorch_spark_mnist.py": ((), {}),
    "pytorch/pytorch_lightning_spark_mnist.py": (("trainers",), {}),  # not beside TensorFlow: the two's LLVMs clash
    "pytorch/pytorch_lightning_spark_mnist_legacy.py": (("trainers",), {}),
    "keras/keras_spark_mnist.py": (("tensorflow", "jax"), {}),
    "keras/keras_spark_rossmann_estimator.py": (("tensorflow", "jax"), {"HORA_LEGACY": "tf1"}),  # Adam(lr=…)
}


def test_the_data_has_the_columns_of_the_published(tmp_path):
    published_data.digits(tmp_path, rows=20)
    published_data.sales(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "mnist.bz2", "train.csv", "test.csv", "store.csv", "store_states.csv", "state_names.csv", "googletrend.csv",
        "weather.csv",
    }  # fmt: skip
    for table in tmp_path.glob("*.csv"):
        head, *rows = table.read_text().splitlines()
        assert rows and head.count(",") > 0, table


@soak
@pytest.mark.skipif(
    not FOLDER, reason="HOROVOD_EXAMPLES names no folder with Horovod's examples/spark, which are not part of this tree"
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_published_example_runs_unchanged(tmp_path, hora_program, name):
    if name == "keras/keras_spark_mnist.py" and not MORE:
        pytest.skip("TENSORBOARD names no folder with the package tensorboard, which Keras' TensorBoard callback needs")
    needs, settings = EXAMPLES[name]
    (tmp_path / "data").mkdir()
    published_data.digits(tmp_path / "data")
    published_data.sales(tmp_path / "data")
    env = os.environ | settings | {
        "PYTHONPATH": os.pathsep.join([*beside.TREE, *(str(beside.folder(n)) for n in needs), *MORE]),
        "PATH": f"{hora_program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    sales = "rossmann" in name
    data = f"file://{tmp_path}/data" if sales else str(tmp_path / "data")
    command = [sys.executable, Path(FOLDER, name).resolve(), "--num-proc", "2", "--epochs", "2", "--data-dir", data,
               "--work-dir", str(tmp_path)]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    if sales:
        assert (tmp_path / "submission.csv").read_text().count("\n") == 1 + 164 and "Best RMSPE" in done.stdout
    else:
        assert re.search(r"Test accuracy: [01]\.\d", done.stdout)
