"""hora.jax on two ranks: compiled programs, derivatives, order, and a training that equals one process."""

import re
from pathlib import Path

import pytest
from guide import scripts

ROOT = Path(__file__).resolve().parents[3]

CALLS = """
import jax, jax.numpy as jnp, numpy as np
import hora, hora.jax as hj

hora.init()
r, n = hora.rank(), hora.size()
total = n * (n + 1) / 2


def equal(a, b):
    assert np.allclose(np.asarray(a, dtype=np.complex128), np.asarray(b, dtype=np.complex128)), (a, b)


# Element types, operators, outside and inside jit.
TYPES = "float32 float16 bfloat16 int8 int16 int32 uint8 uint16 uint32 bool complex64 float8_e4m3fn float8_e5m2".split()


def each_type(types):
    for dtype in types:
        x = jnp.full((2, 3), r + 1).astype(dtype)
        for f in (hj.allreduce, jax.jit(hj.allreduce)):
            y = f(x)
            assert y.dtype == x.dtype == dtype
            equal(y, np.full((2, 3), 1 if dtype == "bool" else total))
        every = np.arange(n * n).reshape(n, n) % (2 if "float8" in dtype else 64)  # sums that have two or three bits
        x = jnp.asarray(every[r]).astype(dtype)
        every = every > 0 if dtype == "bool" else every
        sums = every.any(0) if dtype == "bool" else every.sum(0)
        for f, right in ((hj.allgather, every.ravel()), (lambda x: hj.broadcast(x, 1), every[1]), (hj.alltoall, every[:, r]), (hj.reduce_scatter, sums[r : r + 1])):
            y = jax.jit(f)(x)
            assert y.dtype == dtype
            equal(y, right)


each_type(TYPES)
jax.config.update("jax_enable_x64", True)
each_type(["int64", "uint64", "float64", "complex128"])
jax.config.update("jax_enable_x64", False)
equal(jax.jit(lambda x: hj.allreduce(x, hora.MAX))(jnp.float32(r)), n - 1)
equal(jax.jit(lambda x: hj.allreduce(x, "average", prescale=2, postscale=3))(jnp.full(3, r + 1.0)), np.full(3, 6 * total / n))
equal(hj.allreduce(jnp.zeros((0, 3))), np.zeros((0, 3)))

# A pytree is one call; its structure and types come back.
tree = {"a": jnp.ones(3), "b": [jnp.ones((2, 2), jnp.bfloat16), jnp.arange(3), 2.0], "none": None}
out = jax.jit(hj.allreduce)(tree)
assert jax.tree_util.tree_structure(out) == jax.tree_util.tree_structure(tree)
equal(out["b"][1], n * np.arange(3)); equal(out["b"][2], 2.0 * n)
many = [jnp.full(2, float(i)) for i in range(70)]
for i, y in enumerate(jax.jit(hj.allreduce)(many)):
    equal(y, np.full(2, float(i * n)))

# Moves.
rows = jnp.arange(4.0) + 10 * r
equal(jax.jit(hj.allgather)(rows), np.concatenate([np.arange(4.0) + 10 * q for q in range(n)]))
equal(jax.jit(lambda x: hj.broadcast(x, 1))(rows), np.arange(4.0) + 10)
equal(jax.jit(hj.reduce_scatter)(jnp.arange(2.0 * n)), n * np.arange(2.0 * r, 2.0 * r + 2))
equal(jax.jit(hj.alltoall)(jnp.arange(float(n)) + 10 * r), [r + 10 * q for q in range(n)])
jax.jit(hj.barrier)(); hj.barrier()
assert int(jax.jit(hj.rank)()) == r and int(hj.size()) == n

# Independent calls run in program order, here and in every branch and loop.
f = jax.jit(lambda x: [hj.allreduce(x * k) for k in range(12)])
for turn in range(100):
    for k, y in enumerate(f(jnp.full(3, turn + r, jnp.float32))):
        equal(y, np.full(3, k * (n * turn + n * (n - 1) / 2)))
equal(jax.jit(lambda x: jax.lax.scan(lambda c, _: (hj.allreduce(c, "average") + 1, None), x, None, length=5)[0])(rows), np.arange(4.0) + 5 * n - 5 + 5)
equal(jax.jit(lambda x: jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, hj.allreduce(c[1])), (0, x)))(jnp.ones(2))[1], np.full(2, n**4))
equal(jax.jit(lambda x: jax.lax.cond(x[0] > 0, lambda y: hj.allreduce(y), lambda y: hj.allreduce(2 * y), x))(jnp.ones(2)), np.full(2, n))
equal(jax.jit(hj.allreduce, donate_argnums=0)(jnp.ones(1000)), np.full(1000, n))

# Derivatives: every call's cotangents go the way back.
x = jnp.arange(2.0 * n) + r
loss = {
    "allreduce": lambda x: (hj.allreduce(x) ** 2).sum(),
    "allgather": lambda x: (hj.allgather(x) ** 2).sum(),
    "broadcast": lambda x: (hj.broadcast(x, 0) * 3).sum(),
    "reduce_scatter": lambda x: (hj.reduce_scatter(x, "average") ** 2).sum(),
    "alltoall": lambda x: (hj.alltoall(x) * (r + 1.0)).sum(),
}
all_x = np.stack([np.arange(2.0 * n) + q for q in range(n)])
sums = all_x.sum(0)
want = {
    "allreduce": 2 * n * sums, "allgather": 2 * n * all_x[r], "broadcast": np.full(2 * n, 3.0 * n if r == 0 else 0.0),
    "reduce_scatter": 2 * sums / n / n, "alltoall": np.repeat(np.arange(n) + 1.0, 2),
}
for name, of in loss.items():
    equal(jax.jit(jax.grad(of))(x), want[name])
equal(jax.grad(loss["allreduce"])(x), want["allreduce"])
equal(jax.jit(jax.grad(jax.checkpoint(lambda x: hj.allreduce(jnp.sin(x)).sum())))(x), n * np.cos(all_x[r]))

# A batch is one call.
equal(jax.jit(jax.vmap(hj.allreduce, in_axes=1, out_axes=1))(jnp.ones((3, 2))), np.full((3, 2), n))
b = jnp.arange(12.0).reshape(3, 4) + r
equal(jax.vmap(hj.allgather)(b), np.concatenate([np.arange(12.0).reshape(3, 4) + q for q in range(n)], 1))
some, alike = jax.vmap(lambda a, b: hj.allreduce((a, b)), in_axes=(0, None), out_axes=(0, None))(jnp.ones((3, 2)), jnp.ones(2))
equal(some, np.full((3, 2), n)); equal(alike, np.full(2, n))                # one that is none of the batch

# A group of some of the ranks.
if n > 1:
    g = hora.Group([1])
    if g.included:
        equal(jax.jit(lambda x: hj.allreduce(x, group=g))(jnp.ones(2)), np.ones(2))
print("well", jax.__version__)
"""

