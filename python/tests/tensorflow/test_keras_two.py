"""Keras 2 (tf_keras with TF_USE_LEGACY_KERAS=1) through hora.keras, horovod.keras and horovod.tensorflow.keras, on two
ranks."""

import subprocess
import sys

import beside
import pytest
from test_keras import LATE

OWN = """
import sys
import numpy as np, tensorflow as tf
import hora, hora.keras, hora.tensorflow

hora.init()
keras = tf.keras
assert hora.keras.which.LEGACY and hora.keras.which.keras.layers.Layer is keras.layers.Layer
r, n = hora.rank(), hora.size()
rng = np.random.RandomState(0)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64, 1).astype("f")
batch = 16 // n
cb = hora.keras.callbacks


def model(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])


def weights(m):
    return np.concatenate([a.ravel() for a in m.get_weights()])


def of_one(A):                                           # the ranks' batches, joined
    return np.concatenate([A[q::n][i * batch : (i + 1) * batch] for i in range(4) for q in range(n)])


# Today's optimizers of Keras 2 and its older ones, as one process: clipping sees the average.
for make in (keras.optimizers.Adam, keras.optimizers.legacy.Adam):
    m, one = model(1 + r), model(1)
    m.compile(hora.keras.DistributedOptimizer(make(0.01, clipnorm=0.3)), loss="mse", steps_per_execution=2)
    one.compile(make(0.01, clipnorm=0.3), loss="mse")
    assert type(m.optimizer).__name__ == "Adam" and type(m.optimizer).__module__.startswith("tf_keras."), type(m.optimizer)
    best = cb.BestModelCheckpoint(f"{sys.argv[1]}/best-{r}.keras", monitor="loss")
    h = m.fit(X[r::n], Y[r::n], batch_size=batch, epochs=5, shuffle=False, verbose=0, callbacks=[cb.BroadcastGlobalVariables(), cb.MetricAverage(), best])
    k = one.fit(of_one(X), of_one(Y), batch_size=16, epochs=5, shuffle=False, verbose=0)
    assert np.allclose(h.history["loss"], k.history["loss"], atol=1e-4), (h.history, k.history)
    assert np.allclose(weights(m), weights(one), atol=5e-4), np.abs(weights(m) - weights(one)).max()
    assert len({w.tobytes() for w in hora.allgather_object(weights(m))}) == 1
if r == 0:
    m.save(f"{sys.argv[1]}/saved.keras")
hora.barrier()
back = hora.keras.load_model(f"{sys.argv[1]}/saved.keras")
assert hasattr(back.optimizer, "register_local_var") and np.allclose(weights(back), weights(m))

# What the configuration does not hold comes along.
for make in (keras.optimizers.AdamW, keras.optimizers.legacy.Adam):
    old = make(0.1)
    old.mine = {"a": 1}
    if make is keras.optimizers.AdamW:
        old.exclude_from_weight_decay(var_names=["bias"])
    new = hora.keras.DistributedOptimizer(old)
    assert new.mine == {"a": 1} and getattr(new, "_exclude_from_weight_decay_names", ["bias"]) == ["bias"], vars(new)

# A resumed optimizer goes on with what it has learned.
old = keras.optimizers.SGD(0.1, momentum=0.9)
old.build(one.trainable_variables)
old.momentums[0].assign_add(tf.fill(old.momentums[0].shape, 3.0))
new = hora.keras.DistributedOptimizer(old)
assert float(tf.reduce_sum(new.momentums[0])) == float(tf.reduce_sum(old.momentums[0])) == 3 * 40
assert not hasattr(old, "register_local_var")

# Warm-up, velocities of the new rate, and a rank's own layer.
m = model(1)
opt = hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
opt.register_local_var(m.layers[0].kernel)
m.compile(opt, loss="mse")
rates = []
watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: rates.append(float(m.optimizer.learning_rate)))
m.fit(X[r::n], Y[r::n], batch_size=batch, epochs=3, verbose=0, callbacks=[cb.LearningRateWarmup(0.1, epochs=2, steps=4), watch])
assert rates == sorted(rates) and 0.1 / n <= rates[0] < 0.08 and abs(rates[-1] - 0.1) < 1e-6, rates
own, shared = (hora.allgather(w.numpy().ravel()[None]) for w in (m.layers[0].kernel, m.layers[1].kernel))
assert not np.array_equal(own[0], own[1]) and np.array_equal(shared[0], shared[1])
velocity = [v.numpy() for v in m.optimizer.momentums]
once = cb.LearningRateSchedule(0.1, lambda epoch: 0.5, momentum_correction=True)
once.set_model(m)
once.on_epoch_begin(0)
assert all(np.allclose(a, b / 2) for a, b in zip(m.optimizer.momentums, velocity))



class Rows(keras.utils.Sequence):
    def __len__(self):
        return 2 * n + 1

    def __getitem__(self, i):
        return X[i : i + 4], Y[i : i + 4]


mine = hora.keras.shard(Rows())
assert len(mine) == 2 and np.array_equal(mine[1][0], X[n + r : n + r + 4])
before = int(m.optimizer.iterations)
m.fit(mine, epochs=2, verbose=0)
assert int(m.optimizer.iterations) == before + 4

# One rank overflows under mixed precision: all skip that step, whichever of the two is put around the other.
keras.mixed_precision.set_global_policy("mixed_float16")
for wrapped in (False, True):
    m = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")])
    opt = keras.optimizers.SGD(0.01)
    m.compile(hora.keras.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(opt) if wrapped else opt), loss="mse", jit_compile=not wrapped)
    x = np.random.RandomState(r).randn(32, 5).astype("f")
    if r == 1:
        x[3] = 60000.0
    m.fit(x, np.ones((32, 1), "f"), batch_size=8, epochs=3, verbose=0, callbacks=[cb.BroadcastGlobalVariables()])
    assert np.isfinite(weights(m)).all() and len({v.tobytes() for v in hora.allgather_object(weights(m))}) == 1
keras.mixed_precision.set_global_policy("float32")

# Batch normalization over both ranks' batches.
rows = rng.randn(7, 4, 3).astype("f") + 100
part = slice(0, 3) if r == 0 else slice(3, 7)
plain, layer = keras.layers.BatchNormalization(), hora.tensorflow.SyncBatchNormalization()
assert np.allclose(layer(rows[part], training=True), plain(rows, training=True)[part], atol=2e-3)
assert np.allclose(layer.moving_variance, plain.moving_variance, atol=1e-3)

for call, says in (
    (lambda: hora.keras.DistributedOptimizer("adam"), "no Keras optimizer"),
    (lambda: hora.keras.DistributedOptimizer(new), "already"),
    (lambda: hora.keras.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(hora.keras.DistributedOptimizer(keras.optimizers.SGD()))), "already"),
):
    try:
        call()
    except hora.ArgumentError as e:
        assert says in str(e), e
    else:
        raise AssertionError(says)
print("well")
"""

