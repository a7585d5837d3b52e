"""A training loop of TensorFlow's own made parallel with two lines: the tape averages the gradients, inside
tf.function.

hora run -np 2 python examples/41-tensorflow/train.py
"""

import numpy as np
import tensorflow as tf

import hora
import hora.tensorflow

STEPS, BATCH, CLASSES, FEATURES = 150, 64, 10, 64


def data(seed, n):
    prototypes = np.random.RandomState(0).randn(CLASSES, FEATURES)
    rng = np.random.RandomState(seed)
    y = rng.randint(0, CLASSES, n)
    return (prototypes[y] + 1.5 * rng.randn(n, FEATURES)).astype("float32"), y.astype("int32")


hora.init()
rng = np.random.RandomState(hora.rank())
w1, b1 = tf.Variable((rng.randn(FEATURES, 128) / 8).astype("float32")), tf.Variable(tf.zeros(128))
w2, b2 = tf.Variable((rng.randn(128, CLASSES) / 11).astype("float32")), tf.Variable(tf.zeros(CLASSES))
variables = [w1, b1, w2, b2]
hora.tensorflow.broadcast_variables(variables)  # one: every rank begins with rank 0's


def predict(x):
    return tf.nn.relu(x @ w1 + b1) @ w2 + b2


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=predict(x)))
    tape = hora.tensorflow.DistributedGradientTape(tape)  # two
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.1 * gradient)
    return loss


x, y = data(seed=2, n=STEPS * BATCH * hora.size())
x, y = x[hora.rank() :: hora.size()], y[hora.rank() :: hora.size()]
for i in range(STEPS):
    loss = step(x[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH])
mean = float(hora.tensorflow.allreduce(loss, hora.AVERAGE))
weights = np.concatenate([v.numpy().ravel() for v in variables])
equal = all(w.tobytes() == weights.tobytes() for w in hora.allgather_object(weights))
if hora.rank() == 0:
    tx, ty = data(seed=3, n=2000)
    accuracy = float(np.mean(np.argmax(predict(tx).numpy(), 1) == ty))
    print(
        f"tensorflow: {hora.size()} ranks, {STEPS} steps, loss {mean:.4f}, accuracy {accuracy:.3f}, weights equal: {equal}"
    )
