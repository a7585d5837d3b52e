"""Batches for TensorFlow and JAX, in processes of their own: they are not in the environment of the other tests."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from beside import TREE, folder

import hora.dataset

TENSORFLOW = """
import sys, numpy as np, tensorflow as tf, hora.dataset
loader = hora.dataset.open(sys.argv[1], columns={"x": ["a", "b"], "id": "id", "text": "text", "list": "list"}, batch=16, seed=1)
seen = []
for batch in loader.tensorflow():
    assert batch["x"].shape[1] == 2 and batch["x"].dtype == tf.float32
    for i, t, l in zip(batch["id"].numpy(), batch["text"].numpy(), batch["list"]):
        assert t == b"row %d" % i and l.numpy().tolist() == list(range(i % 3))
        seen.append(int(i))
assert sorted(seen) == list(range(100)), seen
one = hora.dataset.open(sys.argv[1], columns={"x": ["hole"]}, batch=100, nulls={"x": "mask"})
assert [b["x.null"].shape for b in one.tensorflow()] == [(100, 1)]
work = hora.dataset.open(sys.argv[1], columns=["id"], batch=20, transform=lambda b: {"twice": 2 * b["id"]})
(total,) = [sum(int(b["twice"].numpy().sum()) for b in work.tensorflow({"twice": tf.TensorSpec((None,), tf.int64)}))]
assert total == 2 * sum(range(100))
try:
    work.tensorflow()
except hora.ArgumentError as e:
    assert "give signature=" in str(e)

def example(i):
    f = {"id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i - 50])),
         "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, 0.5])),
         "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % i])),
         "tokens": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i % 4)))}
    return tf.train.Example(features=tf.train.Features(feature=f)).SerializeToString()

record = sys.argv[1] + ".tfrecord"
with tf.io.TFRecordWriter(record) as w:
    for i in range(600):
        w.write(example(i))
table = hora.dataset.read(record)
assert table["id"].tolist() == [i - 50 for i in range(600)] and table["x"].tolist() == [[float(i), 0.5] for i in range(600)]
assert [bytes(v) for v in table["name"]] == [b"n%d" % i for i in range(600)]
assert table["tokens"].tolist() == [list(range(i % 4)) for i in range(600)]
with open(record, "r+b") as f:
    f.seek(20000)
    f.write(b"??")
try:
    hora.dataset.read(record)
except hora.HoraError as e:
    assert "checksum" in str(e) and "record " in str(e) and "write the file again" in str(e), e
print("right")
"""

JAX = """
import sys, numpy as np, jax, hora.dataset
loader = hora.dataset.open(sys.argv[1], columns={"x": ["a", "b"], "id": "id"}, batch=16, seed=1).jax()
held = list(loader)
assert all(isinstance(b["x"], jax.Array) and b["x"].shape[1] == 2 for b in held)
assert sorted(int(i) for b in held for i in b["id"]) == list(range(100)) and loader.state_dict()["pos"] == 100
sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("data",)), jax.sharding.PartitionSpec("data"))
other = hora.dataset.open(sys.argv[1], columns=["id"], batch=25).jax(sharding)
assert all(b["id"].sharding == sharding for b in other)
try:
    list(hora.dataset.open(sys.argv[1], columns=["at"], batch=20).jax())
except hora.HoraError as e:
    assert "'at' has whole numbers" in str(e) and "jax_enable_x64" in str(e), e
else:
    raise SystemExit("cut")
print("right")
"""


@pytest.mark.parametrize("name", ["tensorflow", "jax"])
def test_batches_are_the_frameworks(name, arrow, tmp_path):
    import pyarrow as pa

    ids = np.arange(100)
    hora.dataset.write(
        pa.table(
            {
                "id": ids,
                "a": ids.astype("f4"),
                "b": ids.astype("f4"),
                "text": [f"row {i}" for i in ids],
                "list": [list(range(i % 3)) for i in ids],
                "hole": [None if i % 7 else int(i) for i in ids],
                "at": ids.astype("M8[h]").astype("M8[ns]"),
            }
        ),
        tmp_path / "x.parquet",
    )
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*TREE, str(folder(name))]),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    code = {"tensorflow": TENSORFLOW, "jax": JAX}[name]
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x.parquet"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.endswith("right\n"), done.stderr[-3000:]


SHARDED = """
import sys
import jax
import numpy as np

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
import hora
import hora.dataset

hora.init()
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
total, mine, steps = jax.jit(lambda x: x.sum()), [], 0
for batch in hora.dataset.open(sys.argv[1], columns=["id"], batch=8, seed=3, last="drop").jax(sharding):
    x = batch["id"]
    assert x.shape == (16,) and x.sharding == sharding and x.addressable_data(0).shape == (8,), x
    part = np.asarray(x.addressable_data(0))
    assert int(total(x)) == int(hora.allreduce(int(part.sum()), hora.SUM))
    mine, steps = [*mine, *part.tolist()], steps + 1
every = hora.allgather(np.array(mine))
assert steps == 6 and sorted(every.tolist()) == list(range(96)) and mine != sorted(mine)
jax.distributed.shutdown()
print("well")
"""


def test_each_rank_has_its_part_of_one_array(arrow, tmp_path, hora_program):
    """Of a mesh of several processes, as plain JAX makes it under `hora run`."""
    import pyarrow as pa

    hora.dataset.write(pa.table({"id": np.arange(96)}), tmp_path / "x.parquet")
    (tmp_path / "program.py").write_text(SHARDED)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*TREE, str(folder("jax"))]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [hora_program, "run", "-np", "2", sys.executable, tmp_path / "program.py", tmp_path / "x.parquet"],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.count("well") == 2, done.stdout + done.stderr[-3000:]
