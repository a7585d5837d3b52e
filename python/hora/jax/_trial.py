"""A trial of the older interface, in a process of its own, which it may end: calls keep their order, and failures are
told.

XLA runs what does not depend on each other on several threads where arrays are larger than 512 bytes and steps more
than eight, and such a program this is: whatever in it is not held by its token would go astray.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy

from .. import _bridge
from ..errors import NotInitializedError
from . import _primitive, _xla

CALLS, ROUNDS, TURNS = 12, 5, 10


def _call(x: Any) -> Any:
    """How many calls came before this one."""
    return _primitive.bind(_primitive.COUNT, [x])[0][0]


def _program(x: Any) -> Any:
    """Calls on arrays that are made at various cost, and calls in loops and a branch."""

    @jax.jit
    def several(x: Any) -> Any:
        return jnp.stack([_call(jnp.cumsum(x + k) if k % 3 else x + k) for k in range(CALLS)])

    def one(carry: Any, _: Any) -> Any:
        return carry + 1, jnp.stack([_call(x * 2), _call(x * 3)])

    first = several(x)
    rounds = jax.lax.scan(one, 0, None, length=ROUNDS)[1].ravel()
    branch = jax.lax.cond(x[0] > 0, lambda x: _call(x), lambda x: _call(x + 1), x)
    inner = several(x + 5)
    _, last = jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, _call(x * 5)), (0, jnp.int32(0)))
    return jnp.concatenate([first, rounds, branch[None], inner, last[None], several(x + 1)])


def orders() -> None:
    """Raise unless every call came after those before it."""
    program = jax.jit(_program)
    x = jnp.ones(4096, jnp.int32)
    for turn in range(TURNS):
        got = numpy.asarray(program(x))
        want = numpy.arange(got.size) + turn * got.size
        if not (got == want).all():
            raise AssertionError(f"XLA does not keep to the order of tokens: {got.tolist()}")


def tells() -> None:
    """Raise unless a failure comes with its sentence, and what comes after it works."""
    for _ in range(10):
        try:
            jax.block_until_ready(jax.jit(lambda: _primitive.bind(_primitive.RANK, []))())  # hora.init() was not called
        except RuntimeError as error:
            if not isinstance(_bridge.failure(error), NotInitializedError):
                raise
        else:
            raise AssertionError("XLA does not tell of a call's failure")
        _primitive.recover()


def main() -> None:
    _xla._way = _xla.text
    orders()
    tells()
    orders_again = jax.jit(_call)(jnp.ones(4, jnp.int32))
    if int(orders_again) <= 0:
        raise AssertionError("no call works after a failure")
    print("well")
