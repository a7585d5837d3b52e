"""The classic Horovod Keras script: every line about Horovod is one that such scripts have always had.

    horovodrun -np 2 python examples/33-horovod-keras/train.py DIR

A small convolutional network learns synthetic digits. Rank 0 saves checkpoints in DIR.
"""

import sys
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

# Horovod: initialize Horovod.
hvd.init()

# Horovod: pin each process to one GPU.
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

BATCH, STEPS, EPOCHS, WARMUP = 32, 60 // hvd.size(), 4, 2
prototypes = np.random.RandomState(0).rand(10, 12, 12)


def images(seed, n):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, n)
    return (prototypes[labels] + 0.5 * rng.randn(n, 12, 12))[..., None].astype("float32"), labels.astype("int64")


# Horovod: each rank trains on data of its own.
dataset = (
    tf.data.Dataset.from_tensor_slices(images(100 + hvd.rank(), 1000))
    .repeat()
    .shuffle(1000, seed=hvd.rank())
    .batch(BATCH)
)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((12, 12, 1)),
        tf.keras.layers.Conv2D(8, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)

# Horovod: adjust learning rate based on number of ranks, and wrap the optimizer.
scaled_lr = 0.02 * hvd.size()
opt = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(scaled_lr, momentum=0.9), backward_passes_per_step=1)
model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

callbacks = [
    # Horovod: broadcast initial variable states from rank 0 to all other processes.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Horovod: average metrics among workers at the end of every epoch.
    hvd.callbacks.MetricAverageCallback(),
    # Horovod: begin with a small rate, and warm it up.
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=WARMUP, verbose=1),
]

# Horovod: save checkpoints only on rank 0, or they would spoil each other.
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(folder / "checkpoint-{epoch}.keras")))

# Horovod: write logs on rank 0 only.
history = model.fit(
    dataset, steps_per_epoch=STEPS, callbacks=callbacks, epochs=EPOCHS, verbose=2 if hvd.rank() == 0 else 0
)

loss, accuracy = model.evaluate(*images(1, 1000), verbose=0)
weights = np.concatenate([w.ravel() for w in model.get_weights()])
spread = np.ptp(np.asarray(hvd.allgather(weights[None])), axis=0).max()
if hvd.rank() == 0:
    print(
        f"keras: {hvd.size()} ranks, {EPOCHS} epochs, rate {history.history['lr'][-1]:.3f}, accuracy {accuracy:.3f}, weights differ by {spread}"
    )
