"""horovod.tensorflow on two ranks: its calls, tapes, errors and elastic states; and docs/horovod.md walked for it and
for Keras."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

CALLS = """
import numpy as np, tensorflow as tf
import horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError

hvd.init(process_sets="dynamic")
r, n = hvd.rank(), hvd.size()


def equal(a, b):
    assert np.allclose(np.asarray(a), np.asarray(b)), (a, b)


def fails(call, kind, *says):
    try:
        call()
    except kind as e:
        assert all(s in str(e) for s in says), (says, str(e))
    else:
        raise AssertionError(f"no error: {says}")


x = tf.fill([2, 3], r + 1.0)
for f in (lambda c, *a, **k: c(*a, **k), lambda c, *a, **k: tf.function(lambda: c(*a, **k))()):
    equal(f(hvd.allreduce, x), np.full((2, 3), 1.5))
    equal(f(hvd.allreduce, x, average=False), np.full((2, 3), 3))
    equal(f(hvd.allreduce, x, op=hvd.Max, name="m"), np.full((2, 3), 2))
    equal(f(hvd.allreduce, x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, compression=hvd.Compression.fp16), np.full((2, 3), 3))
    for y in f(hvd.grouped_allreduce, [x, x * 2], op=hvd.Sum):
        assert y.shape == (2, 3)
    equal(f(hvd.allgather, tf.fill([r + 1], r), name="rows"), [0, 1, 1])
    equal(f(hvd.grouped_allgather, [tf.constant([r]), tf.constant([10 + r])])[1], [10, 11])
    equal(f(hvd.broadcast, tf.constant([r]), 1), [1])
    y, came = f(hvd.alltoall, tf.range(3) + 10 * r, splits=[2, 1])
    equal(y, [0, 1, 10, 11] if r == 0 else [2, 12]); equal(came, [2, 2] if r == 0 else [1, 1])
    equal(f(hvd.reducescatter, tf.ones([3, 2]), op=hvd.Sum), np.full((2 - r, 2), 2))
    assert len(f(hvd.grouped_reducescatter, [tf.ones([2]), tf.ones([4])])) == 2
    where = [f(c) for c in (hvd.rank_op, hvd.size_op, hvd.local_rank_op, hvd.local_size_op, hvd.process_set_included_op)]
    assert [int(w) for w in where] == [r, 2, r, 2, 1], where
s = hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([r]), tf.constant([2, 2])))
equal(tf.convert_to_tensor(s), np.full((2, 2), 0.5))
v = tf.Variable([float(r)])
assert hvd.broadcast_([v], 1)[0] is v and float(v[0]) == 1
assert hvd.broadcast_object({"r": r}, 1) == {"r": 1} and hvd.allgather_object(r) == [0, 1] and hvd.broadcast_object_fn(1)(r) == 1

# Calls match by name, in any order, from several threads; ranks that have no more data join.
import threading
got = {}
names = ["a", "b"] if r == 0 else ["b", "a"]
threads = [threading.Thread(target=lambda k=k: got.update({k: hvd.allreduce(tf.constant(ord(k)), op=hvd.Sum, name=k)})) for k in names]
[t.start() for t in threads]; [t.join() for t in threads]
assert int(got["a"]) == 2 * ord("a") and int(got["b"]) == 2 * ord("b")
step = tf.function(lambda: hvd.grouped_allreduce([tf.ones(2), tf.ones(3)], op=hvd.Sum))
for _ in range(1 + 3 * r):
    y = step()
equal(y[0], np.full(2, 2 - r))
assert int(hvd.join()) == 1

# Process sets.
one = hvd.add_process_set([1])
assert str(one) == "ProcessSet(process_set_id=1, ranks=[1], mpi_comm=None)", one
if one.included():
    equal(hvd.allreduce(tf.ones(1), op=hvd.Sum, process_set=one), [1])
else:
    for kind in (ValueError, tf.errors.InvalidArgumentError):
        fails(lambda: hvd.allreduce(tf.ones(1), process_set=one), kind, "does not belong")
