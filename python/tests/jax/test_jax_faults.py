"""hora.jax when ranks differ, are lost, or ask for what cannot be: one sentence, in JAX's own class, and on it goes."""

import re

WRONG = """
import jax, jax.numpy as jnp, numpy as np
import hora, hora.jax as hj

hora.init()
r, n = hora.rank(), hora.size()


def fails(call, *says):
    try:
        jax.block_until_ready(call())
    except Exception as e:
        assert all(s in str(e) for s in says), (says, str(e))
        hj.recover()
        assert float(jax.jit(hj.allreduce)(jnp.float32(1))) == n, "the next operation works"
        return e
    raise AssertionError(f"no error: {says}")


e = fails(lambda: jax.jit(hj.allreduce)(jnp.ones(3 + r)), "[3] on rank 0 and [4] on rank 1")
assert isinstance(e, jax.errors.JaxRuntimeError)
fails(lambda: jax.jit(hj.allreduce)(jnp.ones(3, "float32" if r else "int32")), "float32", "int32", "rank 1")
fails(lambda: (hj.allreduce if r else hj.allgather)(jnp.ones(3)), "rank 0", "rank 1")
fails(lambda: hj.allreduce([jnp.ones(2)] * (2 + r)), "rank 0", "rank 1")        # a pytree of another length
# From inside a loop that has more to come: the program ends, and so do its peers'.
fails(lambda: jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: hj.allreduce(c), x))(jnp.ones(2 + r)), "rank 1")
# An asynchronous failure is told when its result is asked for, once.
y = jax.jit(lambda x: hj.allreduce(x @ x))(jnp.ones((300 + r, 300 + r)))
fails(lambda: y, "rank 1")

# What this rank alone can know is refused before anything is sent.
for call, says in (
    (lambda: hj.allreduce("text"), "a leaf of the pytree is a str"),
    (lambda: hj.allreduce(jnp.ones(2), "median"), "no operator"),
    (lambda: hj.broadcast(jnp.ones(2), 7), "root=7"),
    (lambda: hj.reduce_scatter(jnp.ones(2 * n + 1)), "cannot be divided"),
    (lambda: hj.allgather(jnp.float32(1)), "scalar"),
    (lambda: jax.grad(lambda x: hj.allreduce(x, "max").sum())(jnp.ones(2)), "no derivative"),
    (lambda: hj.DistributedOptimizer(3), "no optax"),
):
    try:
        call()
    except hora.ArgumentError as e:
        assert says in str(e), e
    else:
        raise AssertionError(says)
try:
    jax.jvp(hj.allreduce, (jnp.ones(2),), (jnp.ones(2),))
except TypeError as e:
    assert "forward-mode" in str(e), e
print("well")
"""

RAISES = """
import jax, jax.numpy as jnp
import hora, hora.jax as hj

hora.init()
step = jax.jit(lambda x: hj.allreduce(x, "average"))
x = step(jnp.ones(4))
if hora.rank() == 1:
    raise RuntimeError("no more data")
for _ in range(10**9):
    x = step(x).block_until_ready()
"""

KILLED = """
import os, signal, sys, time
import jax, jax.numpy as jnp, numpy as np, optax
import hora, hora.elastic, hora.jax as hj

hora.init()
rng = np.random.RandomState(0)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64).astype("f")
tx = hj.DistributedOptimizer(optax.sgd(0.05))


@jax.jit
def step(p, s, x, y):
    l, g = jax.value_and_grad(lambda p: ((x @ p - y) ** 2).mean())(p)
    u, s = tx.update(g, s, p)
    return optax.apply_updates(p, u), s, hj.allreduce(l, "average")


p = jnp.zeros(5)
state = hora.elastic.State(p=p, s=tx.init(p), step=0)


@hora.elastic.run
def train(state):
    while state.step < 40:
        r, n = hora.rank(), hora.size()
        state.p, state.s, l = step(state.p, state.s, X[r::n], Y[r::n])
        if state.step == 20 and r == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        l.block_until_ready()
        state.step += 1
        state.commit()


train(state)
# As one process would have trained, whoever was there: batches are equal parts of the same rows.
q = jnp.zeros(5)
for _ in range(40):
    q = q - 0.05 * jax.grad(lambda q: ((X @ q - Y) ** 2).mean())(q)
assert np.allclose(q, state.p, atol=1e-4), (q, state.p)
print("well", hora.size())
"""