TRAINING = """
import sys
import jax, jax.numpy as jnp, numpy as np, optax
import hora, hora.jax as hj

hora.init()
r, n = hora.rank(), hora.size()
rng = np.random.RandomState(0)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64).astype("f")


def loss(p, x, y):
    return ((jnp.tanh(x @ p["w1"]) @ p["w2"] + p["b"] - y) ** 2).mean()


def train(tx, x, y, p):
    @jax.jit
    def step(p, s):
        u, s = tx.update(jax.grad(loss)(p, x, y), s, p)
        return optax.apply_updates(p, u), s
    s = tx.init(p)
    for _ in range(100):
        p, s = step(p, s)
    return p


start = np.random.RandomState(7 + r)                    # each rank begins elsewhere: the broadcast makes them one
p = {"w1": start.randn(5, 8).astype("f"), "w2": start.randn(8).astype("f"), "b": np.float32(r)}
p = hj.broadcast_pytree(p)
together = train(hj.DistributedOptimizer(optax.adam(0.02)), X[r::n], Y[r::n], p)
alone = train(optax.adam(0.02), X, Y, p)
# The mean of the ranks' means adds in another order than one process does.
for k in p:
    assert np.allclose(together[k], alone[k], atol=2e-4), (k, together[k], alone[k])
assert len({np.concatenate([np.ravel(v) for v in w.values()]).tobytes() for w in hora.allgather_object(jax.device_get(together))}) == 1
print("well")
"""