assert int(hvd.size_op(one.process_set_id)) == 1 and int(tf.function(lambda: hvd.process_set_included_op(one.process_set_id))()) == r
fails(lambda: hvd.size_op(7), ValueError, "does not exist")

# Gradients, by the tape and through calls.
w, mine = tf.Variable(2.0), tf.Variable(4.0)


def tapes(make, sources=(w, mine)):
    with tf.GradientTape() as tape:
        loss = (r + 1.0) * w * mine
    return make(tape).gradient(loss, list(sources))


def partial(tape, **k):
    tape = hvd.DistributedGradientTape(tape, **k)
    tape.register_local_source(mine)
    return tape


for f in (lambda g: g(), lambda g: tf.function(g)()):
    equal(f(lambda: tapes(hvd.DistributedGradientTape)), [6, 3])
    equal(f(lambda: tapes(lambda t: hvd.DistributedGradientTape(t, op=hvd.Sum, num_groups=2))), [12, 6])
    equal(f(lambda: tapes(lambda t: hvd.DistributedGradientTape(t, gradient_predivide_factor=2.0, compression=hvd.Compression.fp16))), [6, 3])
    equal(f(lambda: tapes(partial)), [6, 2 * (r + 1) / 2])
    equal(f(lambda: tapes(lambda t: partial(t, scale_local_gradients=False))), [6, 2 * (r + 1)])
    equal(f(lambda: tapes(lambda t: hvd.DistributedGradientTape(t, process_set=one))), [4 * (r + 1), 2 * (r + 1)])
with tf.GradientTape(persistent=True) as tape:
    loss = (r + 1.0) * w * mine
tape = partial(tape)
own, others = tape.get_local_and_global_gradients(loss, [w, mine])
assert own[0][0] is mine and others[0][0] is w and len(own) == len(others) == 1
equal([own[0][1], others[0][1]], [r + 1, 6])
import keras
layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2)]
for layer in layers:
    layer.build((1, 1))
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(layers[1](layers[0](tf.ones([1, 1])))) * (r + 1)
tape = hvd.PartialDistributedGradientTape(tape, local_layers=layers[0])
equal([float(g[0, 0]) for g in tape.gradient(loss, [*layers[0].trainable_weights, *layers[1].trainable_weights])], [(r + 1) / 2, 1.5])
table = tf.Variable(tf.ones([2, 2]))
for dense in (False, True):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [r])) * (r + 1)
    g = hvd.DistributedGradientTape(tape, sparse_as_dense=dense).gradient(loss, table)
    assert isinstance(g, tf.IndexedSlices) != dense
    equal(tf.convert_to_tensor(g), [[0.5, 0.5], [1, 1]])
with tf.GradientTape() as tape:
    y = hvd.allreduce(w * (r + 1), op=hvd.Sum)
equal(tape.gradient(y, w), 2 * (r + 1))
z = tf.Variable([1.0, 2.0])                       # what goes back is averaged in Horovod, and reducescatter's sum is multiplied
for of, right in (
    (lambda: hvd.allgather(z) * (r + 1.0), [1.5, 1.5]), (lambda: hvd.broadcast(z, 1) * (r + 1.0), [1.5 * r, 1.5 * r]),
    (lambda: hvd.grouped_allgather([z])[0] * (r + 1.0), [1.5, 1.5]),
    (lambda: hvd.reducescatter(z, op=hvd.Sum) * (r + 1.0), [2, 4]), (lambda: hvd.reducescatter(z) * (r + 1.0), [1, 2]),
    (lambda: hvd.alltoall(z) * (r + 1.0), [1, 2]),
):
    def back():
        with tf.GradientTape() as tape:
            y = of()
        return tape.gradient(y, z)
    equal(back(), right); equal(tf.function(back)(), right)