COMPAT = """
import sys
import numpy as np, tensorflow as tf
import horovod.tensorflow.keras as hvd
import horovod.keras

assert horovod.keras.DistributedOptimizer is hvd.DistributedOptimizer

keras = tf.keras
hvd.init()
r, n = hvd.rank(), hvd.size()
assert np.asarray(hvd.allreduce(np.float32(r + 1))) == 1.5 and np.asarray(hvd.allgather(np.full((r + 1,), r))).tolist() == [0, 1, 1]
rng = np.random.RandomState(0)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64, 1).astype("f")


def model(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])


# Passes that are added up: the sum or the average, reduced in the last, before clipping.
for make in (keras.optimizers.SGD, keras.optimizers.legacy.SGD):
    for average, clip, right in ((False, None, [1.5 + 3, 2 * 4.5]), (True, None, [0.75 + 1.5, 4.5]), (True, 0.25, [0.25, 0.25])):
        for compiled in (False, True):
            v = tf.Variable(np.zeros(2, "f"))
            opt = hvd.DistributedOptimizer(make(1.0, clipvalue=clip), backward_passes_per_step=2, average_aggregated_gradients=average, gradient_predivide_factor=2.0)
            def step(g):
                opt.apply_gradients([(g, v)])
            if compiled:
                step = tf.function(step)
            for p in (1.0, 2.0):
                assert not v.numpy().any()
                step(tf.constant([(r + 1) * p, (r + 1) * 3.0]))
            assert np.allclose(v.numpy(), -np.array(right)), (make, average, clip, v.numpy())

# Older optimizers' gradients as programs ask for them: reduced, and no second time when they are applied; passes count.
for passes in (1, 2):
    for compiled in (False, True):
        v, w = tf.Variable(np.zeros(2, "f")), tf.Variable(1.0)
        opt = hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(1.0, clipvalue=8.0), op=hvd.Sum, backward_passes_per_step=passes)
        loss = lambda: tf.reduce_sum(v * (r + 1.0))                   # nothing comes of w
        def by_hand(**how):
            opt.apply_gradients(opt._compute_gradients(loss, var_list=[v, w]), **how)
        def as_given():
            by_hand(experimental_aggregate_gradients=False)
        def at_once():
            opt.minimize(loss, [v, w])
        calls = [by_hand, as_given, at_once]
        for turn, call in enumerate(tf.function(c) if compiled else c for c in calls for _ in range(passes)):
            opt.iterations, call()
            assert np.allclose(v.numpy(), -3.0 * passes * ((turn + 1) // passes)), (passes, compiled, turn, v.numpy())
        assert int(opt.iterations) == 3 * passes and (passes == 1 or int(opt._agg_helper.counter) == 0)

# What from_config() makes is distributed likewise.
for make in (keras.optimizers.SGD, keras.optimizers.legacy.SGD):
    first = hvd.DistributedOptimizer(make(1.0), op=hvd.Sum)
    for other in (first.from_config(first.get_config()), type(first).from_config(first.get_config())):
        v = tf.Variable(0.0)
        other.apply_gradients([(tf.constant(r + 1.0), v)])
        assert float(v) == -3 and other.get_config() == first.get_config()

# The classic script: scale, wrap, broadcast, average; saved by rank 0, loaded distributed.
m = model(1 + r)
opt = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * n, momentum=0.9))
m.compile(loss="mse", optimizer=opt, metrics=["mae"])
calls = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.01 * n, warmup_epochs=2, verbose=1),
]
state = hvd.elastic.KerasState(m, batch=0, epoch=0)
calls += [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state, 5)]
h = m.fit(X[r::n], Y[r::n], batch_size=8, epochs=4, verbose=0, callbacks=calls)
assert state.epoch == 4 and abs(h.history["lr"][-1] - 0.01 * n) < 1e-7, (state.epoch, h.history)
w = np.concatenate([a.ravel() for a in m.get_weights()])
both = np.asarray(hvd.allgather(w[None]))
assert np.array_equal(both[0], both[1])
m.save(f"{sys.argv[1]}/saved-{r}.h5")
back = hvd.load_model(f"{sys.argv[1]}/saved-{r}.h5")
assert hasattr(back.optimizer, "register_local_var")
local = model(1 + r)
start = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local.layers[0].trainable_weights)
start.set_model(local)
start.on_train_begin()
for i, x in enumerate(local.weights):
    both = np.asarray(hvd.allgather(x.numpy()[None]))
    assert i == 0 and not np.allclose(both[0], both[1]) or i > 0 and np.allclose(both[0], both[1]), i
print("well")
"""

