"""HORA_TF_XLA=1: functions that XLA compiles reduce, and fit does with jit_compile=True."""

CALLS = """
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()


@tf.function(jit_compile=True)
def step(a, b):
    x, y = ht.allreduce([a * 2, b], hora.SUM)
    return x, y, ht.allreduce(x + 1, hora.AVERAGE, prescale=0.5, postscale=4)


for _ in range(20):
    x, y, z = step(tf.fill([4], r + 1.0), tf.range(3) * (r + 1))
    assert np.array_equal(x, [6] * 4) and np.array_equal(y, [0, 3, 6]) and np.allclose(z, 14), (x, y, z)
for dtype in ("float64", "float16", "bfloat16", "int32", "int64", "uint8", "complex64"):
    y = tf.function(ht.allreduce, jit_compile=True)(tf.cast(tf.fill([2, 3], r + 1), dtype))
    assert y.dtype == dtype and np.allclose(np.asarray(tf.cast(y, "complex128")), 3), y
assert np.array_equal(tf.function(lambda v: ht.allreduce(v) * 2)(tf.ones(5)), [4] * 5)       # within a function that is not compiled
assert np.array_equal(ht.allreduce(tf.ones(5)), [2] * 5)                                     # and in none
many = tf.function(lambda x: ht.allreduce([x * float(i) for i in range(40)]), jit_compile=True)(tf.ones(7))
assert all(np.array_equal(v, np.full(7, 2.0 * i)) for i, v in enumerate(many))
ordered = tf.function(lambda x: [ht.allreduce(x * float(k)) for k in range(12)], jit_compile=True)
for _ in range(30):                                                                          # independent of each other
    assert [float(v[0]) for v in ordered(tf.ones(3))] == [2.0 * k for k in range(12)]


@tf.function(jit_compile=True)
def derivative(a):
    with tf.GradientTape() as tape:
        tape.watch(a)
        loss = tf.reduce_sum(ht.allreduce(a * a))
    return tape.gradient(loss, a)


assert np.allclose(derivative(tf.fill([2], r + 1.0)), 4 * (r + 1))


@tf.function(jit_compile=True)
def derivatives(a):
    with tf.GradientTape() as outer:
        outer.watch(a)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(a)
            y = ht.allreduce(a)
            loss = tf.reduce_sum(y * y)
        first = tape.gradient(loss, a)
        total = tf.reduce_sum(first)
    return first, tape.gradient(y, a), outer.gradient(total, a)


first, plain, second = derivatives(tf.fill([2], r + 1.0))
assert np.allclose(first, 12) and np.allclose(plain, 2) and np.allclose(second, 8), (first, plain, second)
for shape, said in (([2 + r], "is [2] on rank 0 and [3] on rank 1"), ([5], None)):
    try:
        y = tf.function(ht.allreduce, jit_compile=True)(tf.ones(shape))
    except tf.errors.OpError as e:
        assert said and said in str(e), e
    else:
        assert said is None and np.array_equal(y, [2] * 5)
print("well")
"""

FIT = """
import numpy as np, keras
import hora, hora.keras

hora.init()
r = hora.rank()
keras.utils.set_random_seed(1 + r)
x = np.random.default_rng(r).random((64, 8)).astype("f")
end = {}
for jit in (True, False):
    keras.utils.set_random_seed(1 + r)
    m = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    m.compile(hora.keras.DistributedOptimizer(keras.optimizers.Adam(1e-2)), loss="mse", jit_compile=jit)
    m.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=3, verbose=0, shuffle=False,
          callbacks=[hora.keras.callbacks.BroadcastGlobalVariables(), hora.keras.callbacks.MetricAverage()])
    assert m.jit_compile is jit
    w = np.concatenate([v.ravel() for v in m.get_weights()])
    assert len({v.tobytes() for v in hora.allgather_object(w)}) == 1
    end[jit] = w
assert np.allclose(end[True], end[False], rtol=1e-3, atol=1e-5), np.abs(end[True] - end[False]).max()
print("well")
"""

