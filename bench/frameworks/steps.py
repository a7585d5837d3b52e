"""100 steps of two ranks beside one process on the joined batch: the curves of the loss, and the ranks' weights bit for
bit."""

from __future__ import annotations

import os

import numpy as np
from frameworks.ranks import Teller, agree

STEPS, ROWS, TOLERANCE = 100, 32, 1e-3  # of the loss, as a part of it: sums of halves round otherwise than one sum


def rows_of(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Other rows at each rank and step."""
    rng = np.random.RandomState(7 + rank)
    x = rng.randn(STEPS, ROWS, 20).astype("float32")
    return x, np.tanh(x @ np.random.RandomState(3).randn(20, 1)).astype("float32")


def joined(size: int) -> tuple[np.ndarray, np.ndarray]:
    xs, ys = zip(*map(rows_of, range(size)), strict=True)
    return np.concatenate(xs, axis=1), np.concatenate(ys, axis=1)


def judge(teller: Teller, what: str, losses, alone, weights) -> None:
    import hora

    together = hora.allreduce(np.asarray(losses, "float64"), hora.AVERAGE)
    alone = np.asarray(alone, "float64")
    far = float(np.max(np.abs(together - alone) / np.maximum(np.abs(alone), 1e-3)))
    faults = [] if alone[-1] < alone[0] / 2 else [f"the loss went from {alone[0]:.4f} to {alone[-1]:.4f}: nothing was learned"]
    if len(set(hora.allgather_object(b"".join(np.asarray(w).tobytes() for w in weights)))) != 1:
        faults.append("the ranks' weights differ")
    agree(faults, what)
    teller.say(what=f"{STEPS} steps, {what}", value=f"loss {alone[0]:.4f} to {alone[-1]:.4f}, curves apart by {far:.1e}; weights equal", goal=TOLERANCE,
               reached=far <= TOLERANCE)  # fmt: skip


def measure(teller: Teller, rounds: int) -> None:
    import hora

    hora.init()
    backend = os.environ["KERAS_BACKEND"]
    if backend == "tensorflow":
        tape(teller)
        of_keras(teller, "tf_keras", "Keras 2 (tf_keras)")
    if backend == "jax":
        optax(teller)
    of_keras(teller, "keras", f"Keras 3 on {backend}")


def tape(teller: Teller) -> None:
    import tensorflow as tf

    import hora
    import hora.tensorflow as ht

    def train(x, y, distributed):
        g = np.random.RandomState(5 + (hora.rank() if distributed else 0))
        v = [tf.Variable((g.randn(*s) / s[0] ** 0.5).astype("f")) for s in ((20, 32), (32, 1))]
        if distributed:
            ht.broadcast_variables(v)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.tanh(x @ v[0]) @ v[1] - y) ** 2)
            if distributed:
                tape = ht.DistributedGradientTape(tape)
            for w, d in zip(v, tape.gradient(loss, v), strict=True):
                w.assign_sub(0.2 * d)
            return loss

        return [float(step(a, b)) for a, b in zip(tf.constant(x), tf.constant(y), strict=True)], [w.numpy() for w in v]

    losses, weights = train(*rows_of(hora.rank()), True)
    alone, _ = train(*joined(hora.size()), False)
    judge(teller, "DistributedGradientTape", losses, alone, weights)


def optax(teller: Teller) -> None:
    import jax
    import jax.numpy as jnp
    import optax

    import hora
    import hora.jax as hj

    def train(x, y, distributed):
        g = np.random.RandomState(5 + (hora.rank() if distributed else 0))
        p = [jnp.asarray((g.randn(*s) / s[0] ** 0.5).astype("f")) for s in ((20, 32), (32, 1))]
        tx = optax.sgd(0.2)
        if distributed:
            p, tx = hj.broadcast_pytree(p), hj.DistributedOptimizer(tx)
        state = tx.init(p)

        @jax.jit
        def step(p, state, x, y):
            loss, g = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p[0]) @ p[1] - y) ** 2))(p)
            u, state = tx.update(g, state, p)
            return optax.apply_updates(p, u), state, loss

        losses = []
        for a, b in zip(x, y, strict=True):
            p, state, loss = step(p, state, a, b)
            losses.append(float(loss))
        return losses, p

    losses, weights = train(*rows_of(hora.rank()), True)
    alone, _ = train(*joined(hora.size()), False)
    judge(teller, "JAX with optax", losses, alone, weights)


def of_keras(teller: Teller, module: str, what: str) -> None:
    import importlib

    import hora
    import hora.keras

    keras = importlib.import_module(module)

    class Losses(keras.callbacks.Callback):
        """What fit tells at a batch's end is the average since the epoch's beginning: the sums' differences are the
        batches' own."""

        def __init__(self):
            super().__init__()
            self.sums = [0.0]

        def on_train_batch_end(self, batch, logs=None):
            self.sums.append(float(logs["loss"]) * (batch + 1))

    def train(x, y, distributed):
        keras.utils.set_random_seed(5)
        hidden = keras.layers.Dense(32, activation="tanh")
        model = keras.Sequential([keras.layers.Input((20,)), hidden, keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.2)
        how = {"jit_compile": False} if os.environ["KERAS_BACKEND"] == "tensorflow" else {}
        model.compile(hora.keras.DistributedOptimizer(optimizer) if distributed else optimizer, loss="mse", **how)
        told = Losses()
        n = x.shape[1]
        model.fit(x.reshape(-1, 20), y.reshape(-1, 1), batch_size=n, shuffle=False, verbose=0, callbacks=[told])
        return np.diff(told.sums), model.get_weights()

    losses, weights = train(*rows_of(hora.rank()), True)
    alone, _ = train(*joined(hora.size()), False)
    judge(teller, what, losses, alone, weights)
