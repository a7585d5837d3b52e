"""hora.tensorflow on two ranks: operations in eager mode, graphs, loops, pipelines and saved models, their derivatives
and faults."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

CALLS = """
import sys
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()
total = n * (n + 1) / 2


def equal(a, b):
    assert np.allclose(np.asarray(a, dtype=np.complex128), np.asarray(b, dtype=np.complex128)), (a, b)


TYPES = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128".split()
for dtype in TYPES:
    x = tf.cast(tf.fill([2, 3], r + 1), dtype)
    for f in (ht.allreduce, tf.function(ht.allreduce)):
        y = f(x)
        assert y.dtype == x.dtype and y.shape == x.shape
        equal(tf.cast(y, "complex128"), np.full((2, 3), 1 if dtype == "bool" else total))
    x = tf.cast(tf.range(n) + n * r, dtype)
    every = np.arange(n * n).astype(x.dtype.as_numpy_dtype).reshape(n, n)
    sums = every.any(0) if dtype == "bool" else every.sum(0)
    moves = ((ht.allgather, every.ravel()), (lambda x: ht.broadcast(x, 1), every[1]), (ht.alltoall, every[:, r]), (ht.reducescatter, sums[r : r + 1]))
    for f, right in moves:
        for y in (f(x), tf.function(f)(x)):
            assert y.dtype == x.dtype
            equal(tf.cast(y, "complex128"), right.astype("complex128"))
for dtype in ("float8_e4m3fn", "float8_e5m2"):                                # which not every release names
    if x := getattr(tf.dtypes.experimental, dtype, None):
        y = ht.allgather(ht.allreduce(tf.cast(tf.fill([2], r + 1.0), x)))
        assert y.dtype == x and y.shape == [2 * n]
        equal(tf.cast(tf.cast(y, "float32"), "complex128"), np.full(2 * n, total))
equal(ht.allreduce(tf.constant(float(r)), hora.MAX), n - 1)
equal(ht.allreduce(tf.fill([3], r + 1.0), "average", prescale=2, postscale=3), np.full(3, 6 * total / n))
equal(ht.allreduce(tf.ones(3), compression=ht.Compression.fp16), np.full(3, n))
equal(ht.allreduce(tf.zeros([0, 3])), np.zeros((0, 3)))
v = tf.Variable([1.0, 2.0])
equal(ht.allreduce(v), [n, 2 * n]); equal(v, [1, 2])                         # a variable that goes in is not overwritten
many = tf.function(lambda: ht.allreduce([tf.fill([2], float(i)) for i in range(40)]))()
for i, y in enumerate(many):
    equal(y, np.full(2, float(i * n)))