MISSING = """
try:
    import hora.keras
except ImportError as e:
    assert "tf_keras" in str(e) and "unset it for Keras 3" in str(e), e
    print("well")
"""


@pytest.fixture
def two(launcher, tmp_path, folders):
    """run, with Keras 2 in the path."""
    quiet = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    return beside.runner(launcher, tmp_path, [*folders, beside.folder("keras-2")], quiet)


def test_fit_equals_one_process(two, tmp_path, folders):
    done = two(OWN, args=(str(tmp_path),))
    assert done.stdout.count("well") == 2
    assert (tmp_path / "best-0.keras").exists() and not (tmp_path / "best-1.keras").exists()
    assert "jit_compile=True is not possible" in done.stderr
    # A process that has no hora reads it.
    paths = [str(folders[0]), str(beside.folder("keras-2"))]
    code = f"import sys; sys.path[:0] = {paths!r}; import tf_keras; m = tf_keras.models.load_model({str(tmp_path / 'saved.keras')!r}); "
    code += "assert 'hora' not in sys.modules; print(type(m.optimizer).__name__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert said.stdout.split() == ["Adam"], said.stdout + said.stderr


def test_models_that_are_built_late(two):
    assert two(LATE).stdout.count("well 2.") == 2


def test_horovod(two, tmp_path):
    done = two(COMPAT, args=(str(tmp_path),))
    assert done.stdout.count("well") == 2 and "the learning rate has warmed up to 0.02" in done.stdout


def test_names_of_version_one(two):
    program = """
import hora
import tensorflow as tf
from tf_keras import backend as K
assert not K.__name__.startswith("keras.")
session = tf.Session(config=tf.ConfigProto())
for backend in (K, tf.keras.backend):
    backend.set_session(session)
    assert backend.get_session() is session
    try:
        backend.no_such_name
    except AttributeError as e:
        assert "no_such_name" in str(e), e
    else:
        raise AssertionError
print("well")
"""
    assert "well" in two(program, "-np", "1", "--legacy", "tf1").stdout


def test_keras_two_is_missing(run):
    """The flag without the package: one sentence."""
    assert run(MISSING, "-np", "1", TF_USE_LEGACY_KERAS="1").stdout.count("well") == 1
