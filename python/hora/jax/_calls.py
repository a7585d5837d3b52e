"""The collectives on pytrees, inside compiled programs and outside, with their derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy

from .. import _bridge, _site, _world
from .._calls import root_in
from ..call import operator
from ..errors import ArgumentError
from ..group import Group, Kind, Op, group_of
from . import _primitive
from ._primitive import bind

T = TypeVar("T")

_SCALED = (int(Op.SUM), int(Op.AVERAGE))  # what has a derivative


def _float0(x: Any) -> bool:
    return getattr(x, "dtype", None) == jax.dtypes.float0


def _moved(cts: tuple[Any, ...], move: Callable[[list[Any]], list[Any]]) -> tuple[Any, ...]:
    """move applied to the cotangents of what has a derivative; whole numbers have none."""
    real = move([c for c in cts if not _float0(c)]) if not all(map(_float0, cts)) else []
    left = iter(real)
    return tuple(c if _float0(c) else next(left) for c in cts)


@functools.lru_cache(maxsize=4096)
def _call(kind: int, op: int, group: int, root: int, ranks: int, prescale: float, postscale: float, name: str) -> Any:
    """One call as a function of arrays that JAX can differentiate backwards."""
    args: dict[str, Any] = {
        "op": op,
        "group": group,
        "root": root,
        "ranks": ranks,
        "prescale": prescale,
        "postscale": postscale,
    }

    @jax.custom_vjp
    def call(*xs: Any) -> tuple[Any, ...]:
        return tuple(bind(kind, list(xs), name=name, **args))

    def forward(*xs: Any) -> tuple[Any, None]:
        return call(*xs), None

    def backward(_: None, cts: tuple[Any, ...]) -> tuple[Any, ...]:
        back = f"{name} (gradient)"
        if kind == Kind.ALLREDUCE and op in _SCALED:
            return _moved(cts, lambda c: bind(kind, c, name=back, **args))
        if kind == Kind.BROADCAST:
            mine = rank(group)

            def home(c: list[Any]) -> list[Any]:
                sums = bind(Kind.ALLREDUCE, c, name=back, **(args | {"op": int(Op.SUM), "root": 0}))
                return [jnp.where(mine == root, s, jnp.zeros_like(s)) for s in sums]

            return _moved(cts, home)
        if kind == Kind.ALLGATHER:
            return _moved(cts, lambda c: bind(Kind.REDUCE_SCATTER, c, name=back, **(args | {"op": int(Op.SUM)})))
        if kind == Kind.REDUCE_SCATTER and op in _SCALED:
            part = prescale * postscale / (ranks if op == Op.AVERAGE else 1)
            return _moved(
                cts,
                lambda c: [
                    y * jnp.asarray(part, y.dtype) for y in bind(Kind.ALLGATHER, c, name=back, **(args | {"op": 0}))
                ],
            )
        if kind == Kind.ALLTOALL:
            return _moved(cts, lambda c: bind(kind, c, name=back, **args))
        raise ArgumentError(
            f"hora.jax: {Kind(kind).name.lower()} with op={Op(op).name.lower()} has no derivative; use sum or average"
        )

    call.defvjp(forward, backward)
    return call


def _is_key(x: Any) -> bool:
    """Whether it is an array of keys of jax.random, which are none of numbers."""
    return isinstance(x, jax.Array) and bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))


def _leaf(x: Any, kind: Kind) -> Any:
    if _is_key(x):
        if kind != Kind.BROADCAST:
            raise ArgumentError(
                f"{kind.name.lower()}: a leaf of the pytree is a key of jax.random; keys can be broadcast only"
            )
        return jax.random.key_data(x)
    if isinstance(x, (numpy.ndarray, numpy.generic)) and x.dtype.kind in "iu" and x.size:
        most = numpy.iinfo(jax.dtypes.canonicalize_dtype(x.dtype))
        if x.min() < most.min or x.max() > most.max:
            raise ArgumentError(
                f"{kind.name.lower()}: a leaf of the pytree has whole numbers of 64 bits that JAX would cut to 32; "
                'say jax.config.update("jax_enable_x64", True), or hora.allreduce(x) and hora.broadcast(x) for arrays of NumPy'
            )
    if isinstance(x, (jax.Array, numpy.ndarray, numpy.generic, int, float, complex, bool)):
        return jnp.asarray(x)
    raise ArgumentError(
        f"{kind.name.lower()}: a leaf of the pytree is a {type(x).__name__}, not an array or a number; take it out, or hora.broadcast_object"
    )


@functools.lru_cache(maxsize=1024)
def _places(structure: Any) -> str:
    """Where a tree's arrays stand, for the name of its call: trees of other keys are none that can be added. "" for an
    array alone."""
    paths, _ = jax.tree_util.tree_flatten_with_path(
        jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    )
    return _site.places("".join(map(_step, path)) for path, _ in paths)


def _step(key: Any) -> str:
    return _site.step(next((getattr(key, a) for a in ("key", "idx", "name") if hasattr(key, a)), None))


_placed = _site.asked()  # nothing is looked at in calls where nobody asked


def _label(name: str | None, kind: Kind, traced: bool) -> str:
    """The name that a program gave its call; else what it does, whether each rank comes there, and with
    HORA_CHECK_CALLS the line."""
    if name and not isinstance(name, _site.Unnamed):
        return name
    site = _site.site() if _placed else None
    return (name or kind.name.lower()) + (_primitive.within() if traced else "") + (f" {site}" if site else "")


def _tree(kind: Kind, tree: T, group: Group | None, name: str | None, check: Callable[[Any, int], None] | None = None,
          op: int = 0, root: int = 0, prescale: float = 1.0, postscale: float = 1.0) -> T:  # fmt: skip
    _world.world_info()
    g = group_of(group)
    leaves, structure = jax.tree_util.tree_flatten(tree)
    arrays = [_leaf(x, kind) for x in leaves]
    if not arrays:
        return tree
    if check is not None:
        for x in arrays:
            check(x, g.size)
    label = _label(name, kind, _primitive.traced(*arrays)) + _places(structure)
    call = _call(int(kind), op, _bridge.number(group), root, g.size, float(prescale), float(postscale), label)
    results = [
        jax.random.wrap_key_data(y, impl=jax.random.key_impl(x)) if _is_key(x) else y
        for x, y in zip(leaves, call(*arrays), strict=True)
    ]
    return jax.tree_util.tree_unflatten(structure, results)


def allreduce(
    tree: T,
    op: Op | str = Op.SUM,
    *,
    group: Group | None = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    name: str | None = None,
) -> T:
    """Reduce every array of a pytree over all ranks, in one call; every rank gets the result.

    Inside `jax.jit` and outside; `jax.grad` sums the cotangents, `jax.vmap` makes one call of the batch.

    >>> gradients = hora.jax.allreduce(jax.grad(loss)(params, batch), hora.AVERAGE)
    """
    return _tree(
        Kind.ALLREDUCE, tree, group, name, op=operator(op, "allreduce"), prescale=prescale, postscale=postscale
    )


def broadcast(tree: T, root: int = 0, *, group: Group | None = None, name: str | None = None) -> T:
    """Every rank gets root's arrays; on the others the tree gives types and shapes."""
    g = group_of(group)
    root_in(root, g, "broadcast")
    return _tree(Kind.BROADCAST, tree, group, name, root=root)


