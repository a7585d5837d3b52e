"""hora.tensorflow.shard and hora.keras.shard: every element once, equally many on all ranks, whatever their number."""

import os

import pytest

SHARDS = """
import sys
import numpy as np, tensorflow as tf, keras
import hora, hora.keras, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()
data = tf.data.Dataset


def all_of(mine):
    every = hora.allgather_object([int(v) for v in mine])
    assert len(set(map(len, every))) == 1, every
    return [every[i % n][i // n] for i in range(n * len(every[0]))]     # in the order of turns


def unknown(ds):
    return ds.filter(lambda *x: True)


for count in range(n, 5 * n + 1):
    right = list(range(count // n * n))
    assert all_of(ht.shard(data.range(count)).as_numpy_iterator()) == right
    assert all_of(ht.shard(unknown(data.range(count))).as_numpy_iterator()) == right
    padded = [i % count for i in range(-(-count // n) * n)]
    assert all_of(ht.shard(data.range(count), last="pad").as_numpy_iterator()) == padded
    x, y = np.arange(count), np.arange(count)[:, None] * 10
    for last, want in (("drop", right), ("pad", padded)):
        a, b = hora.keras.shard((x, y), last=last)
        assert all_of(a) == want and (b[:, 0] == 10 * a).all()
        assert all_of(hora.keras.shard({"x": keras.ops.convert_to_tensor(x)}, last=last)["x"]) == want
assert all_of(ht.shard(data.range(1), last="pad").as_numpy_iterator()) == [0] * n
assert all_of(ht.shard(data.range(7).repeat()).take(3).as_numpy_iterator()) == [i % 7 for i in range(3 * n)]

# Elements of several parts, of shapes that differ, and after batch.
many = data.range(9).map(lambda i: (i, {"a": i * 2, "b": tf.range(i)}))
for ds in (many, unknown(many)):
    got = list(ht.shard(ds))
    assert all_of(i for i, _ in got) == list(range(9 // n * n))
    assert all(int(p["a"]) == 2 * int(i) == 2 * len(p["b"]) for i, p in got)
batches = list(ht.shard(unknown(data.range(50).batch(8))).as_numpy_iterator())
assert all_of(b[0] for b in batches) == [8 * k for k in range(7 // n * n)]
named = list(ht.shard(unknown(data.range(5).map(lambda i: {"a": i}))))
assert all_of(e["a"] for e in named) == list(range(5 // n * n))


# PyDataset: the order that it has after an epoch, and how many workers it wants.
class Rows(keras.utils.PyDataset):
    def __init__(self, **how):
        super().__init__(**how)
        self.ended, self.shift = 0, 0

    def __len__(self):
        return 2 * n + 1

    def __getitem__(self, i):
        v = (i + self.shift) % len(self)
        return np.full((4, 1), v, "f"), np.full((4, 1), v, "f")

    def on_epoch_end(self):
        self.ended += 1
        self.shift += 1


for last, many in (("drop", 2), ("pad", 3)):
    whole = Rows(workers=2, max_queue_size=3)
    mine = hora.keras.shard(whole, last=last)
    assert (len(mine), mine.num_batches, mine.workers, mine.max_queue_size) == (many, many, 2, 3)
    assert all_of(mine[i][0][0, 0] for i in range(many)) == [i % len(whole) for i in range(many * n)]


class Endless(keras.utils.PyDataset):
    num_batches = None

    def __getitem__(self, i):
        return np.full((1, 1), i, "f"), np.zeros((1, 1), "f")


mine = hora.keras.shard(Endless())
assert mine.num_batches is None and all_of(mine[i][0][0, 0] for i in range(4)) == list(range(4 * n))

# fit takes the same number of steps, where the rows divide unevenly.
m = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
m.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse")
for part in (Rows(), unknown(data.from_tensor_slices((np.ones((10 * n + 1, 1), "f"), np.ones((10 * n + 1, 1), "f"))))):
    part = hora.keras.shard(part)
    m.fit(part.batch(4) if hasattr(part, "batch") else part, epochs=2, verbose=0)
    assert len(set(all_of([m.optimizer.iterations]))) == 1

for call, says in (
    (lambda: ht.shard(data.range(n - 1)), "fewer than"), (lambda: ht.shard(data.range(0), last="pad"), "fewer than"),
    (lambda: ht.shard(unknown(data.range(5)), last="pad"), "assert_cardinality"), (lambda: ht.shard([1]), "no tf.data.Dataset"),
    (lambda: ht.shard(data.range(5), last="wrap"), '"drop" or "pad"'), (lambda: hora.keras.shard(np.ones(n - 1)), "fewer than"),
    (lambda: hora.keras.shard((np.ones(4), np.ones(5))), "different numbers of rows"), (lambda: hora.keras.shard("rows"), "none of a PyDataset"),
    (lambda: hora.keras.shard(np.ones(4), last="wrap"), '"drop" or "pad"'),
):
    try:
        call()
    except hora.ArgumentError as e:
        assert says in str(e), e
    else:
        raise AssertionError(says)
print("well")
"""


@pytest.mark.parametrize("ranks", [2, 3] if os.environ.get("HORA_SOAK") else [2])
def test_shards(run, ranks):
    assert run(SHARDS, "-np", str(ranks)).stdout.count("well") == ranks