# Rows: numbers that differ between the ranks.
equal(tf.function(ht.allgather)(tf.fill([r + 1, 2], float(r))), np.concatenate([np.full((q + 1, 2), q) for q in range(n)]))
equal(ht.allgather(tf.constant(r)), np.arange(n))
equal(ht.allgather(tf.zeros([r + 1, 0])), np.zeros((n * (n + 1) // 2, 0)))
y, received = ht.alltoall(tf.zeros([n + 1, 0]), tf.constant([2] + [1] * (n - 1)))
equal(y, np.zeros((2 * n if r == 0 else n, 0))); equal(received, [2 if r == 0 else 1] * n)
equal(ht.broadcast(tf.range(4) + 10 * r, 1), np.arange(4) + 10)
y, received = ht.alltoall(tf.range(n + 1) + 100 * r, tf.constant([2] + [1] * (n - 1)))
equal(y, np.concatenate([[100 * q, 100 * q + 1] if r == 0 else [100 * q + r + 1] for q in range(n)])); equal(received, [2 if r == 0 else 1] * n)
equal(ht.alltoall(tf.range(n) + 10 * r), [r + 10 * q for q in range(n)])
equal(ht.reducescatter(tf.ones([n + 1, 2])), np.full((2 if r == 0 else 1, 2), n))
assert int(tf.function(ht.rank)()) == r and int(ht.size()) == n

# Independent calls of one graph run in program order; so do loops and branches.
f = tf.function(lambda x: [ht.allreduce(x * float(k)) for k in range(12)])
for turn in range(50):
    for k, y in enumerate(f(tf.fill([3], float(turn + r)))):
        equal(y, np.full(3, k * (n * turn + n * (n - 1) / 2)))


@tf.function
def loop(x):
    for _ in tf.range(5):
        x = ht.allreduce(x, "average") + 1.0
    if tf.reduce_sum(x) > 0:
        x = ht.allreduce(x)
    return x


equal(loop(tf.fill([2], float(r))), np.full(2, n * ((n - 1) / 2 + 5)))
data = tf.data.Dataset.range(4).map(lambda i: ht.allreduce(tf.cast(i, "float32") + float(r)))
equal(list(data.as_numpy_iterator()), [n * i + n * (n - 1) / 2 for i in range(4)])

# Derivatives.
x = tf.Variable(np.arange(2.0 * n) + r, dtype=tf.float64)
all_x = np.stack([np.arange(2.0 * n) + q for q in range(n)])
want = {
    "allreduce": (lambda: tf.reduce_sum(ht.allreduce(x) ** 2), 2 * n * all_x.sum(0)),
    "allgather": (lambda: tf.reduce_sum(ht.allgather(x) ** 2), 2 * n * all_x[r]),
    "broadcast": (lambda: tf.reduce_sum(ht.broadcast(x, 0) * 3), np.full(2 * n, 3.0 * n if r == 0 else 0.0)),
    "reducescatter": (lambda: tf.reduce_sum(ht.reducescatter(x, "average") ** 2), 2 * all_x.sum(0) / n / n),
    "alltoall": (lambda: tf.reduce_sum(ht.alltoall(x) * (r + 1.0)), np.repeat(np.arange(n) + 1.0, 2)),
}
for name, (of, right) in want.items():
    def grad():
        with tf.GradientTape() as tape:
            y = of()
        return tape.gradient(y, x)
    equal(tf.function(grad)(), right); equal(grad(), right)

# Sparse gradients are gathered; a saved model has the operation in it.
s = ht.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([r]), tf.constant([n, 2])), "average")
equal(tf.convert_to_tensor(s), np.full((n, 2), 1 / n))


class Saved(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def go(self, x):
        return ht.allreduce(x)


path = f"{sys.argv[1]}/{r}"
tf.saved_model.save(Saved(), path)
equal(tf.saved_model.load(path).go(tf.ones(3)), np.full(3, n))
print("well", tf.__version__)
"""

WRONG = """
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()


def fails(call, kind, *says):
    try:
        call()
    except kind as e:
        assert all(s in str(e) for s in says), (says, str(e))
        assert float(ht.allreduce(tf.constant(1.0))) == n, "the next operation works"
    else:
        raise AssertionError(f"no error: {says}")


invalid = tf.errors.InvalidArgumentError
fails(lambda: ht.allreduce(tf.ones(3 + r)), invalid, "[3] on rank 0 and [4] on rank 1")
fails(lambda: tf.function(ht.allreduce)(tf.ones(3, "float32" if r else "int32")), invalid, "float32", "int32", "rank 1")
fails(lambda: (ht.allreduce if r else ht.allgather)(tf.ones(3)), invalid, "rank 0", "rank 1")
fails(lambda: ht.allreduce([tf.ones(2)] * (2 + r)), invalid, "rank 0", "rank 1")
fails(lambda: ht.alltoall(tf.ones(3), [1] * (n + 1)), invalid, "splits must be")
fails(lambda: ht.alltoall(tf.ones(n + 1)), invalid, "cannot be divided evenly")
fails(lambda: ht.allreduce(tf.ones(2), "median"), hora.ArgumentError, "no operator")
fails(lambda: ht.broadcast(tf.ones(2), 7), hora.ArgumentError, "root=7")
fails(lambda: ht.DistributedGradientTape(3), hora.ArgumentError, "no tf.GradientTape")


def of_max():
    x = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        y = ht.allreduce(x, "max")
    return tape.gradient(y, x)


fails(of_max, LookupError, "no derivative")
print("well")
"""

TRAINING = """
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()
rng = np.random.RandomState(0)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64, 1).astype("f")


def train(x, y, distributed, seed):
    g = np.random.RandomState(seed)
    w1, w2 = tf.Variable(g.randn(5, 8).astype("f")), tf.Variable(g.randn(8, 1).astype("f"))
    if distributed:
        ht.broadcast_variables([w1, w2])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ w1) @ w2 - y) ** 2)
        if distributed:
            tape = ht.DistributedGradientTape(tape)
        for v, d in zip((w1, w2), tape.gradient(loss, (w1, w2))):
            v.assign_sub(0.1 * d)

    for _ in range(100):
        step()
    return np.concatenate([w1.numpy().ravel(), w2.numpy().ravel()])