broadcast_pytree = broadcast


def _has_rows(what: str, divided: bool) -> Callable[[Any, int], None]:
    def check(x: Any, n: int) -> None:
        if not x.ndim:
            raise ArgumentError(f"{what}: x is a scalar; it needs a first dimension")
        if divided and x.shape[0] % n:
            raise ArgumentError(f"{what}: {x.shape[0]} rows of x cannot be divided evenly over {n} ranks; pad them")

    return check


def allgather(tree: T, *, group: Group | None = None, name: str | None = None) -> T:
    """Every rank gets all ranks' arrays, joined along the first dimension; shapes are equal on all ranks."""
    return _tree(Kind.ALLGATHER, tree, group, name, _has_rows("allgather", divided=False))


def reduce_scatter(
    tree: T,
    op: Op | str = Op.SUM,
    *,
    group: Group | None = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    name: str | None = None,
) -> T:
    """Reduce over all ranks; each rank gets its part of the rows."""
    code = operator(op, "reduce_scatter")
    check = _has_rows("reduce_scatter", divided=True)
    return _tree(Kind.REDUCE_SCATTER, tree, group, name, check, op=code, prescale=prescale, postscale=postscale)


def alltoall(tree: T, *, group: Group | None = None, name: str | None = None) -> T:
    """The r-th part of the rows goes to rank r; what comes back are all ranks' parts for this one, in rank order."""
    return _tree(Kind.ALLTOALL, tree, group, name, _has_rows("alltoall", divided=True))


def barrier(group: Group | None = None) -> None:
    """Return, or go on in the compiled program, when all ranks have come here."""
    _world.world_info()
    bind(Kind.BARRIER, [], group=_bridge.number(group), name=_label(None, Kind.BARRIER, traced=True) if _placed else "")


def rank(group: Any = None) -> Any:
    """This process's rank as a value of the program: asked when it runs, not when it is traced."""
    number = group if isinstance(group, int) else _bridge.number(group)
    return bind(_primitive.RANK, [], group=number)[0]


def size(group: Any = None) -> Any:
    """How many ranks there are, as a value of the program."""
    number = group if isinstance(group, int) else _bridge.number(group)
    return bind(_primitive.SIZE, [], group=number)[0]
