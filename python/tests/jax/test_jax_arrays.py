"""JAX's arrays outside compiled programs, in hora's own functions: through DLPack and NumPy."""

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


def test_arrays_outside_compiled_programs(run):
    assert run(PROGRAM).stdout.count("well") == 2