# What hora.jax does not do, refused in a sentence on each rank alone, and on it goes.
REFUSED = """
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import hora, hora.jax as hj

hora.init()
n = hora.size()


def refused(call, cls, *says):
    try:
        jax.block_until_ready(call())
    except cls as e:
        assert all(s in str(e) for s in says), (says, str(e))
        assert "object at 0x" not in str(e), e
        assert float(jax.jit(hj.allreduce)(jnp.float32(1))) == n, "the next operation works, without recover()"
    else:
        raise AssertionError(f"no error: {says}")


def f(x):
    return (hj.allreduce(x, name="weights") ** 2).sum()


second, x = jax.grad(lambda x: jax.grad(f)(x).sum()), jnp.ones(2)
assert (np.asarray(jax.grad(f)(x)) == 2 * n * n).all()
for call in (second, jax.jit(second), jax.jacrev(jax.jacrev(f))):
    refused(lambda: call(x), hora.ArgumentError, "weights (gradient)", "second")
refused(lambda: jax.hessian(f)(x), TypeError, "forward-mode")
refused(lambda: jax.jvp(f, (x,), (x,)), TypeError, "forward-mode")

# Several devices of one process; one that is not the first is as good as the first.
assert jax.local_device_count() == 2
mesh = Mesh(np.array(jax.devices()), ("d",))
spread = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec("d")))
calls = [lambda: hj.allreduce(spread), lambda: jax.jit(hj.allreduce)(spread), lambda: jax.pmap(hj.allreduce)(jnp.ones((2, 3)))]
if hasattr(jax, "shard_map"):
    parts = {"mesh": mesh, "in_specs": PartitionSpec("d"), "out_specs": PartitionSpec("d")}
    calls.append(lambda: jax.jit(jax.shard_map(hj.allreduce, **parts))(spread))
for call in calls:
    refused(call, ValueError, "more than 1 device", "start a rank for each device")

# A program for an accelerator, which can be made here though there is none to run it.
for of in (hj.allreduce, hj.allgather, hj.rank):
    traced = jax.jit(of).trace(*([] if of is hj.rank else [jnp.ones(2)]))
    assert traced.lower(lowering_platforms=("cpu",)) is not None
    for platform in ("cuda", "tpu"):
        refused(lambda: traced.lower(lowering_platforms=(platform,)), hora.ArgumentError, "run on the CPU", "JAX_PLATFORMS=cpu")
there = jax.device_put(jnp.ones(2), jax.devices()[1])
assert (np.asarray(jax.jit(hj.allreduce)(there)) == n).all()
print("well")
"""


def test_what_is_not_done_is_refused(run):
    assert run(REFUSED).stdout.count("well") == 2


def test_wrong_calls(run):
    assert run(WRONG).stdout.count("well") == 2


def test_a_rank_that_raises_ends_the_others(run):
    done = run(RAISES, code=1, timeout=60)
    assert "RuntimeError: no more data" in done.stderr.splitlines()[-1] or "no more data" in done.stderr


def test_a_killed_rank_is_replaced(run, tmp_path):
    done = run(KILLED, "-np", "2", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert done.stdout.count("well 2") == 2
    assert re.search(r"recovered in [0-9.]+ s", done.stderr), done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_the_others_go_on(run, tmp_path):
    done = run(KILLED, "-np", "2", "--on-loss", "continue", "--min-np", "1", args=(str(tmp_path / "mark"),))
    assert done.stdout.count("well 1") == 1


GATHERS = """
import os, signal
import jax, jax.numpy as jnp, numpy as np
import hora, hora.elastic, hora.jax as hj

hora.init()
gather = jax.jit(hj.allgather)
scatter = jax.jit(lambda x: hj.reduce_scatter(x, "average"))
back = jax.jit(jax.grad(lambda x: hj.reduce_scatter(x, "average").sum()))
state = hora.elastic.State(step=0)


@hora.elastic.run
def train(state):
    while state.step < 6:
        r, n = hora.rank(), hora.size()
        if state.step == 3 and r == 1 and n == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        x = jnp.arange(4.0) + r
        assert np.array_equal(gather(x), np.concatenate([np.arange(4.0) + k for k in range(n)]))
        assert np.array_equal(scatter(x), np.split(np.arange(4.0) + (n - 1) / 2, n)[r])
        assert np.array_equal(back(x), np.full(4, 1 / n))
        state.step += 1
        state.commit()


train(state)
print("well", hora.size())
"""


def test_what_goes_by_the_number_of_ranks_is_traced_anew(run):
    done = run(GATHERS, "-np", "2", "--on-loss", "continue", "--min-np", "1")
    assert done.stdout.count("well 1") == 1, done.stdout + done.stderr


# A program is compiled once; its group is made again in every epoch, and nothing else names it.
GROUPS = """
import os, signal, sys
import jax, jax.numpy as jnp
import hora, hora.elastic, hora.jax as hj

hora.init()
state = hora.elastic.State(step=0)
held, traced = {}, []


@jax.jit
def step(x):
    traced.append(1)
    return hj.allreduce(x, group=held["group"])


@hora.elastic.run
def train(state):
    held["group"] = hora.Group([0, 1])
    while state.step < 8:
        if state.step == 4 and hora.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if hora.rank() < 2:
            assert float(step(jnp.float32(hora.rank() + 1))) == 3
        hora.barrier()
        state.step += 1
        state.commit()


train(state)
assert len(traced) == (hora.rank() < 2), traced
print("well")
"""


def test_a_program_goes_on_with_a_group_that_is_made_again(run, tmp_path):
    done = run(GROUPS, "-np", "3", "--restarts", "1", args=(str(tmp_path / "killed"),))
    assert done.stdout.count("well") == 3 and (tmp_path / "killed").exists(), done.stdout + done.stderr


def test_headers_of_other_releases():
    """The table's order is read, not known: an older one and one that says nothing."""
    import ast
    from pathlib import Path

    source = (Path(__file__).resolve().parents[2] / "hora" / "jax" / "_xla.py").read_text()
    tree = ast.parse(source)
    body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "layout"]
    from hora.errors import VersionError

    space = {"re": re, "VersionError": VersionError, "jaxlib": type("jaxlib", (), {"__version__": "9"})}
    exec(compile(ast.Module(body=body, type_ignores=[]), "layout", "exec"), space)
    older = "#define XLA_FFI_API_MINOR 1\nstruct XLA_FFI_Api {\n size_t x;\n _XLA_FFI_API_STRUCT_FIELD(XLA_FFI_New);\n _XLA_FFI_API_STRUCT_FIELD(XLA_FFI_Error_Create);\n};"
    assert space["layout"](older) == (1, 1)
    try:
        space["layout"]("nothing")
    except VersionError as e:
        assert "newer than this hora" in str(e)
    else:
        raise AssertionError
