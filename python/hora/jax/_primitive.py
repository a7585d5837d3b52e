"""One primitive for all collectives. Its effect is ordered: XLA runs what carries it in program order, on every rank
alike.

A side effect alone does not order: of two independent calls XLA runs either first, and ranks that choose otherwise add
one's left array to the other's right one. JAX threads a token through all that carries an ordered effect.
"""

from __future__ import annotations

import atexit
import sys
from types import FrameType
from typing import Any

import jax
import numpy
from jax._src import core, dispatch, effects
from jax._src.interpreters import ad, batching, mlir

from .. import _bridge
from ..errors import ArgumentError
from ..group import Kind
from . import _xla

# Beside Kind: who this process is, when the program runs, and how many calls of COUNT came before (see _trial).
RANK, SIZE, COUNT = 100, 101, 102

# What runs element by element, so that a batch is one call with more elements.
_ELEMENTWISE = (int(Kind.ALLREDUCE), int(Kind.BROADCAST), int(Kind.REDUCE))


class HoraEffect(effects.Effect):
    """Talks to the other ranks."""

    __str__ = lambda _: "Hora"  # noqa: E731

    def __repr__(self) -> str:
        """What JAX says where a program that has it is for several devices, which no token can go through."""
        return "hora.jax's collectives, which take one device of each rank: start a rank for each device (hora run -np), on arrays of its own"


_effect = HoraEffect()
for _set in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _set.add_type(HoraEffect)

hora_p = core.Primitive("hora")
hora_p.multiple_results = True


@hora_p.def_effectful_abstract_eval
def _abstract(*avals: Any, hora_call: tuple[int, ...], hora_name: str, hora_ranks: int) -> Any:
    kind = hora_call[0]
    if kind in (RANK, SIZE):
        return [core.ShapedArray((), numpy.dtype("int32"))], {_effect}
    return [core.ShapedArray(_shape(kind, a.shape, hora_ranks), a.dtype) for a in avals], {_effect}


_sized: set[int] = set()  # numbers of ranks that shapes were traced for


def _shape(kind: int, shape: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The shape of a result."""
    if kind in (Kind.ALLGATHER, Kind.REDUCE_SCATTER):
        _sized.add(n)
    if kind == Kind.ALLGATHER:
        return (shape[0] * n, *shape[1:])
    if kind == Kind.REDUCE_SCATTER:
        return (shape[0] // n, *shape[1:])
    return tuple(shape)


def _impl(*args: Any, **params: Any) -> Any:
    return dispatch.apply_primitive(hora_p, *args, **params)


hora_p.def_impl(_impl)


def _lower(ctx: Any, *args: Any, hora_call: tuple[int, ...], hora_name: str, hora_ranks: int) -> Any:
    after, results = _xla.lower(ctx, ctx.tokens_in.get(_effect), args, hora_call, hora_name)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_effect: after})))
    return results


mlir.register_lowering(hora_p, _lower, platform="cpu")


def _no_accelerator(ctx: Any, *args: Any, **params: Any) -> Any:
    raise ArgumentError(
        "hora.jax: compiled collectives run on the CPU; this program is compiled for an accelerator. "
        "Run it with JAX_PLATFORMS=cpu, or call hora.allreduce(numpy.asarray(x)) outside jit"
    )


for _platform in ("cuda", "rocm", "tpu", "METAL"):
    try:
        mlir.register_lowering(hora_p, _no_accelerator, platform=_platform)
    except Exception:  # this jaxlib does not know the platform: nothing can be compiled for it
        pass


def _batch(args: Any, dims: Any, *, hora_call: tuple[int, ...], hora_name: str, hora_ranks: int) -> Any:
    """The whole batch in one call. What divides or joins rows has the batch behind them."""
    front = hora_call[0] in _ELEMENTWISE
    moved = []
    for x, d in zip(args, dims, strict=True):
        moved.append(batching.moveaxis(x, d, 0 if front else x.ndim - 1) if isinstance(d, int) else x)
    out = hora_p.bind(*moved, hora_call=hora_call, hora_name=hora_name, hora_ranks=hora_ranks)
    # An array that is not one of a batch is alike for all of it, and so is what becomes of it.
    return out, [(0 if front else y.ndim - 1) if isinstance(d, int) else d for y, d in zip(out, dims, strict=True)]


batching.primitive_batchers[hora_p] = _batch


def _no_second(primals: Any, tangents: Any, **params: Any) -> Any:
    raise ArgumentError(
        f"hora.jax: {params['hora_name']} has first derivatives, taken backwards, and no second ones; take them of what one rank "
        "computes alone, and reduce the result"
    )


ad.primitive_jvps[hora_p] = _no_second


def recover() -> None:
    """Let the next compiled program run after one that failed.

    JAX hands the token of one program to the next; that of a failed one would make all later ones fail with its error.
    `hora.elastic.run` does this by itself.
    """
    tokens = dispatch.runtime_tokens
    token = tokens.current_tokens.pop(_effect, None)
    if token is not None:
        try:
            token.block_until_ready()
        except Exception:  # the failure that the caller has seen
            tokens.output_runtime_tokens = {}
        else:
            tokens.current_tokens[_effect] = token
    _xla.recovered()


def _trace_anew() -> None:
    """Has programs whose shapes go by the number of ranks traced again for another one."""
    if _sized:
        _sized.clear()
        jax.clear_caches()


_bridge.on_recover(recover)
_bridge.on_resize(_trace_anew)
atexit.register(recover)  # before JAX's own, which would print the failure once more: it was registered earlier


def bind(kind: int, arrays: list[Any], *, op: int = 0, group: int = 0, root: int = 0, ranks: int = 1,
         prescale: float = 1.0, postscale: float = 1.0, name: str = "") -> list[Any]:  # fmt: skip
    """One call on several arrays."""
    call = (int(kind), op, group, root, _bridge.bits(prescale), _bridge.bits(postscale))
    return list(hora_p.bind(*arrays, hora_call=call, hora_name=name, hora_ranks=ranks))


_CONTROL = {"jax._src.lax.control_flow.conditionals": " in a branch", "jax._src.lax.control_flow.loops": " in a loop"}


def within() -> str:
    """Where in a program a call is made that need not run on every rank: part of its name, which ranks compare.

    A branch that one rank alone takes, or a loop that it goes round once more, would else meet the others' next call of
    that shape. A function that is compiled by itself is traced once for all places, so its calls do not know theirs.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in _CONTROL:
            return _CONTROL[module]
        if module == "jax._src.pjit":
            break
        frame = frame.f_back
    return ""


def traced(*xs: Any) -> bool:
    """Whether any of the arrays is being traced."""
    return any(isinstance(x, jax.core.Tracer) for x in xs)