DIES = """
import os, signal, sys, time
import tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
f = tf.function(ht.allreduce, jit_compile=True)
for i in range(1000):
    if i == 20 and hora.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        f(tf.ones(1000))
    except tf.errors.OpError as e:
        found = hora._bridge.failure(e)
        assert type(found).__name__ == "PeerLostError" and found.rank == 1, (found, e)
        print("told")
        sys.exit(3)
"""


# What hora.tensorflow never writes: a call of no tensors, whose result stands alone, and for XLA not in a list.
EMPTY = """
import tensorflow as tf
import hora, hora.tensorflow as ht
from hora import _bridge
from hora.group import Kind
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

hora.init()
assert ht.allreduce([]) == [] and tf.function(lambda: ht.allreduce([]), jit_compile=True)() == []
assert float(tf.function(ht.allreduce, jit_compile=True)(tf.constant(1.0))) == 2  # registers the handler
for kind in (Kind.ALLREDUCE, Kind.BARRIER):
    text = _bridge.text([int(kind), 0, 0, 0, _bridge.bits(1.0), _bridge.bits(1.0)], 0, [], "nothing")
    call = tf.function(lambda: gen_xla_ops.xla_custom_call_v2(
        operands=[], call_target_name="hora_each", backend_config=text, has_side_effect=True,
        result_dtypes=[tf.uint8], result_shapes=[[]])[0], jit_compile=True)
    try:
        call()
    except tf.errors.OpError as e:
        assert "run compiled operation: it has no tensors; leave it out" in str(e), e
        assert isinstance(_bridge.failure(e), hora.ArgumentError)
    else:
        raise AssertionError("no error")
assert float(tf.function(ht.allreduce, jit_compile=True)(tf.constant(2.0))) == 4
print("well")
"""


def test_a_call_of_no_tensors(run):
    assert run(EMPTY, HORA_TF_XLA="1").stdout.count("well") == 2


def test_calls(run):
    assert run(CALLS, HORA_TF_XLA="1").stdout.count("well") == 2


def test_one_thread_of_tensorflow(run):
    assert (
        run(CALLS, HOROVOD_ENABLE_XLA_OPS="1", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1").stdout.count(
            "well"
        )
        == 2
    )


def test_fit(run):
    done = run(FIT, HORA_TF_XLA="1")
    assert done.stdout.count("well") == 2 and "jit_compile=True is not possible" not in done.stderr


def test_a_rank_that_dies(run):
    done = run(DIES, HORA_TF_XLA="1", code=137)
    assert "told" in done.stdout, done.stdout + done.stderr


def test_another_word(run):
    program = "import tensorflow as tf, hora, hora.tensorflow as ht\nhora.init()\ntf.function(ht.allreduce)(tf.ones(2))"
    done = run(program, HORA_TF_XLA="yes", code=1)
    assert "HORA_TF_XLA='yes' is neither 0 nor 1" in done.stderr, done.stderr


STOPPED = """
import os, subprocess, time
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()
f = tf.function(lambda x: ht.allreduce(x + 1.0), jit_compile=True)
x = tf.zeros(8)
for turn in range(40):
    if turn == 20 and r == 1:  # stopped for two seconds, inside a step or beside it
        subprocess.Popen(["sh", "-c", f"sleep 0.01; kill -STOP {os.getpid()}; sleep 2; kill -CONT {os.getpid()}"])
    longest, last = 0.0, time.monotonic()
    while turn == 20 and longest < 1:  # from one look to the next, so that no stop falls between two
        f(x)
        now = time.monotonic()
        longest, last = hora.allreduce(np.float64(now - last), op=hora.MAX), now
    x = f(x) / n
assert (x.numpy() == 40).all(), x
print("well")
"""


def test_a_rank_that_is_stopped_for_a_while(run):
    done = run(STOPPED, HORA_TF_XLA="1", HORA_STALL_WARN="1")
    assert done.stdout.count("well") == 2
