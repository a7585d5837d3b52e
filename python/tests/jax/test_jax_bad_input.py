"""hora.jax when programs differ between ranks, a rank raises, is killed or interrupted inside a step: JAX's class, a
sentence, no hang."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAMS = """
import jax, jax.numpy as jnp, numpy as np, optax
import hora, hora.jax as hj

hora.init()
r, n = hora.rank(), hora.size()


def fails(call, *says):
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as e:
        assert all(s in str(e) for s in says), (says, str(e))
        hj.recover()
        assert float(jax.jit(hj.allreduce)(jnp.float32(r + 1))) == n * (n + 1) / 2, "the next operation works"
    else:
        raise AssertionError(f"no error: {says}")


# Programs that differ: another name, another order.
@jax.jit
def differing(x):
    first, second = ("first", "second") if r == 0 else ("second", "first")
    return hj.allreduce(x, name=first) + hj.allreduce(x * 2.0, name=second)


fails(lambda: differing(jnp.ones(3)), "rank 0", "rank 1", "first", "second")


# A branch that one rank alone takes: its call meets the others' next one.
@jax.jit
def branching(x, mine):
    x = jax.lax.cond(mine, lambda x: hj.allreduce(x, name="in the branch"), lambda x: x, x)
    return hj.allreduce(x, name="after it")


for turn in range(2):
    fails(lambda: branching(jnp.ones(3), jnp.asarray(r == 1)), "in the branch", "after it", "rank 0", "rank 1")
assert (np.asarray(branching(jnp.ones(3), jnp.asarray(True))) == n * n).all()
assert (np.asarray(branching(jnp.ones(3), jnp.asarray(False))) == n).all()


@jax.jit
def looping(x, times):
    x = jax.lax.fori_loop(0, times, lambda i, x: hj.allreduce(x, name="in the loop"), x)
    return hj.allreduce(x, name="after the loop")


fails(lambda: looping(jnp.ones(3), 2 + r), "in the loop", "after the loop")



# Without names too: where a call is made is part of what ranks compare.
@jax.jit
def unnamed(x, mine, times):
    x = jax.lax.cond(mine, hj.allreduce, lambda x: x, x)
    x = jax.lax.fori_loop(0, times, lambda i, x: hj.allreduce(x), x)
    return hj.allreduce(x)


fails(lambda: unnamed(jnp.ones(3), jnp.asarray(r == 1), 0), "allreduce in a branch", "rank 1")
fails(lambda: unnamed(jnp.ones(3), jnp.asarray(False), 1 + r), "allreduce in a loop", "rank 1")
assert (np.asarray(unnamed(jnp.ones(3), jnp.asarray(True), 2)) == n**4).all()

whiled = jax.jit(lambda x, k: hj.allreduce(jax.lax.while_loop(lambda c: c[1] < k, lambda c: (hj.allreduce(c[0]), c[1] + 1), (x, 0))[0]))
fails(lambda: whiled(jnp.ones(3), 1 + r), "allreduce in a loop", "rank 1")
assert (np.asarray(whiled(jnp.ones(3), 2)) == n**3).all()

# An optimizer's step in a branch that one rank alone takes does not meet the others' next step.
chained = hj.DistributedOptimizer(optax.sgd(0.1))
slots, step_of = chained.init(jnp.ones(3)), lambda g: chained.update(g, slots, g)[0]
trained = jax.jit(lambda g, mine: step_of(jax.lax.cond(mine, step_of, lambda y: y, g)))
fails(lambda: trained(jnp.ones(3), jnp.asarray(r == 1)), "gradients in a branch", "rank 1")
assert np.allclose(trained(jnp.ones(3), jnp.asarray(True)), 0.01)

# Trees of equal shapes and other keys: what is called "a" here is not added to a "b".
mine = {"w": {"a" if r == 0 else "b": jnp.ones(3), "c": jnp.ones(3)}}
for call in (lambda: hj.allreduce(mine), lambda: jax.jit(hj.allreduce)(mine), lambda: hj.broadcast_pytree(mine),
             lambda: hj.allreduce(mine, name="gradients"), lambda: jax.jit(hj.allreduce)([jnp.ones(3)] if r == 0 else {"a": jnp.ones(3)})):
    fails(call, "rank 0", "rank 1", "['a']")
deep = {f"layer {i}": {"kernel": jnp.ones(2), ("bias" if r == 0 or i < 40 else "scale"): jnp.ones(2)} for i in range(41)}
fails(lambda: hj.allreduce(deep), "layer 0", "rank 1")
grads = {"a" if r == 0 else "b": jnp.ones(3), "c": jnp.ones(3)}
wrapped = hj.DistributedOptimizer(optax.sgd(0.1))
fails(lambda: wrapped.update(grads, wrapped.init(grads), grads), "['a']", "['b']")


class Unprintable:  # a key whose text is another one on each rank
    def __lt__(self, other):
        return False


same = {Unprintable(): jnp.ones(3)}
assert (np.asarray(hj.allreduce(same)[next(iter(same))]) == n).all()

