"""A JAX training with optax made parallel with three lines.

    hora run -np 2 python examples/42-jax/train.py

A model learns which of ten hidden prototypes a noisy vector came from. Every rank sees its own part of the data; the
whole step is one compiled program, gradients included: `DistributedOptimizer` averages them in it. At the end rank 0
prints the loss, the accuracy, and whether all ranks hold the same weights.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import hora
import hora.jax

STEPS, BATCH, CLASSES, FEATURES = 150, 64, 10, 64


def data(seed, n):
    prototypes = np.random.RandomState(0).randn(CLASSES, FEATURES)
    rng = np.random.RandomState(seed)
    y = rng.randint(0, CLASSES, n)
    return (prototypes[y] + 1.5 * rng.randn(n, FEATURES)).astype("float32"), y


def predict(params, x):
    return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()


def main():
    hora.init()  # one
    rng = np.random.RandomState(hora.rank())
    params = {
        "w1": (rng.randn(FEATURES, 128) / 8).astype("float32"), "b1": np.zeros(128, "float32"),
        "w2": (rng.randn(128, CLASSES) / 11).astype("float32"), "b2": np.zeros(CLASSES, "float32"),
    }  # fmt: skip
    params = hora.jax.broadcast_pytree(params)  # two: every rank begins with rank 0's
    tx = hora.jax.DistributedOptimizer(optax.sgd(0.05, momentum=0.9))  # three
    state = tx.init(params)

    @jax.jit
    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    x, y = data(seed=2, n=STEPS * BATCH * hora.size())
    x, y = x[hora.rank() :: hora.size()], y[hora.rank() :: hora.size()]
    start = time.perf_counter()
    for i in range(STEPS):
        part = slice(i * BATCH, (i + 1) * BATCH)
        params, state, value = step(params, state, x[part], y[part])
    mean = float(hora.jax.allreduce(value, hora.AVERAGE))
    seconds = time.perf_counter() - start

    weights = np.concatenate([np.ravel(p) for p in jax.tree_util.tree_leaves(params)])
    equal = all(w.tobytes() == weights.tobytes() for w in hora.allgather_object(weights))
    if hora.rank() == 0:
        tx_, ty = data(seed=3, n=2000)
        accuracy = float((jnp.argmax(predict(params, tx_), 1) == ty).mean())
        print(
            f"jax: {hora.size()} ranks, {STEPS} steps in {seconds:.2f} s, loss {mean:.4f}, accuracy {accuracy:.3f}, weights equal: {equal}"
        )


main()
