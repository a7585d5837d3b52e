"""A table as a tf.data.Dataset on every rank: equal numbers of steps, an order for each epoch, and the place in it in
the checkpoint.

hora run -np 2 python examples/63-tensorflow-data/train.py DATA

DATA is Parquet with columns a, b, label. Rank and size are the job's; the loader decodes on threads of this process,
ahead of the training.
"""

import sys

import tensorflow as tf

import hora
import hora.dataset
import hora.tensorflow

hora.init()
loader = hora.dataset.open(
    sys.argv[1], columns={"x": ["a", "b"], "y": "label", "id": "id"}, batch=50, seed=1, last="drop"
)
batches = loader.tensorflow()  # dicts of tensors, with known shapes and types

w = tf.Variable(tf.zeros([2, 1]))
hora.tensorflow.broadcast_variables([w])


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - y[:, None]) ** 2)
    tape = hora.tensorflow.DistributedGradientTape(tape)
    (gradient,) = tape.gradient(loss, [w])
    w.assign_sub(0.2 * gradient)
    return loss


seen = []
for epoch in range(3):
    loader.set_epoch(epoch)
    for batch in batches:
        loss = step(batch["x"], batch["y"])
        seen += batch["id"].numpy().tolist()
saved = loader.state_dict()  # for the checkpoint, beside the variables: load_state_dict goes on at the very row

rows = [i for part in hora.allgather_object(seen) for i in part]
weights = hora.allgather_object([round(float(v), 2) for v in w.numpy()[:, 0]])
if hora.rank() == 0:
    print(
        f"{len(rows)} rows, each three times: {sorted(rows) == sorted([*range(loader.rows)] * 3)}; at row {saved['pos']} of epoch {saved['epoch']}"
    )
    print(f"loss {float(loss):.4f}, weights {weights[0]}, equal: {weights[0] == weights[1]}")