LEAVES = """
import jax, jax.numpy as jnp, numpy as np
import hora, hora.jax as hj

hora.init()
r, n = hora.rank(), hora.size()
# Keys of jax.random are no numbers, and trees of trainings have them.
got = hj.broadcast_pytree({"key": jax.random.key(r), "w": jnp.ones(2) * r, "step": np.int64(r)}, 1)
assert got["key"] == jax.random.key(1) and int(got["step"]) == 1 and float(got["w"][0]) == 1
keys = jax.jit(lambda k: hj.broadcast(k, 1))(jax.random.split(jax.random.key(r), 3))
assert (keys == jax.random.split(jax.random.key(1), 3)).all()
for call, says in (
    (lambda: hj.allreduce(jax.random.key(r)), "keys can be broadcast only"),
    (lambda: hj.broadcast({"step": np.int64(2**40 + 1)}), "cut to 32"),
    (lambda: hj.allreduce(np.array([2**33])), "jax_enable_x64"),
):
    try:
        call()
    except hora.ArgumentError as e:
        assert says in str(e), e
    else:
        raise AssertionError(says)
print("well")
"""


def test_leaves_of_other_kinds(run):
    assert run(LEAVES).stdout.count("well") == 2


def test_calls(run):
    assert run(CALLS).stdout.count("well") == 2


def test_calls_on_three_ranks_over_tcp(run):
    assert run(CALLS, "-np", "3", HORA_LINKS="tcp").stdout.count("well") == 3


def test_a_training_equals_one_process(run):
    assert run(TRAINING).stdout.count("well") == 2


def test_the_example(run):
    said = run((ROOT / "examples/42-jax/train.py").read_text()).stdout
    found = re.search(r"2 ranks, 150 steps .* accuracy ([0-9.]+), weights equal: True", said)
    assert found and float(found[1]) > 0.9, said


# What the guide takes as given: data, a model, a loss.
GIVEN = """
import os
import numpy as np
numbers = np.random.RandomState(0)
x, w = numbers.randn(64, 3).astype("float32"), numbers.randn(3).astype("float32")
y, batch = x @ w, int(os.environ["BATCH"])
params = {"w": np.zeros(3, "float32") + int(os.environ["HORA_RANK"]), "b": np.float32(0)}
loss = lambda params, x, y: ((x @ params["w"] + params["b"] - y) ** 2).mean()
"""
SAY = """
print("got", [float(v).hex() for v in np.ravel(params["w"])])
"""


@pytest.mark.parametrize("number", [0, 1])
def test_the_guides_diffs_change_nothing_that_is_learned(run, number):
    """Two ranks after the diff, and one process before it, with batches twice as large."""
    got = []
    for program, ranks, batch in zip(scripts("From JAX", number), ("1", "2"), ("16", "8"), strict=True):
        said = run(GIVEN + program + SAY, "-np", ranks, BATCH=batch).stdout
        found = [eval(text) for text in re.findall(r"got (.*)", said)]
        assert len(found) == int(ranks) and all(f == found[0] for f in found), said
        got.append([float.fromhex(v) for v in found[0]])
    assert max(abs(a - b) for a, b in zip(*got, strict=True)) < 1e-5 and max(map(abs, got[0])) > 0.1, got
