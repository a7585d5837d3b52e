"""HORA_CHECK_CALLS in what TensorFlow traces: ranks compare where the program makes its calls, whatever autograph made
of the lines."""

import re

import pytest
from sample import cases

TRACED = """
import tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()
x = tf.ones(2)
at = {line.split("# @")[1].strip(): f"program.py:{i}" for i, line in enumerate(open(__file__), 1) if "# @" in line}


@tf.function
def step(x, here):
    if here:
        return ht.allreduce(x)                          # @a
    return ht.allreduce(x)                              # @b


@tf.function
def looping(x, times):
    for _ in tf.range(times):
        x = ht.allreduce(x) / n
    return x


@tf.function
def taped(v, here):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v)
    tape = ht.DistributedGradientTape(tape)
    if here:
        return tape.gradient(loss, v)                   # @c
    return tape.gradient(loss, v)                       # @d


def fails(call, *says):
    try:
        call()
    except tf.errors.InvalidArgumentError as e:
        assert all(s in str(e) for s in says), (says, str(e))
        assert float(ht.allreduce(tf.constant(1.0))) == n, "the next operation works"
    else:
        raise AssertionError("two places went together")


# One place on all ranks, also where one traces anew, and of what is traced without autograph.
v = tf.Variable([1.0, 2.0])
for turn in range(3):
    if r == 1 and turn:
        step.get_concrete_function(tf.TensorSpec([turn], tf.float32), True)
    assert (step(x, True).numpy() == n).all() and (looping(x, tf.constant(3)).numpy() == 1).all()
    assert (taped(v, False).numpy() == 2 * v.numpy()).all()
assert (tf.function(lambda y: ht.allreduce(y), autograph=False)(x).numpy() == n).all()
rows = tf.data.Dataset.range(4).map(lambda i: ht.allreduce(tf.cast(i, tf.float32)), num_parallel_calls=1, deterministic=True)
assert [float(i) for i in rows] == [n * i for i in range(4)]
fails(lambda: step(x, r == 0), at["a"] + " on rank 0", at["b"] + " on rank 1")
fails(lambda: taped(v, r == 0), f"gradients at {at['c']} on rank 0", f"gradients at {at['d']} on rank 1")
if r == 0:
    plain = tf.function(lambda y: ht.allreduce(y), autograph=False)     # @e
else:
    plain = tf.function(lambda y: ht.allreduce(y), autograph=False)     # @f
fails(lambda: plain(x), at["e"] + " on rank 0", at["f"] + " on rank 1")
print("well")
"""

FIT = """
import numpy as np, keras
import hora, hora.keras

hora.init()
r, n = hora.rank(), hora.size()
at = {line.split("# @")[1].strip(): f"program.py:{i}" for i, line in enumerate(open(__file__), 1) if "# @" in line}
X, Y = np.ones((32, 5), "f"), np.ones((32, 1), "f")


def model(**how):
    keras.utils.set_random_seed(1)
    m = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1)])
    m.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse", **how)
    return m


for how in ({},) if keras.backend.backend() == "torch" else ({"steps_per_execution": 2}, {"run_eagerly": True}):
    m = model(**how)
    for _ in range(2):
        m.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    m = model(**how)
    try:
        if r == 0:
            m.fit(X, Y, batch_size=8, verbose=0)        # @a
        else:
            m.fit(X, Y, batch_size=8, verbose=0)        # @b
    except Exception as e:
        assert at["a"] in str(e) and at["b"] in str(e), e
        if keras.backend.backend() == "jax":
            from hora.jax import recover
            recover()
    else:
        raise AssertionError("two places went together")
print("well")
"""

NAMED = """
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
x = tf.ones(2)
at = {line.split("# @")[1].strip(): f"program.py:{i}" for i, line in enumerate(open(__file__), 1) if "# @" in line}
for _ in range(2):
    one = tf.function(lambda y: hvd.allreduce(y, op=hvd.Sum))
    assert (one(x).numpy() == 2).all()
one = tf.function(lambda y: hvd.allreduce(y, op=hvd.Sum))       # @a
other = tf.function(lambda y: hvd.allreduce(y, op=hvd.Sum))     # @b
try:
    (one if hvd.rank() == 0 else other)(x)
except tf.errors.OpError as e:
    assert at["a"] in str(e) and at["b"] in str(e) and "the job ends for it" in str(e), e
    print("well", flush=True)
"""

ON_A_GPU = """
import tensorflow as tf

real = tf.config.get_visible_devices
tf.config.get_visible_devices = lambda kind=None: ["one"] if kind == "GPU" else real(kind)
import hora
import hora.tensorflow

hora.init()
for _ in range(2):
    assert (hora.tensorflow.allreduce(tf.ones(2), hora.SUM).numpy() == 2).all()
print("well")
"""


def test_that_a_gpus_tensors_are_copied_is_said_once(run):
    done = run(ON_A_GPU)
    assert done.stdout.count("well") == 2 and done.stderr.count("copies a GPU's tensors there and back") == 1, (
        done.stderr
    )


def test_functions(run):
    assert run(TRACED, HORA_CHECK_CALLS="1").stdout.count("well") == 2


@pytest.mark.parametrize("backend", cases("torch", rest=["tensorflow", "jax"]))
def test_fit_at_two_places(run, backend):
    assert run(FIT, HORA_CHECK_CALLS="1", KERAS_BACKEND=backend).stdout.count("well") == 2


def test_functions_of_horovod_are_told_their_places(run):
    done = run(NAMED, HORA_CHECK_CALLS="1", HORA_DEADLOCK_TIMEOUT="0.5", HORA_STALL_WARN="1", HORA_STALL_END="2")
    assert done.stdout.count("well") == 2
    told = [line for line in done.stderr.splitlines() if "wait for each other" in line]
    assert len(told) == 1 and re.search(
        r"rank 0 is in .* at program\.py:\d+ .*rank 1 is in .* at program\.py:\d+ ", told[0]
    ), done.stderr