together, alone = train(X[r::n], Y[r::n], True, 7 + r), train(X, Y, False, 7)
assert np.allclose(together, alone, atol=2e-4), np.abs(together - alone).max()   # sums of halves round otherwise than one
assert len({w.tobytes() for w in hora.allgather_object(together)}) == 1
print("well")
"""

KILLED = """
import os, signal, sys, time
import numpy as np, tensorflow as tf
import hora, hora.elastic, hora.tensorflow as ht

hora.init()
w = tf.Variable(tf.zeros(3))
step = tf.function(lambda: w.assign_add(ht.allreduce(tf.ones(3), "average")))
state = hora.elastic.State(w=np.zeros(3, "f"), step=0)


@hora.elastic.run
def train(state):
    w.assign(state.w)
    while state.step < 40:
        if state.step == 20 and hora.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        step()
        state.w[:] = w.numpy()
        state.step += 1
        state.commit()


train(state)
assert (w.numpy() == 40).all(), w
print("well", hora.size())
"""


def test_calls(run, tmp_path):
    assert run(CALLS, args=(str(tmp_path),)).stdout.count("well") == 2


# What a step sends is one operation of its graph, however many variables there are.
ONE_CALL = """
import tensorflow as tf, keras
import hora, hora.keras, hora.tensorflow as ht

hora.init()
vs = [tf.Variable(tf.fill([k + 1], float(k))) for k in range(6)]
ks = [keras.Variable(tf.fill([k + 1], float(k))) for k in range(6)]


def calls(step):
    graph = step.get_concrete_function().graph
    inside = [g for f in graph._functions.values() for g in [f.graph]] if hasattr(graph, "_functions") else []
    return [op.name for g in (graph, *inside) for op in g.get_operations() if op.type.startswith("Hora")]


@tf.function
def by_tape():
    with ht.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.add_n([tf.reduce_sum(v * v) for v in vs])
    return tape.gradient(loss, vs)


optimizer = hora.keras.DistributedOptimizer(keras.optimizers.Adam(0.1))
optimizer.build(ks)


@tf.function
def by_optimizer():
    optimizer.apply([k * 1.0 for k in ks], ks)


for step in (by_tape, by_optimizer):
    step()
    assert len(calls(step)) == 1, calls(step)
with tf.Graph().as_default() as graph:                                        # and in a graph of TensorFlow 1
    vs = [tf.compat.v1.get_variable(f"v{k}", [k + 1]) for k in range(6)]
    loss = tf.add_n([tf.reduce_sum(v * v) for v in vs])
    ht.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
    made = [op.name for op in graph.get_operations() if op.type.startswith("Hora")]
    assert len(made) == 1, made
print("well")
"""

# Where nobody else wants what goes in, the result lies in its memory: as TensorFlow's trace of a run has it.
IN_PLACE = """
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
v1 = tf.compat.v1


def addresses(fetches, graph):
    with v1.Session(graph=graph) as s:
        meta = v1.RunMetadata()
        full = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        got = s.run(fetches, {"x:0": np.ones(1000)}, options=full, run_metadata=meta)
        assert got[:3] == [1000 * (k + 2) * hora.size() for k in range(3)] and all((g == 2).all() for g in got[3:]), got
    return {
        node.node_name.rpartition("/")[2]: [o.tensor_description.allocation_description.ptr for o in node.output]
        for device in meta.step_stats.dev_stats for node in device.node_stats
    }


