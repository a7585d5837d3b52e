"""A Keras `fit` that goes on after a process was killed in the middle of an epoch.

    hora run -np 2 --restarts 3 python examples/44-elastic-keras/train.py

The state holds the model, its optimizer and the number of epochs done; every tenth batch is committed. In the second
epoch rank 1 is killed, as if its machine had failed: the others hear of it at once, a new process takes the place and
gets the state from them, and fit goes on. At the end the weights are equal on all ranks. (The kill happens only once:
it leaves a file behind that says so.)
"""

import os
import signal
import sys
import tempfile

import keras
import numpy as np

import hora
import hora.elastic
import hora.keras

EPOCHS, BATCH, CLASSES, FEATURES = 3, 32, 10, 64
KILLED = (
    sys.argv[1]
    if len(sys.argv) > 1
    else os.path.join(tempfile.gettempdir(), f"example-44-{os.environ.get('HORA_JOB', '')}")
)


def data(seed, n):
    prototypes = np.random.RandomState(0).randn(CLASSES, FEATURES)
    rng = np.random.RandomState(seed)
    y = rng.randint(0, CLASSES, n)
    return (prototypes[y] + 1.5 * rng.randn(n, FEATURES)).astype("float32"), y


class Kill(keras.callbacks.Callback):
    """Ends rank 1 in the middle of the second epoch, once."""

    def on_train_batch_end(self, batch, logs=None):
        if state.epoch == 1 and batch == 25 and hora.rank() == 1 and not os.path.exists(KILLED):
            open(KILLED, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


hora.init()
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.layers.Input((FEATURES,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(CLASSES)]
)
model.compile(
    hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
)  # fmt: skip
state = hora.keras.KerasState(model, epoch=0, batch=0)


@hora.elastic.run
def train(state):
    print(f"rank {hora.rank()} of {hora.size()} in epoch {state.epoch}", flush=True)
    x, y = data(seed=2, n=40 * BATCH * hora.size())
    x, y = x[hora.rank() :: hora.size()], y[hora.rank() :: hora.size()]
    callbacks = [
        hora.keras.callbacks.MetricAverage(),
        hora.keras.callbacks.UpdateEpochState(state),
        hora.keras.callbacks.UpdateBatchState(state),
        hora.keras.callbacks.CommitState(state, every=10),
        Kill(),
    ]
    return model.fit(x, y, batch_size=BATCH, epochs=EPOCHS - state.epoch, callbacks=callbacks, verbose=0)


train(state)
weights = np.concatenate([w.ravel() for w in model.get_weights()])
equal = all(w.tobytes() == weights.tobytes() for w in hora.allgather_object(weights))
if hora.rank() == 0:
    loss, accuracy = model.evaluate(*data(seed=3, n=2000), verbose=0)
    print(f"done: {state.epoch} epochs, accuracy {accuracy:.3f}, weights equal on {hora.size()} ranks: {equal}")
    if os.path.exists(KILLED):
        os.remove(KILLED)