# Batch normalization over both ranks' batches, of other sizes, is that of one process on all rows; masked ones too.
rng = np.random.RandomState(0)
rows, weigh = rng.randn(7, 4, 3).astype("float32") + 100, rng.randn(7, 4, 3).astype("float32")
keep = rng.rand(7, 4) > 0.3
part = slice(0, 3) if r == 0 else slice(3, 7)
for mask in (None, keep):
    plain_layer, layer = keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    for compiled in (False, True):
        def normalized(of, at):
            x = tf.Variable(rows[at])
            def go():
                with tf.GradientTape() as tape:
                    y = of(x, training=True, mask=None if mask is None else tf.constant(mask[at]))
                    loss = tf.reduce_sum(y * weigh[at])
                return y, tape.gradient(loss, x)
            if not of.built:
                of.build(x.shape)
            return tf.function(go)() if compiled else go()
        y, back = normalized(layer, part)
        right, right_back = normalized(plain_layer, slice(None))
        assert np.allclose(y, right[part], atol=2e-3), np.abs(y - right[part]).max()
        assert np.allclose(back, right_back[part], atol=2e-3), np.abs(back - right_back[part]).max()
    equal(layer.moving_mean, plain_layer.moving_mean); assert np.allclose(layer.moving_variance, plain_layer.moving_variance, atol=1e-3)
for bad in ({"fused": True}, {"fused": None}, {"renorm": True}):
    fails(lambda: hvd.SyncBatchNormalization(**bad), ValueError, "does not support")

# Gradients of several passes, added up here and reduced in the last.
helper = hvd.LocalGradientAggregationHelperEager(2, lambda grads, vars: hvd.grouped_allreduce(grads, op=hvd.Sum), average_aggregated_gradients=True)
p1, steps = tf.Variable([1.0]), []
optimizer = keras.optimizers.SGD(1.0); optimizer.build([p1])
for i in range(4):
    (g,) = helper.compute_gradients([tf.constant([r + 1.0])], [p1])
    helper.apply_gradients(lambda: optimizer.apply_gradients([(g, p1)]), optimizer)
    steps.append(float(p1[0]))
equal(steps, [1, -2, -2, -5]); assert int(optimizer.iterations) == 4
fails(lambda: helper.compute_gradients([tf.IndexedSlices(tf.ones([1, 1]), [0], [1, 1])], [p1]), ValueError, "sparse_as_dense")

# What is refused, and what differs.
fails(lambda: hvd.allreduce(tf.ones(3 + r)), HorovodInternalError, "Mismatched", "rank 1")
fails(lambda: hvd.allreduce(tf.ones(3), name="t") if r else hvd.allreduce(tf.ones(3, tf.int32), name="t"), tf.errors.FailedPreconditionError, "float32")
fails(lambda: tf.function(lambda: hvd.allreduce(tf.ones(3 + r)))(), tf.errors.FailedPreconditionError, "rank 1")
equal(hvd.allreduce(tf.ones(1), op=hvd.Sum), [2])
# Lists that differ in length, where each element is an operation of its own too.
rows = [tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))] * (1 + r)
for call in (lambda: hvd.grouped_allgather([x] * (2 + r)), lambda: hvd.grouped_reducescatter([x] * (2 + r)), lambda: hvd.grouped_allreduce([x, *rows])):
    fails(call, HorovodInternalError, "Mismatched lengths", "rank 1")
    fails(tf.function(call), tf.errors.FailedPreconditionError, "Mismatched lengths", "rank 1")