def call(kept, x):
    made = [tf.add(x, k + 1.0, name=f"made{k}") for k in range(3)]
    sums = ht.allreduce(made, name="sums")
    after = [tf.reduce_sum(y) for y in sums]
    return after + [made[0]] if kept else after


for kept in (False, True):
    for inside in (False, True):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [1000], name="x")
            fetches = (tf.function(call) if inside else call)(kept, x)
        at = addresses(fetches, graph)
        (ours,) = [a for name, a in at.items() if "sums" in name or "Hora" in name]
        assert all(ours) and len(ours) == 3, at
        same = [ours[k] == at[f"made{k}"][0] for k in range(3)]
        assert same == [not kept, True, True], (kept, inside, same)
print("well")
"""


def test_a_step_is_one_call(run):
    assert run(ONE_CALL).stdout.count("well") == 2


def test_a_result_lies_where_its_tensor_lay(run):
    assert run(IN_PLACE).stdout.count("well") == 2


def test_wrong_calls(run):
    assert run(WRONG).stdout.count("well") == 2


def test_a_training_equals_one_process(run):
    assert run(TRAINING).stdout.count("well") == 2


def test_a_killed_rank_is_replaced(run, tmp_path):
    done = run(KILLED, "-np", "2", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert done.stdout.count("well 2") == 2 and "Traceback" not in done.stderr, done.stderr


def test_the_example(run):
    said = run((ROOT / "examples/41-tensorflow/train.py").read_text(), cold=True).stdout
    found = re.search(r"2 ranks, 150 steps, .*accuracy ([0-9.]+), weights equal: True", said)
    assert found and float(found[1]) > 0.9, said


OUTSIDE = """
import tensorflow as tf
import hora, hora.tensorflow as ht, horovod.tensorflow as hvd

hvd.init()
r, n, K = hora.rank(), hora.size(), 8


def plain(x, k):
    return ht.allreduce(x)


inner = tf.function(plain)


def loop(x, k):
    return tf.while_loop(lambda i, y: i < 1, lambda i, y: (i + 1, ht.allreduce(y)), [tf.constant(0), x])[1]


def branch(x, k):
    return tf.cond(tf.reduce_sum(x) > -1e9, lambda: ht.allreduce(x), lambda: x * 1.0)


def named(x, k):
    return hvd.allreduce(x, op=hvd.Sum, name=f"x{k}")


def mixed(x, k):
    return (plain, inner, loop, branch, named)[k % 5](x, k)


for form in (plain, inner, loop, branch, named, mixed):
    forward = tf.function(lambda xs: [form(x, k) for k, x in enumerate(xs)])
    vs = [tf.Variable(tf.fill([3], float(k))) for k in range(K)]
    for turn in range(3):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(y) * float((k + 1) * (10 + r)) for k, y in enumerate(forward([v * 1.0 for v in vs]))])
        got = [float(g[0]) for g in tape.gradient(loss, vs)]
        assert got == [(k + 1) * (10 * n + n * (n - 1) / 2) for k in range(K)], got
print("well")
"""


def test_a_tape_outside_of_the_function(run):
    """TensorFlow derives the function's gradient then without order among what it calls."""
    assert run(OUTSIDE).stdout.count("well") == 2


ALONE = """
import importlib.util, sys
import tensorflow as tf
import hora, hora.tensorflow as ht
hora.init()
assert float(ht.allreduce(tf.constant(1.0))) == 2
assert not [name for name in ("torch", "jax", "pytest") if name in sys.modules or importlib.util.find_spec(name)]
print("well")
"""


def test_no_other_framework_is_there(run):
    """So the tests of this file run, and those of three others (conftest.py)."""
    assert run(ALONE).stdout.count("well") == 2 and run(ALONE, cold=True).stdout.count("well") == 2
