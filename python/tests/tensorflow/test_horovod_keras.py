"""horovod.keras and horovod.tensorflow.keras on two ranks: optimizers, callbacks, saved models, elastic fit, the
classic script."""

import re
from pathlib import Path

import pytest
from sample import cases

ROOT = Path(__file__).resolve().parents[3]

CALLS = """
import sys
import numpy as np, keras

if keras.backend.backend() == "tensorflow":
    import horovod.tensorflow.keras as hvd
else:
    import horovod.keras as hvd
import hora, hora.keras._backend

hvd.init()
r, n = hvd.rank(), hvd.size()
cb = hvd.callbacks


def fails(call, kind, *says):
    try:
        call()
    except kind as e:
        assert all(s in str(e) for s in says), (says, str(e))
    else:
        raise AssertionError(f"no error: {says}")


def array(x):
    return keras.ops.convert_to_numpy(x)


assert array(hvd.allreduce(np.float32(r + 1))) == 1.5 and array(hvd.allreduce([r, 1.0], op=hvd.Sum, name="v")).tolist() == [1, 2]
assert array(hvd.allgather(np.full((r + 1,), r))).tolist() == [0, 1, 1] and array(hvd.broadcast(np.array([r]), 1)).tolist() == [1]
assert array(hvd.reducescatter(np.ones((2, 3)), op=hvd.Sum)).tolist() == [[2, 2, 2]]

# Passes that are added up: one reduction a step, the sum or the average of the passes, before clipping.
reduce, calls = hora.keras._backend.reduce, []
hora.keras._backend.reduce = lambda *a, **k: calls.append(1) or reduce(*a, **k)
for average, clip, right in ((False, None, [1.5 + 3, 2 * 4.5]), (True, None, [0.75 + 1.5, 4.5]), (True, 0.25, [0.25, 0.25])):
    v, local = keras.Variable(np.zeros(2, "f")), keras.Variable(np.zeros(1, "f"))
    opt = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0, clipvalue=clip), backward_passes_per_step=2, average_aggregated_gradients=average, gradient_predivide_factor=2.0
    )
    opt.register_local_var(local)
    opt.build([v, local])
    del calls[:]
    for p in (1.0, 2.0):
        g = keras.ops.convert_to_tensor(np.array([(r + 1) * p, (r + 1) * 3.0], "f"))
        opt.apply([g, keras.ops.convert_to_tensor(np.array([p * (r + 1)], "f"))], [v, local])
    assert np.allclose(array(v), -np.array(right)), (average, clip, array(v))
    if clip is None:
        assert np.allclose(array(local), -(r + 1) * 3 / 2 / (2 if average else 1)), array(local)
    assert len(calls) == 1, calls
hora.keras._backend.reduce = reduce
fails(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=4), ValueError, "Average and Sum")
fails(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Sum, gradient_predivide_factor=2.0), ValueError, "predivide")
fails(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=0), ValueError, "at least one")
fails(lambda: hvd.broadcast_global_variables(0), RuntimeError, "BroadcastGlobalVariablesCallback")


# Through fit: as one process on the joined batches; a rank's local layer stays its own.
rng = np.random.RandomState(0)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64, 1).astype("f")


def model(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])


def joined(A):
    return np.concatenate([A[q::n][i * 8 : (i + 1) * 8] for i in range(4) for q in range(n)])


def weights(m):
    return np.concatenate([array(w).ravel() for w in m.weights])


m, one = model(1 + r), model(1)
m.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), backward_passes_per_step=2, average_aggregated_gradients=True, compression=hvd.Compression.none), loss="mse")
one.compile(keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2), loss="mse")
best = cb.BestModelCheckpoint(monitor="loss")
best.filepath = f"{sys.argv[1]}/best-{r}.keras"
h = m.fit(X[r::n], Y[r::n], batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[cb.BroadcastGlobalVariablesCallback(0), cb.MetricAverageCallback(), best])
k = one.fit(joined(X), joined(Y), batch_size=16, epochs=3, shuffle=False, verbose=0)
assert np.allclose(h.history["loss"], k.history["loss"], atol=1e-4), (h.history, k.history)
assert np.allclose(weights(m), weights(one), atol=1e-4)
m.save(f"{sys.argv[1]}/saved-{r}.keras")


def sent(passes):
    '''What a fit of twelve passes sends: as many bytes a reduction, in however many passes it comes about.'''
    m = model(1)
    m.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=passes), loss="mse")
    before = hora.counters()["shm_bytes_sent"]
    m.fit(X[r::n], Y[r::n], batch_size=8, epochs=3, verbose=0)
    return hora.counters()["shm_bytes_sent"] - before


each, third = sent(1), sent(3)
assert 2 * third < each, (each, third)

# A saved model comes back distributed, with what its optimizer has learned.
back = hvd.load_model(f"{sys.argv[1]}/saved-{r}.keras", custom_optimizers=[keras.optimizers.SGD])
assert hasattr(back.optimizer, "register_local_var") and np.allclose(weights(back), weights(m))
assert all(np.allclose(array(a), array(b)) for a, b in zip(back.optimizer.variables, m.optimizer.variables, strict=True))

# Warm-up with steps found in fit's, and SGD's velocities made those of the new rate.
m = model(1)
m.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), loss="mse")
rates = []


def look(b, logs):
    getattr(m, "jax_state_sync", int)()
    rates.append(float(array(m.optimizer.learning_rate)))


watch = keras.callbacks.LambdaCallback(on_train_batch_end=look)
h = m.fit(X[r::n], Y[r::n], batch_size=8, epochs=3, verbose=0, callbacks=[cb.LearningRateWarmupCallback(0.1, warmup_epochs=2, verbose=1), watch])
assert rates == sorted(rates) and 0.05 < rates[0] < 0.06 and abs(rates[7] - 0.1) < 1e-6 and abs(h.history["lr"][-1] - 0.1) < 1e-6, rates
velocity = [array(v).copy() for v in m.optimizer.momentums]
once = cb.LearningRateScheduleCallback(0.1, lambda epoch: 0.5)
once.set_model(m)
once.on_epoch_begin(0)
assert all(np.allclose(array(a), b / 2) for a, b in zip(m.optimizer.momentums, velocity, strict=True))
once.momentum_correction = False
once.initial = 0.2
once.on_epoch_begin(1)
assert all(np.allclose(array(a), b / 2) for a, b in zip(m.optimizer.momentums, velocity, strict=True))
late = cb.LearningRateScheduleCallback(0.1, lambda epoch: 0.5, staircase=False)
late.set_params({"steps": None})
fails(late.on_train_begin, ValueError, "steps_per_epoch")
fails(lambda: cb.BroadcastGlobalVariablesCallback(0, local_variables=[3]), ValueError, "local variables")
own = model(1 + r)
own.build((None, 5))
start = cb.BroadcastGlobalVariablesCallback(0, local_variables=own.layers[0].trainable_weights)
start.set_model(own)
start.on_train_begin()

for i, w in enumerate(own.weights):
    both = array(hvd.allgather(array(w)[None]))
    assert i == 0 and not np.allclose(both[0], both[1]) or i > 0 and np.allclose(both[0], both[1]), i

# A layer whose gradients stay each rank's own.
part = model(1)
part.build((None, 5))
import horovod.keras as plain
part.compile(plain.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=part.layers[0]), loss="mse")
part.fit(X[r::n], Y[r::n], batch_size=8, epochs=1, verbose=0)
getattr(part, "jax_state_sync", int)()
mine = [id(v) for v in part.layers[0].trainable_weights]
for v in part.trainable_weights:
    both = array(hvd.allgather(array(v)[None]))
    assert np.allclose(both[0], both[1]) == (id(v) not in mine), v.path
fails(lambda: plain.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=[3]), ValueError, "no layer")
print("well", keras.backend.backend())
"""

