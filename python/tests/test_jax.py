"""JAX's own arrays on the CPU, through DLPack and NumPy, with the real JAX in an environment of its own."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("HORA_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hora")
JAX = ["jax==0.10.2", "jaxlib==0.10.2", "numpy==2.4.6"]

pytestmark = pytest.mark.skipif(os.environ.get("HORA_SOAK") != "1", reason="make soak: an environment with JAX")

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
import hora
from hora import _dlpack, arrays

hora.init()
r, n = hora.rank(), hora.size()
total = n * (n + 1) / 2
for dtype in ("float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"):
    x = jnp.full((2, 3), r + 1).astype(dtype)
    before = np.asarray(x).copy()
    y = hora.allreduce(x)
    assert isinstance(y, jax.Array) and y.dtype == x.dtype and y.shape == x.shape, (dtype, y)
    assert (np.asarray(y) == np.full((2, 3), 1 if dtype == "bool" else total).astype(y.dtype)).all(), (dtype, y)
    assert (np.asarray(x) == before).all()          # JAX's arrays are never written
    d = _dlpack.DLPack(x)
    assert d.on_host and d.contiguous and d.shape == (2, 3)
    if dtype not in ("bfloat16", "bool"):
        assert d.ptr == arrays.read(x).ptr, "read where it is: nothing is copied"
assert hora.allgather(jnp.full((r + 1, 2), r)).shape == (n * (n + 1) // 2, 2)
assert hora.broadcast(jnp.arange(4.0) + r).tolist() == [0, 1, 2, 3]
assert hora.reduce_scatter(jnp.ones(2 * n)).tolist() == [n, n]
assert hora.alltoall(jnp.arange(float(n))).tolist() == [r] * n
a, b = hora.allreduce([jnp.ones(2), jnp.ones(3)])
assert a.tolist() == [n] * 2 and b.tolist() == [n] * 3
h = hora.allreduce(jnp.ones(1000), async_=True)
assert isinstance(h.wait(), jax.Array) and float(h.wait().sum()) == 1000 * n
out = np.empty((2, 3), dtype="float32")
hora.allreduce(jnp.ones((2, 3)), out=out)
assert (out == n).all()


class Foreign:                                      # anything else that speaks DLPack, JAX's capsules inside
    def __init__(self, x): self.x = x
    def __dlpack__(self, **how): return self.x.__dlpack__(**how)
    def __dlpack_device__(self): return self.x.__dlpack_device__()


assert hora.allreduce(Foreign(jnp.ones(3))).tolist() == [n] * 3
for call, says in (
    (lambda: hora.allreduce(jnp.ones(3), out=jnp.ones(3)), "cannot be changed"),
    (lambda: (lambda x: hora.allreduce(x, out=x))(jnp.ones(3)), "cannot be changed"),
    (lambda: jax.jit(hora.allreduce)(jnp.ones(3)), "traced by jax.jit"),
):
    try:
        call()
    except hora.ArgumentError as e:
        assert says in str(e), e
    else:
        raise AssertionError(says)
weights = jnp.zeros(4)                              # a small training: replicas stay equal
for step in range(5):
    gradient = jax.grad(lambda w: ((w - r) ** 2).sum())(weights)
    weights = weights - 0.1 * hora.allreduce(gradient, hora.AVERAGE)
assert len({w.tobytes() for w in map(np.asarray, hora.allgather_object(np.asarray(weights)))}) == 1
print("well", jax.__version__)
"""


@pytest.fixture(scope="module")
def python():
    """An interpreter with JAX; the environment is kept in the cache."""
    home = CACHE / f"venv-jax-{'-'.join(JAX)}-{sys.version_info.major}.{sys.version_info.minor}"
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin/pip", "install", "-q", "--disable-pip-version-check", *JAX], check=True)
        (home / "complete").touch()
    return home / "bin/python"


def test_jax(python, launcher, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = os.environ | {"HORA_START_TIMEOUT": "240"}  # the first import of JAX compiles much
    done = subprocess.run([launcher, "run", "-np", "2", python, program], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("well") == 2, done.stdout + done.stderr
