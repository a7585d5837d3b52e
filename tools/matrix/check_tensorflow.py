"""What hora does on the TensorFlow and Keras of this interpreter: two ranks, one line a feature, as check.py."""

from __future__ import annotations

import os
import sys
import tempfile

import pair

NEEDED = ("eager", "tf.function", "derivatives", "rows of differing number", "sparse gradients", "loops and branches", "saved model",
          "DistributedGradientTape", "graphs of TensorFlow 1", "Keras fit", "elastic state", "horovod.tensorflow",
          "horovod.tensorflow.keras", "horovod.keras")  # fmt: skip
COMPILED = "jit_compile=True with HORA_TF_XLA=1"  # in ranks of its own: the setting is read once


def features(r: int, n: int):
    """(name, function) of each; a function fails by an exception."""
    import numpy as np
    import tensorflow as tf

    import hora
    import hora.tensorflow as ht

    total = n * (n + 1) / 2

    def eager():
        for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"):
            y = ht.allreduce(tf.cast(tf.fill([3], r + 1), dtype))
            assert (tf.cast(y, "float64").numpy() == (1 if dtype == "bool" else total)).all(), (dtype, y)

    def compiled():
        f = tf.function(lambda x: [ht.allreduce(x * float(k)) for k in range(5)])
        for turn in range(10):
            for k, y in enumerate(f(tf.fill([3], turn + r + 1.0))):
                assert (y.numpy() == k * (n * turn + total)).all()

    def derivatives():
        x = tf.Variable([1.0 + r, 2.0])
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(ht.allreduce(x) ** 2)
        assert tape.gradient(y, x).numpy().tolist() == [2 * n * total, 4 * n * n]

    def rows():
        assert ht.allgather(tf.fill([r + 1, 2], float(r))).shape == [n * (n + 1) // 2, 2]
        y, counts = ht.alltoall(tf.range(3) + 100 * r, tf.constant([2, 1]))
        assert counts.numpy().tolist() == [2 - r] * n and len(y) == n * (2 - r)

    def sparse():
        s = ht.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([r]), tf.constant([n, 2])), "average")
        assert (tf.convert_to_tensor(s).numpy() == 1 / n).all()

    def control():
        @tf.function
        def loop(x):
            for _ in tf.range(4):
                x = ht.allreduce(x, "average") + 1.0
            return ht.allreduce(x) if tf.reduce_sum(x) > 0 else x

        assert loop(tf.fill([2], float(r))).numpy().tolist() == [n * ((n - 1) / 2 + 4)] * 2

    def saved():
        class Saved(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None])])
            def go(self, x):
                return ht.allreduce(x)

        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(Saved(), folder)
            assert tf.saved_model.load(folder).go(tf.ones(3)).numpy().tolist() == [n] * 3

    def tape():
        x = tf.Variable(float(r))

        @tf.function
        def step():
            with tf.GradientTape() as t:
                y = x * x
            return ht.DistributedGradientTape(t).gradient(y, x)

        assert float(step()) == n - 1

    def session():
        v1 = tf.compat.v1
        with tf.Graph().as_default() as graph:  # as in tests/tensorflow/test_sessions.py
            order = range(200) if r else reversed(range(200))
            many = {i: ht.allreduce(tf.fill([2], float(i + r)), name=f"t{i}") for i in order}
            back = tf.gradients(ht.allreduce(x := tf.constant(2.0) * (r + 1)), x)[0]
        for threads in (1, 8):
            with v1.Session(graph=graph, config=v1.ConfigProto(inter_op_parallelism_threads=threads)) as s:
                for i, y in s.run(many).items():
                    assert y.tolist() == [n * i + total - n] * 2
                assert s.run(back) == n

    def jit():
        assert float(tf.function(ht.allreduce, jit_compile=True)(tf.constant(1.0))) == n

    def fit(keras, distributed, made):
        rng = np.random.RandomState(0)
        X, Y = rng.randn(32, 5).astype("f"), rng.randn(32, 1).astype("f")

        def train(optimizer, x, y, batch):
            keras.utils.set_random_seed(1)
            hidden = keras.layers.Dense(4, activation="tanh")
            m = keras.Sequential([keras.layers.Input((5,)), hidden, keras.layers.Dense(1)])
            m.compile(optimizer, loss="mse", jit_compile=False)
            calls = made() if batch < 16 else []
            m.fit(x, y, batch_size=batch, epochs=3, shuffle=False, verbose=0, callbacks=calls)
            return np.concatenate([w.ravel() for w in m.get_weights()])

        joined = [np.concatenate([a[q::n][i * 8 : i * 8 + 8] for i in range(2) for q in range(n)]) for a in (X, Y)]
        ours = train(distributed.DistributedOptimizer(keras.optimizers.Adam(0.01, clipnorm=0.3)), X[r::n], Y[r::n], 8)
        alone = train(keras.optimizers.Adam(0.01, clipnorm=0.3), *joined, 16)
        assert np.allclose(ours, alone, atol=5e-4), np.abs(ours - alone).max()

    def keras_fit():
        import hora.keras

        given = hora.keras.callbacks
        fit(hora.keras.which.keras, hora.keras, lambda: [given.BroadcastGlobalVariables(), given.MetricAverage()])

    def normalization():
        layer = ht.SyncBatchNormalization()
        rows = np.arange(12, dtype="f").reshape(4, 3)
        mean = np.asarray(layer(rows[r::n], training=True)).mean()
        assert abs(hora.allreduce(np.float64(mean), hora.AVERAGE)) < 1e-5

    def state():
        v = tf.Variable([1.0 * r])
        state = ht.TensorFlowState([v], step=3)
        state.sync() if hasattr(state, "sync") else state.commit()

    def horovod_tensorflow():
        import horovod.tensorflow as hvd

        hvd.init()
        x = tf.fill([3], r + 1.0)

        @tf.function
        def calls(x):
            return hvd.allreduce(x), hvd.grouped_allreduce([x, x], op=hvd.Sum)[1], hvd.broadcast(x, 1)

        for y, value in zip(calls(x), (total / n, total, 2), strict=True):
            assert y.numpy().tolist() == [value] * 3
        assert hvd.allgather(tf.fill([r + 1], r)).shape == [n * (n + 1) // 2]
        v = tf.Variable(float(r))
        with tf.GradientTape() as t:
            y = v * v
        assert float(hvd.DistributedGradientTape(t).gradient(y, v)) == n - 1
        hvd.broadcast_variables([v], 1)
        assert float(v) == 1 and hvd.broadcast_object({"r": r}, 1) == {"r": 1}
        state = hvd.elastic.TensorFlowState([v], batch=1)
        state.commit()
        v.assign(7)
        state.restore()
        assert float(v) == 1

    def horovod_keras(name):
        import importlib

        hvd = importlib.import_module(name)
        hvd.init()
        keras = tf.keras if name == "horovod.tensorflow.keras" else importlib.import_module("keras")
        given = hvd.callbacks
        fit(keras, hvd, lambda: [given.BroadcastGlobalVariablesCallback(0), given.MetricAverageCallback()])

    return [
        ("eager", eager), ("tf.function", compiled), ("derivatives", derivatives), ("rows of differing number", rows),
        ("sparse gradients", sparse),
        ("loops and branches", control), ("saved model", saved), ("DistributedGradientTape", tape),
        ("graphs of TensorFlow 1", session),
        ("Keras fit", keras_fit), ("SyncBatchNormalization", normalization), ("elastic state", state),
        ("horovod.tensorflow", horovod_tensorflow),
        ("horovod.tensorflow.keras", lambda: horovod_keras("horovod.tensorflow.keras")),
        ("horovod.keras", lambda: horovod_keras("horovod.keras")),
        ("jit_compile=True", jit), (COMPILED, jit),
    ]  # fmt: skip


def rank_main() -> int:
    import hora

    hora.init()
    compiled = "HORA_TF_XLA" in os.environ
    chosen = [f for f in features(hora.rank(), hora.size()) if (f[0] == COMPILED) == compiled]
    return pair.tell(hora.rank(), chosen, NEEDED)


def main() -> int:
    if "HORA_RANK" in os.environ:
        return rank_main()
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import tensorflow as tf

    print("version", f"{tf.__version__} (Keras {tf.keras.__version__})", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = pair.run(__file__, folder)
        os.unlink(os.path.join(folder, "secret"))
        return max(plain, pair.run(__file__, folder, HORA_TF_XLA="1"))


if __name__ == "__main__":
    sys.exit(main())
