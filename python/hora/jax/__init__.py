"""JAX: collectives inside compiled programs, for pytrees, with derivatives.

>>> import hora.jax, optax
>>> hora.init()
>>> params = hora.jax.broadcast_pytree(params)
>>> tx = hora.jax.DistributedOptimizer(optax.adam(1e-3))
>>> @jax.jit
... def step(params, state, batch):
...     gradients = jax.grad(loss)(params, batch)
...     updates, state = tx.update(gradients, state, params)
...     return optax.apply_updates(params, updates), state

Calls run in program order, the same on all ranks, whatever the compiler would like: they carry an ordered effect.
A failure is JAX's own exception with hora's sentence. A program that catches it and goes on calls `hora.jax.recover()`
first; `hora.elastic.run` does so itself.
"""

from .. import _framework

_framework.need("hora.jax", "jax", (0, 4, 31), "JAX", "jax")
from . import _xla  # noqa: E402

_xla.check()

from .. import init, is_initialized, shutdown  # noqa: E402
from ._calls import (  # noqa: E402
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_pytree,
    rank,
    reduce_scatter,
    size,
)
from ._primitive import recover  # noqa: E402
from .optimizer import DistributedOptimizer, average_gradients  # noqa: E402

__all__ = [
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "alltoall",
    "average_gradients",
    "barrier",
    "broadcast",
    "broadcast_pytree",
    "init",
    "is_initialized",
    "rank",
    "recover",
    "reduce_scatter",
    "shutdown",
    "size",
]
