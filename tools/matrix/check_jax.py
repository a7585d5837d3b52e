"""What hora does on the JAX of this interpreter: two ranks, one line a feature, as check.py."""

from __future__ import annotations

import os
import signal
import sys
import tempfile

import pair

NEEDED = ("eager", "jit", "independent calls keep their order", "grad", "vmap", "scan, while_loop, cond", "checkpoint", "donated arguments",
          "optax", "an error and the next call", "an error that nobody has seen yet", "programs that differ", "Keras fit",
          "a killed rank")  # fmt: skip
KILLED = "MATRIX_KILLED"  # in the environment of the pair of which rank 1 kills itself


def features(r: int, n: int):
    """(name, function) of each; a function fails by an exception."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import hora.jax as hj

    total = n * (n + 1) / 2

    def eager():
        for dtype in ("float32", "float16", "bfloat16", "int32", "uint8"):
            assert (np.asarray(hj.allreduce(jnp.full(3, r + 1, dtype))).astype("f") == total).all(), dtype
        assert hj.allgather(jnp.full((2, 3), float(r))).shape == (2 * n, 3)

    def compiled():
        y = jax.jit(lambda t: hj.allreduce(t, "average"))({"a": jnp.full(3, r + 1.0), "b": jnp.float32(r)})
        assert np.allclose(y["a"], total / n) and np.allclose(y["b"], (n - 1) / 2)

    def order():
        f = jax.jit(lambda x: [hj.allreduce(x * k) for k in range(12)])
        for turn in range(50):
            for k, y in enumerate(f(jnp.full(3, float(turn + r)))):
                assert (np.asarray(y) == k * (n * turn + n * (n - 1) / 2)).all(), (turn, k)
        # XLA takes several threads for larger ones, which are ready in another order than the program's.
        g = jax.jit(lambda x: [hj.allreduce(jnp.cumsum(x + k) if k % 3 else x + k) for k in range(40)])
        for turn in range(50):
            x = np.full(4096, turn + r, np.int32)
            for k, y in enumerate(g(x)):
                one = n * k + np.full(4096, n * turn + n * (n - 1) // 2)
                assert (np.asarray(y) == (np.cumsum(one) if k % 3 else one)).all(), (turn, k)

    def grad():
        g = jax.jit(jax.grad(lambda x: (hj.allreduce(x) ** 2).sum()))(jnp.asarray([1.0 + r, 2.0]))
        assert g.tolist() == [2 * n * total, 4 * n * n]

    def vmap():
        assert np.allclose(jax.vmap(hj.allreduce)(jnp.arange(6.0).reshape(2, 3)), n * np.arange(6).reshape(2, 3))

    def control():
        def body(c, _):
            c = hj.allreduce(c, "average") + 1
            return c, c.sum()

        c, _ = jax.jit(lambda x: jax.lax.scan(body, x, None, length=4))(jnp.full(2, float(r)))
        assert np.allclose(c, (n - 1) / 2 + 4)

        def three(x):
            return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, hj.allreduce(s[1], "average")), (0, x))

        w = jax.jit(three)(jnp.float32(r))
        assert np.allclose(w[1], (n - 1) / 2)
        assert float(jax.jit(lambda p, x: jax.lax.cond(p, hj.allreduce, lambda x: x, x))(True, jnp.float32(1))) == n

    def checkpoint():
        g = jax.jit(jax.grad(jax.checkpoint(lambda x: (jnp.sin(hj.allreduce(x)) ** 2).sum())))(jnp.ones(2))
        assert np.isfinite(np.asarray(g)).all()

    def donation():
        assert (np.asarray(jax.jit(hj.allreduce, donate_argnums=0)(jnp.full(4, r + 1.0))) == total).all()

    def optax():
        import optax

        tx = hj.DistributedOptimizer(optax.sgd(1.0))
        p = hj.broadcast_pytree({"w": jnp.full(2, float(r))})
        u, _ = jax.jit(lambda g, s: tx.update(g, s))({"w": jnp.full(2, r + 1.0)}, tx.init(p))
        assert np.allclose(p["w"], 0) and np.allclose(u["w"], -total / n)

    def error():
        try:
            jax.block_until_ready(jax.jit(hj.allreduce)(jnp.ones(3 + r)))
        except Exception as e:
            assert "[3] on rank 0 and [4] on rank 1" in str(e), e
            hj.recover()
        else:
            raise AssertionError("no error")
        assert float(jax.jit(hj.allreduce)(jnp.float32(1))) == n

    def following():
        """A step that fails while nobody looks: the training does not go on with what lay in its memory."""
        slow, big = jax.jit(lambda a: (a @ a @ a)[0, 0] * 0), jnp.ones((1200, 1200))
        step = jax.jit(lambda x, s: hj.allreduce(x + s, "average") + 1)
        bad = jax.jit(lambda x, s: hj.allreduce(jnp.ones(5 + r) + s)[:5] + x)
        x = step(jnp.zeros(5), 0.0)
        try:
            x = bad(x, slow(big))
            while not x.is_ready():
                os.sched_yield()
            for _ in range(3):
                x = step(x, slow(big))
            got = np.asarray(x)
        except Exception as e:
            assert "[5] on rank 0 and [6] on rank 1" in str(e), e
            hj.recover()
        else:
            raise AssertionError(f"it went on with {got}")
        assert np.asarray(step(jnp.zeros(5), 0.0)).tolist() == [1] * 5

    def keras_fit():
        import keras

        import hora
        import hora.keras

        rng = np.random.RandomState(0)
        X, Y = rng.randn(32, 5).astype("f"), rng.randn(32, 1).astype("f")
        given = hora.keras.callbacks

        def train(optimizer, x, y, batch, seed, callbacks):
            keras.utils.set_random_seed(seed)
            hidden = keras.layers.Dense(4, activation="tanh")
            m = keras.Sequential([keras.layers.Input((5,)), hidden, keras.layers.Dense(1)])
            m.compile(optimizer, loss="mse")
            m.fit(x, y, batch_size=batch, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
            return np.concatenate([w.ravel() for w in m.get_weights()])

        joined = [np.concatenate([a[q::n][i * 8 : i * 8 + 8] for i in range(2) for q in range(n)]) for a in (X, Y)]
        wrapped = hora.keras.DistributedOptimizer(keras.optimizers.Adam(0.01, clipnorm=0.3))
        calls = [given.BroadcastGlobalVariables(), given.MetricAverage()]
        ours = train(wrapped, X[r::n], Y[r::n], 8, 1 + r, calls)
        assert len({w.tobytes() for w in hora.allgather_object(ours)}) == 1
        alone = train(keras.optimizers.Adam(0.01, clipnorm=0.3), *joined, 16, 1, [])
        assert np.allclose(ours, alone, atol=1e-5), np.abs(ours - alone).max()

    def differing():
        first, second = ("first", "second") if r == 0 else ("second", "first")
        f = jax.jit(lambda x: hj.allreduce(x, name=first) + hj.allreduce(x * 2.0, name=second))
        try:
            jax.block_until_ready(f(jnp.ones(3)))
        except Exception as e:
            assert all(word in str(e) for word in ("rank 0", "rank 1", "first", "second")), e
            hj.recover()
        else:
            raise AssertionError("no error")
        assert float(jax.jit(hj.allreduce)(jnp.float32(1))) == n

    def distributed():
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize()
        assert jax.process_count() == n
        jax.distributed.shutdown()

    return [
        ("jax.distributed.initialize()", distributed), ("eager", eager), ("jit", compiled),
        ("independent calls keep their order", order), ("grad", grad),
        ("vmap", vmap), ("scan, while_loop, cond", control), ("checkpoint", checkpoint),
        ("donated arguments", donation), ("optax", optax),
        ("an error and the next call", error), ("an error that nobody has seen yet", following),
        ("programs that differ", differing), ("Keras fit", keras_fit),
    ]  # fmt: skip


def killed(r: int):
    """What rank 0 sees of a rank that is killed between two steps of a compiled loop."""
    import jax
    import jax.numpy as jnp

    import hora
    import hora.jax as hj
    from hora.frontend import behind

    def feature():
        step = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: hj.allreduce(x, "average"), x))
        x = step(jnp.ones(4))
        for turn in range(10**9):
            if turn == 5 and r == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                x = jax.block_until_ready(step(x))
            except RuntimeError as e:  # JAX's own is one
                assert "lost rank 1" in str(e) and isinstance(behind(e), hora.PeerLostError), e
                hj.recover()
                return

    return [("a killed rank", feature)]


def rank_main() -> int:
    import hora

    hora.init()
    r, n = hora.rank(), hora.size()
    bad = pair.tell(r, killed(r) if KILLED in os.environ else features(r, n), NEEDED)
    if KILLED in os.environ:
        os._exit(bad)  # there is nobody left to leave the job with
    return bad


def main() -> int:
    if "HORA_RANK" in os.environ:
        return rank_main()
    os.environ |= {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}
    import jax

    print("version", jax.__version__, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bad = pair.run(__file__, folder, JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{pair.free_port()}")
        return pair.run(__file__, folder, ends=(0, -signal.SIGKILL), **{KILLED: "1"}) or bad


if __name__ == "__main__":
    sys.exit(main())
