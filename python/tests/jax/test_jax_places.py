"""HORA_CHECK_CALLS with hora.jax, eager and compiled: ranks compare where the program makes its calls."""

PLACES = """
import jax, jax.numpy as jnp, numpy as np, optax
import hora, hora.jax as hj

hora.init()
r, n = hora.rank(), hora.size()
x = jnp.ones(2)
at = {line.split("# @")[1].strip(): f"program.py:{i}" for i, line in enumerate(open(__file__), 1) if "# @" in line}


def fails(call, *says):
    try:
        jax.block_until_ready(call())
    except Exception as e:
        assert all(s in str(e) for s in says), (says, str(e))
        hj.recover()
        assert float(hj.allreduce(jnp.float32(1))) == n, "the next operation works"
    else:
        raise AssertionError(f"two places went together: {says}")


def eager(here):
    if here:
        return hj.allreduce(x)                          # @a
    return hj.allreduce(x)                              # @b


@jax.jit
def there(x):
    return hj.allgather({"a": x}), hj.barrier()         # @c


@jax.jit
def elsewhere(x):
    return hj.allgather({"a": x}), hj.barrier()         # @d


tx = hj.DistributedOptimizer(optax.sgd(0.1))
state = tx.init(x)
one = jax.jit(lambda g: tx.update(g, state, x)[0])      # @e
other = jax.jit(lambda g: tx.update(g, state, x)[0])    # @f


def through(x, here):
    if here:
        return hj.allreduce(x * x).sum()                # @g
    return hj.allreduce(x * x).sum()                    # @h


def waits(here):
    if here:
        return hj.barrier()                             # @i
    return hj.barrier()                                 # @j


looped = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: hj.allreduce(c) / n, x))
for turn in range(3):                                   # one place on all ranks, also where one traces anew
    if r == 1 and turn:
        jax.clear_caches()
    assert (eager(True) == n).all() and there(x)[0]["a"].shape == (2 * n,) and (looped(x) == 1).all()
    assert np.allclose(one(x), -0.1) and jax.grad(through)(x, True).shape == (2,)
fails(lambda: eager(r == 0), at["a"], at["b"], "rank 0", "rank 1")
fails(lambda: (there if r == 0 else elsewhere)(x), at["c"], at["d"], "['a']")
fails(lambda: (one if r == 0 else other)(x), "gradients at " + at["e"], "gradients at " + at["f"])
fails(lambda: jax.grad(through)(x, r == 0), at["g"], at["h"])
fails(lambda: (waits(r == 0), jax.effects_barrier(), eager(True)), at["i"], at["j"])
print("well")
"""


def test_places(run):
    assert run(PLACES, HORA_CHECK_CALLS="1").stdout.count("well") == 2
