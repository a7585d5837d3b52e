"""A Keras model on JAX in a loop of one's own: the whole step, the average of the gradients too, is one compiled
program.

    hora run -np 2 python examples/43-keras-jax/train.py

A model learns which of ten hidden prototypes a noisy vector came from. Every rank sees its own part of the data. Keras'
optimizer averages in `stateless_apply`; with Keras' own `fit` instead of the loop, example 40 runs on JAX as it stands.
At the end rank 0 prints the loss, the accuracy, how often the step was traced, and whether all ranks hold the same
weights.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported

import jax
import keras
import numpy as np

import hora
import hora.jax
import hora.keras

STEPS, BATCH, CLASSES, FEATURES = 150, 64, 10, 64


def data(seed, n):
    prototypes = np.random.RandomState(0).randn(CLASSES, FEATURES)
    rng = np.random.RandomState(seed)
    y = rng.randint(0, CLASSES, n)
    return (prototypes[y] + 1.5 * rng.randn(n, FEATURES)).astype("float32"), y


hora.init()
keras.utils.set_random_seed(1 + hora.rank())
model = keras.Sequential(
    [keras.layers.Input((FEATURES,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(CLASSES)]
)
optimizer = hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))  # one
optimizer.build(model.trainable_variables)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
traces = 0


@jax.jit
def step(held, others, slots, x, y):
    global traces
    traces += 1

    def loss_fn(held):
        logits, new = model.stateless_call(held, others, x, training=True)
        return loss_of(y, logits), new

    (loss, others), gradients = jax.value_and_grad(loss_fn, has_aux=True)(held)
    held, slots = optimizer.stateless_apply(slots, gradients, held)
    return held, others, slots, hora.jax.allreduce(loss, hora.AVERAGE)


state = [
    [v.value for v in part] for part in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
]
state = hora.jax.broadcast_pytree(state)  # two: ranks begin with rank 0's weights
x, y = data(seed=2, n=STEPS * BATCH * hora.size())
x, y = x[hora.rank() :: hora.size()], y[hora.rank() :: hora.size()]  # three
for i in range(STEPS):
    rows = slice(i * BATCH, (i + 1) * BATCH)
    *state, loss = step(*state, x[rows], y[rows])

for variables, values in zip(
    (model.trainable_variables, model.non_trainable_variables, optimizer.variables), state, strict=True
):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
weights = np.concatenate([w.ravel() for w in model.get_weights()])
equal = all(w.tobytes() == weights.tobytes() for w in hora.allgather_object(weights))
if hora.rank() == 0:
    x, y = data(seed=3, n=2000)
    accuracy = float((np.asarray(model(x)).argmax(1) == y).mean())
    print(
        f"keras on {keras.backend.backend()}: {hora.size()} ranks, {STEPS} steps, traced {traces} time(s), loss {float(loss):.4f}, "
        f"accuracy {accuracy:.3f}, weights equal: {equal}"
    )
