"""Keras' fit: a step with hora beside MultiWorkerMirroredStrategy (tf_keras; Keras 3 has no such strategy) and beside
no communication.

The variants take turns in one pair of processes. Weights must be equal on both ranks after each round, and at the end
those of one process on the joined batches, within checks.BOUND.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
from checks import BOUND, apart
from frameworks.ranks import Teller, agree, compare

STEPS = {"MLP": 30, "convnet": 10}  # a round
BATCH = 64
SILENT = ("free", "free on tf_keras")


def rows_of(name: str, rank: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(1 + rank)
    shape = (BATCH, 512) if name == "MLP" else (BATCH, 32, 32, 3)
    return rng.randn(*shape).astype("float32"), ((np.arange(BATCH) * 7 + rank) % 10).astype("int32")


def model_of(keras, name: str):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    if name == "MLP":
        hidden = [layers.Dense(512, activation="relu") for _ in range(3)]
        return keras.Sequential([layers.Input((512,)), *hidden, layers.Dense(10)])
    return keras.Sequential(
        [
            layers.Input((32, 32, 3)), layers.Conv2D(16, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
            layers.Dense(128, activation="relu"), layers.Dense(10),
        ]
    )  # fmt: skip


class Trainer:
    """One variant of one model: fit of some steps, as a function that gives the seconds of each."""

    def __init__(self, keras, name: str, variant: str, strategy=None) -> None:
        import tensorflow as tf

        import hora
        import hora.keras

        def make():
            model = model_of(keras, name)
            optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
            if variant.startswith("hora"):
                optimizer = hora.keras.DistributedOptimizer(optimizer)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss=loss, jit_compile=False)
            return model

        def data(_=None):
            if variant == "joined":
                every = [rows_of(name, r) for r in range(hora.size())]
                x, y = (np.concatenate(a) for a in zip(*every, strict=True))
            else:
                x, y = rows_of(name, hora.rank())
            return tf.data.Dataset.from_tensors((x, y)).repeat()

        if strategy is None:
            self.model, self.data = make(), data()
        else:
            with strategy.scope():
                self.model = make()
            self.data = strategy.distribute_datasets_from_function(data)
        self.start: list[np.ndarray] = []
        stamps = self.stamps = []

        class Clock(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                stamps.append(time.perf_counter())

        self.clock = Clock()

    def begin(self, weights: list[np.ndarray]) -> None:
        self.model.set_weights(weights)
        self.start = weights

    def fit(self, steps: int) -> list[float]:
        """Seconds of each step but the first, which begins with what fit does once."""
        del self.stamps[:]
        self.model.fit(self.data, steps_per_epoch=steps + 1, epochs=1, verbose=0, callbacks=[self.clock])
        return [b - a for a, b in zip(self.stamps, self.stamps[1:], strict=False)]

    def weights(self) -> list[np.ndarray]:
        return self.model.get_weights()

    def faults(self) -> list[str]:
        import hora

        mine = b"".join(w.tobytes() for w in self.weights())
        return [] if len(set(hora.allgather_object(mine))) == 1 else ["the ranks' weights differ"]


def measure(teller: Teller, rounds: int) -> None:
    os.environ["TF_CONFIG"] = os.environ["BENCH_CLUSTER"]
    import tensorflow as tf

    options = tf.distribute.experimental
    ring = options.CommunicationOptions(implementation=options.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    import keras
    import tf_keras

    import hora

    hora.init()
    for name in STEPS:
        trainers = {
            "free": Trainer(keras, name, "free"),
            "hora": Trainer(keras, name, "hora"),
            "free on tf_keras": Trainer(tf_keras, name, "free"),
            "hora on tf_keras": Trainer(tf_keras, name, "hora"),
            "MultiWorkerMirroredStrategy": Trainer(tf_keras, name, "strategy", strategy),
        }
        joined = {"": Trainer(keras, name, "joined"), "tf_keras": Trainer(tf_keras, name, "joined")}
        one_model(teller, name, trainers, joined, rounds)


def one_model(teller: Teller, name: str, trainers: dict, joined: dict, rounds: int) -> None:
    import hora

    start = trainers["free"].weights()
    for t in [*trainers.values(), *joined.values()]:
        t.begin(start)
        t.fit(4)
    took: dict[str, list[float]] = {v: [] for v in trainers}
    for _ in range(rounds):
        for v, t in trainers.items():
            hora.barrier()
            both = hora.allgather_object(t.fit(STEPS[name]))
            seconds = sum(map(max, *both)) if v in SILENT else max(map(sum, both))
            took[v].append(seconds / STEPS[name])
            agree([] if v in SILENT else t.faults(), f"{name}, {v}")
    for t in joined.values():
        for _ in range(rounds):
            t.fit(STEPS[name])
    for v, t in trainers.items():
        far = None
        if v not in SILENT:
            reference = joined["" if v == "hora" else "tf_keras"]
            far = apart(t.start, t.weights(), reference.weights())
            agree([] if far <= BOUND else [f"{far:.4f} of its way from one process on the joined batch, at most {BOUND}"], f"{name}, {v}")
        how = "" if far is None else f", {far:.0e} of its way from the joined batch"
        teller.say(what=f"fit {name} {v}", value=f"{statistics.median(took[v]) * 1e6:.0f} us a step ({min(took[v]) * 1e6:.0f}-{max(took[v]) * 1e6:.0f}){how}")
    compare(teller, f"fit {name} hora", took["hora"], took["MultiWorkerMirroredStrategy"], "MultiWorkerMirroredStrategy", 1.2)
    compare(teller, f"fit {name} hora", took["hora"], took["free"], "no communication", 0.85)
    compare(teller, f"fit {name} hora on tf_keras", took["hora on tf_keras"], took["MultiWorkerMirroredStrategy"], "MultiWorkerMirroredStrategy", 1.2)
    compare(teller, f"fit {name} hora on tf_keras", took["hora on tf_keras"], took["free on tf_keras"], "no communication", 0.85)