ELASTIC = """
import os, signal, sys
import numpy as np, keras
import horovod.tensorflow.keras as hvd

hvd.init()
keras.utils.set_random_seed(1)
m = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
m.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
state = hvd.elastic.KerasState(m, batch=0, epoch=0)
x = np.random.RandomState(hvd.rank()).randn(40, 3).astype("f")


def kill(batch, logs=None):
    if state.epoch == 2 and batch == 3 and hvd.rank() == 1 and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


callbacks = [
    keras.callbacks.LambdaCallback(on_train_batch_end=kill),
    hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state, 5),
]


@hvd.elastic.run
def train(state):
    m.fit(x, x[:, :1], batch_size=4, epochs=5 - state.epoch, callbacks=callbacks, verbose=0)


train(state)
assert state.epoch == 5 and state.batch == 0 and int(m.optimizer.iterations) >= 50
w = np.concatenate([a.ravel() for a in m.get_weights()])
both = np.asarray(hvd.allgather(w[None]))
assert np.array_equal(both[0], both[1])
print("well", hvd.size())
"""


@pytest.mark.parametrize("backend", cases("torch", rest=["tensorflow", "jax"]))
def test_calls(run, tmp_path, backend):
    assert run(CALLS, args=(str(tmp_path),), KERAS_BACKEND=backend).stdout.count(f"well {backend}") == 2
    assert (tmp_path / "best-0.keras").exists() and not (tmp_path / "best-1.keras").exists()


def test_fit_goes_on_after_a_kill(run, tmp_path):
    done = run(ELASTIC, "-np", "2", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert done.stdout.count("well 2") == 2, done.stdout + done.stderr


def test_the_classic_script(run, tmp_path):
    said = run((ROOT / "examples/33-horovod-keras/train.py").read_text(), args=(str(tmp_path),), cold=True).stdout
    found = re.search(r"2 ranks, 4 epochs, rate 0.040, accuracy ([0-9.]+), weights differ by 0.0", said)
    assert found and float(found[1]) > 0.8, said
    assert sorted(p.name for p in tmp_path.glob("*.keras")) == [f"checkpoint-{i}.keras" for i in range(1, 5)]