with tf.Graph().as_default(), tf.compat.v1.Session() as s:
    fails(lambda: s.run(hvd.grouped_allgather([tf.ones([1])] * (2 + r))), tf.errors.FailedPreconditionError, "Mismatched lengths", "rank 1")
    # A call goes by its tensor's name, whatever is made of that for gradients or by compression: not by its type.
    t = tf.constant([[1, 2], [3, 4]], tf.int32 if r else tf.float32, name="t")
    half = dict(compression=hvd.Compression.fp16)
    calls = [lambda: hvd.allgather(t), lambda: hvd.broadcast(t, 0), lambda: hvd.alltoall(t), lambda: hvd.reducescatter(t, op=hvd.Sum)]
    calls += [lambda: hvd.grouped_allgather([t, t]), lambda: hvd.allreduce(t, op=hvd.Sum, **half), lambda: hvd.reducescatter(t, **half)]
    for call in calls:
        fails(lambda: s.run(call()), tf.errors.FailedPreconditionError, "int32", "rank 1")
    assert [len(y) for y in s.run(hvd.grouped_allgather([tf.ones([1 + r])] * 2, name="alike"))] == [3, 3]
fails(lambda: hvd.allreduce(x, average=True, op=hvd.Sum), ValueError, "supersedes")
fails(lambda: hvd.allreduce(x, op=9), ValueError, "Unknown reduction")
fails(lambda: hvd.broadcast(x, 5), ValueError, "invalid root rank")
fails(lambda: hvd.allreduce(tf.IndexedSlices(x, tf.range(2)), op=hvd.Max), NotImplementedError, "IndexedSlices")
fails(lambda: hvd.allreduce(tf.IndexedSlices(x, tf.range(2)), prescale_factor=2.0), NotImplementedError, "dense")
fails(lambda: hvd.DistributedGradientTape(tape, op=hvd.Sum, gradient_predivide_factor=2.0), ValueError, "predivide")
fails(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum), ValueError, "Adasum")
fails(lambda: hvd.broadcast_global_variables(0), RuntimeError, "broadcast_variables")
hvd.shutdown()
fails(hvd.size, ValueError, "not been initialized")
fails(lambda: hvd.allreduce(x), ValueError, "not been initialized")
hvd.init()
equal(hvd.allreduce(tf.ones(1), op=hvd.Sum), [2])
# Rows behind those that the splits count go to nobody, and get no gradient.
some = tf.Variable(np.arange(n + 2.0) + 10 * r)


def in_part():
    with tf.GradientTape() as tape:
        y, received = hvd.alltoall(some, tf.ones([n], tf.int32))
        loss = tf.reduce_sum(y * (r + 1.0))
    return y, received, tape.gradient(loss, some)


for call in (in_part, tf.function(in_part)):
    y, received, d = call()
    assert y.numpy().tolist() == [10 * q + r for q in range(n)] and received.numpy().tolist() == [1] * n
    assert d.numpy().tolist() == [q + 1.0 for q in range(n)] + [0, 0]
print("well")
"""

ELASTIC = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
w = tf.Variable(tf.zeros(3))
step = tf.function(lambda: (w.assign_add(hvd.allreduce(tf.ones(3))), hvd.size_op())[1])
state = hvd.elastic.TensorFlowState([w], batch=0)
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])


@hvd.elastic.run
def train(state):
    while state.batch < 40:
        if state.batch == 20 and hvd.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        assert int(step()) == hvd.size()
        state.batch += 1
        if state.batch % 5 == 0:
            state.commit()


train(state)
assert (w.numpy() == 40).all(), w


def unknown(state):
    raise tf.errors.UnknownError(None, None, "of the program")    # Horovod takes every one of these for a lost rank


for own, kind in ((lambda state: tf.constant([1])[2], tf.errors.InvalidArgumentError), (unknown, tf.errors.UnknownError)):
    try:
        hvd.elastic.run(own)(state)     # an error of the program's own is its own
    except kind:
        continue
    raise AssertionError(kind)
print("well", hvd.size(), resets)
"""

# A function is traced once and outlives the epoch, and so does the set that it was traced with.
ELASTIC_SETS = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd

some = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[some])
traced, first = [], 0


@tf.function
def step(x):
    traced.append(1)
    return hvd.allreduce(x, op=hvd.Sum, process_set=some), hvd.size_op(some.process_set_id)


state = hvd.elastic.TensorFlowState([tf.Variable(0.0)], batch=0)


