"""The classic Horovod script with a session of TensorFlow 1: every line about Horovod is one that such scripts have
always had.

    horovodrun -np 2 python examples/34-horovod-session/train.py DIR

A small network learns synthetic digits in a MonitoredTrainingSession. Rank 0 saves checkpoints in DIR, and goes on from
them.
"""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)


def network(images, labels):
    """The loss, and how much is right."""
    with tf.variable_scope("net"):
        w1 = tf.get_variable("w1", [64, 32])
        w2 = tf.get_variable("w2", [32, 10])
    logits = tf.matmul(tf.nn.relu(tf.matmul(images, w1)), w2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
    return loss, right


def digits(rng, n=64):
    """Digit k is a bright row k of eight, with noise; those from 8 on are columns."""
    labels = rng.randint(0, 10, n)
    images = 0.3 * rng.rand(n, 8, 8)
    for i, k in enumerate(labels):
        images[i, k if k < 8 else slice(None), slice(None) if k < 8 else k - 8] += 1
    return images.reshape(n, 64).astype(np.float32), labels.astype(np.int32)


def main(folder):
    hvd.init()
    images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    loss, right = network(images, labels)

    opt = tf.train.AdamOptimizer(0.001 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=400 // hvd.size()),
    ]
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    checkpoint_dir = folder if hvd.rank() == 0 else None

    rng = np.random.RandomState(hvd.rank())
    said = 0.0
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks, config=config) as session:
        while not session.should_stop():
            x, y = digits(rng)
            _, said, step = session.run([train_op, right, global_step], {images: x, labels: y})
            if step % 100 == 0 and hvd.rank() == 0:
                print(f"step {step}: {100 * said:.0f} % of a batch right")
    assert said > 0.8, said


if __name__ == "__main__":
    main(sys.argv[1])
