"""A Keras `fit` made parallel with three lines, on whichever backend Keras runs.

    hora run -np 2 python examples/40-keras/train.py
    KERAS_BACKEND=jax hora run -np 2 python examples/40-keras/train.py

A model learns which of ten hidden prototypes a noisy vector came from. Every rank sees its own part of the data. At the
end rank 0 prints the loss, the accuracy, and whether all ranks hold the same weights.
"""

import keras
import numpy as np

import hora
import hora.keras

EPOCHS, BATCH, CLASSES, FEATURES = 3, 64, 10, 64


def data(seed, n):
    prototypes = np.random.RandomState(0).randn(CLASSES, FEATURES)
    rng = np.random.RandomState(seed)
    y = rng.randint(0, CLASSES, n)
    return (prototypes[y] + 1.5 * rng.randn(n, FEATURES)).astype("float32"), y


hora.init()
model = keras.Sequential(
    [keras.layers.Input((FEATURES,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(CLASSES)]
)
model.compile(
    hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)),  # one
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
)  # fmt: skip
x, y = data(seed=2, n=50 * BATCH * hora.size())
callbacks = [hora.keras.callbacks.BroadcastGlobalVariables(), hora.keras.callbacks.MetricAverage()]  # two
x, y = x[hora.rank() :: hora.size()], y[hora.rank() :: hora.size()]  # three
history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, callbacks=callbacks, verbose=0)

weights = np.concatenate([w.ravel() for w in model.get_weights()])
equal = all(w.tobytes() == weights.tobytes() for w in hora.allgather_object(weights))
if hora.rank() == 0:
    loss, accuracy = model.evaluate(*data(seed=3, n=2000), verbose=0)
    print(
        f"keras on {keras.backend.backend()}: {hora.size()} ranks, {EPOCHS} epochs, loss {history.history['loss'][-1]:.4f}, "
        f"accuracy {accuracy:.3f}, weights equal: {equal}"
    )