@hvd.elastic.run
def train(state):
    global first
    while state.batch < 8:
        if state.batch == 4 and hvd.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if some.included():
            y, n = step(tf.constant(hvd.rank() + 1.0))
            assert float(y) == 3 and int(n) == 2, (y, n)
            first = first or len(traced)  # for what a graph asks of the set a variable is made, and the graph anew
        hvd.allreduce(tf.ones(1))
        state.batch += 1
        state.commit()


train(state)
assert len(traced) == first and bool(first) == (hvd.rank() < 2), (traced, first)
print("well")
"""

WALK = """
import importlib.util, json, os, sys

os.environ.pop("KERAS_BACKEND", None)
import tensorflow as tf
import horovod.tensorflow as hvd
import horovod.keras, horovod.tensorflow.keras
import hora.keras.optimizer
from horovod.common.util import check_extension, extension_available, gpu_available

assert extension_available("tensorflow") and not gpu_available("tensorflow")
check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", hvd.__file__, "mpi_lib")
from horovod.tensorflow.util import _executing_eagerly
assert _executing_eagerly() and hvd._executing_eagerly() and hvd.util._cache and hvd._make_subgraph
assert hvd.refs_to_vars(hvd.vars_to_refs((tf.Variable(1.0),)))[0].shape == ()
inside = {
    "DistributedGradientTape": type("both", (hvd._tapes._Methods, importlib.import_module("hora.tensorflow.tape")._Tape), {}),
    "DistributedOptimizer": hora.keras.optimizer.Distributed,
}


def there(name):
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


for name, state in json.load(open(sys.argv[1])):
    parts = name.split(".")
    module = next(parts[:i] for i in range(len(parts), 0, -1) if there(".".join(parts[:i])))
    try:
        thing = importlib.import_module(".".join(module))
    except ImportError as e:
        assert state == "refused" and "not part of hora: " in str(e), (name, e)
        continue
    for i, part in enumerate(rest := parts[len(module):]):
        if state == "refused":
            try:
                made = getattr(thing, part)
            except AttributeError as e:
                assert "not there yet" in str(e), (name, e)
                break
            try:
                made(0)
            except RuntimeError as e:
                assert "eager" in str(e) or "not there yet" in str(e), (name, e)
            else:
                raise AssertionError(f"{name} is refused but works")
        else:
            thing = getattr(inside.get(rest[i - 1], thing) if i else thing, part)
for module in (hvd, hvd.mpi_ops, horovod.keras, horovod.tensorflow.keras):
    prefix = module.__name__.removesuffix(".mpi_ops")
    listed = {n for n, _ in json.load(open(sys.argv[1]))}
    missing = [n for n in module.__all__ if f"{prefix}.{n}" not in listed and n != "Adasum"]
    assert not missing, (prefix, missing)
print("well")
"""


def test_calls(run):
    assert run(CALLS).stdout.count("well") == 2


def test_a_killed_rank_is_replaced(run, tmp_path):
    done = run(ELASTIC, "-np", "2", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert len(re.findall(r"well 2 \[(?:2)?\]", done.stdout)) == 2 and "Traceback" not in done.stderr, (
        done.stdout + done.stderr
    )


def test_a_function_goes_on_with_its_process_set(run, tmp_path):
    done = run(ELASTIC_SETS, "-np", "3", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert done.stdout.count("well") == 3 and (tmp_path / "mark").exists(), done.stdout + done.stderr


def test_the_list_of_names_is_true(run, tmp_path):
    import json

    rows = re.findall(
        r"^\| `((?:horovod\.(?:tensorflow|keras)|sparkdl\.horovod\.tensorflow)[^`]*)` \| (works|no effect|refused) \|",
        (ROOT / "docs/horovod.md").read_text(),
        re.M,
    )
    assert len(rows) > 150
    (tmp_path / "rows").write_text(json.dumps(rows))
    assert run(WALK, "-np", "1", args=(str(tmp_path / "rows"),)).stdout.count("well") == 1