# One rank traces anew: the calls are the same.
step = jax.jit(lambda x, k: hj.allreduce(x * k))
for turn in range(6):
    if r == 1 and turn % 2:
        step.lower(jnp.ones(turn), 1.0).compile()
        jax.clear_caches()
    x = jnp.full(4, float(turn + r))
    assert (np.asarray(step(x, 2.0 if r == 0 else np.float32(2))) == 2 * (n * turn + n * (n - 1) / 2)).all()
for a, b in (("float32", "int32"), ("bfloat16", "float16")):
    fails(lambda: jax.jit(hj.allreduce)(jnp.ones(3, a if r else b)), a, b, "rank 1")
print("well")
"""

RAISES = """
import os, signal, sys
import jax, jax.numpy as jnp
import hora, hora.jax as hj

hora.init()
how = sys.argv[1]
step = jax.jit(lambda x: hj.allreduce(x, "average"))
x = step(jnp.ones(4))
for turn in range(10**9):
    bad = turn == 5 and hora.rank() == 1
    if bad and how == "python":
        raise RuntimeError("no more data")
    if bad and how == "trace":
        jax.jit(lambda x: hj.allreduce(x + jnp.ones(5)))(x)
    if bad and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        x = step(x).block_until_ready()
    except jax.errors.JaxRuntimeError as e:
        assert hora.rank() == 0 and "rank 1" in str(e), e
        print("told of rank 1", flush=True)
        raise
"""

WAITS = """
import sys, time
import jax, jax.numpy as jnp
import hora, hora.jax as hj

hora.init()


@jax.jit
def step(x):
    return jax.lax.fori_loop(0, 10**9 if sys.argv[1] == "loop" else 1, lambda i, x: hj.allreduce(x, "average"), x)


hj.allreduce(jnp.ones(1)).block_until_ready()
print("inside", flush=True)
if hora.rank() == 1 and sys.argv[1] == "wait":
    time.sleep(1000)
else:
    step(jnp.ones(4)).block_until_ready()
"""

MISSING = """
import sys
try:
    import hora.jax
except ImportError as e:
    assert sys.argv[1] in str(e) and "0.4.31 or newer" in str(e), e
    print("well")
"""


def test_programs_that_differ(run):
    assert run(PROGRAMS).stdout.count("well") == 2


@pytest.mark.parametrize("how", ["python", "trace", "kill"])
def test_a_rank_that_fails_inside_its_step(run, how):
    done = run(RAISES, args=(how,), code=137 if how == "kill" else 1, timeout=60)
    cause = {"python": "no more data", "trace": "shapes", "kill": "rank 1"}[how]
    assert cause in done.stderr and "told of rank 1" in done.stdout, done.stdout + done.stderr
    assert "core dumped" not in done.stderr and "terminate called" not in done.stderr


@pytest.mark.parametrize("how", ["wait", "loop"])
def test_ctrl_c_inside_a_compiled_step(launcher, jax_folder, tmp_path, how):
    path = tmp_path / "program.py"
    path.write_text(WAITS)
    env = os.environ | {"HORA_START_TIMEOUT": "120", "JAX_PLATFORMS": "cpu"}
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH", "")]), str(jax_folder)])
    job = subprocess.Popen(
        [launcher, "run", "-np", "2", sys.executable, path, how],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    while said.count("inside") < 2:
        line = job.stdout.readline()
        assert line, said
        said += line
    time.sleep(0.5)
    begun = time.monotonic()
    job.send_signal(signal.SIGINT)
    said += job.communicate(timeout=120)[0]
    took = time.monotonic() - begun
    assert job.returncode in (130, -signal.SIGINT) and took < 30, (job.returncode, took, said)
    assert "terminate called" not in said and "core dumped" not in said, said


def test_jax_is_missing_or_too_old(run, tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "jax.py").write_text("__version__ = '0.4.30'\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'old'}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert "well" in run(MISSING, "-np", "1", args=("JAX 0.4.30 is too old",)).stdout
    (tmp_path / "old" / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')\n")
    assert "well" in run(MISSING, "-np", "1", args=("JAX is not installed",)).stdout


# An operation with a bound, which one rank does not come to: it reads a pipe until the other has heard.
LATE = """
import sys
import jax, jax.numpy as jnp
import hora, hora.jax as hj
from hora.frontend import behind

hora.init()
r, x = hora.rank(), jnp.ones(3)
groups = [hora.Group([0, 1], tag=t) for t in "ab"]
for call in (lambda: hj.allreduce(x, group=groups[0]), jax.jit(lambda: hj.allreduce(x, group=groups[1]))):
    if r == 1:
        assert open(sys.argv[1]).read() == "heard"
        continue
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as e:
        assert all(says in str(e) for says in ("DEADLINE_EXCEEDED", "allreduce", "rank 1")), e
        assert isinstance(behind(e), hora.DeadlineError)
    else:
        raise AssertionError("it went on alone")
    hj.recover()
    with open(sys.argv[1], "w") as f:
        f.write("heard")
print("well", flush=True)
"""


def test_an_operations_bound_has_passed(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = run(LATE, args=(str(tmp_path / "pipe"),), code=1, timeout=60, HORA_OP_TIMEOUT="1")
    assert done.stdout.count("well") == 2 and "rank 0 made 1 call, rank 1 made 0 calls" in done.stderr, done.stderr
