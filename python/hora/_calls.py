"""What the functions of comm.py do: look at the arrays, make the raw call, hand back the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _lib, _world, arrays
from ._grouped import many
from .arrays import Array
from .errors import ArgumentError
from .group import ANY_SOURCE, FLAG_NAMED, FLAG_SIZES, Group, Kind, Op, group_of
from .handle import Handle

_ALLREDUCE = int(Kind.ALLREDUCE)
OPS: dict[Any, int] = {o: int(o) for o in Op} | {o.name.lower(): int(o) for o in Op} | {o.name: int(o) for o in Op}
OPS["avg"], OPS["prod"] = int(Op.AVERAGE), int(Op.PRODUCT)

_Call = dict[str, Any]
_Finish = Callable[[int], Any]


def _op(op: Any, kind: Kind) -> int:
    try:
        return OPS[op]
    except (KeyError, TypeError):
        names = ", ".join(o.name.lower() for o in Op)
        raise ArgumentError(f"{kind.name.lower()}: op={op!r} is no operator; use one of {names}") from None


def _root(root: int, g: Group, what: str) -> int:
    if not 0 <= root < g.size:
        raise ArgumentError(f"{what}: root={root} is not in a group of {g.size}; ranks count within the group, from 0 to {g.size - 1}")
    return root


def _averaged(x: Any) -> Any:
    """The average of whole numbers of Python's is none; an array keeps its element type."""
    return float(x) if type(x) in (int, bool) else x


def _go(g: Group, call: _Call, finish: _Finish, async_: bool, named: bool, name: Any) -> Any:
    """Make one call: finish(ticket) makes its result once it has ended (ticket 0: it ended inline)."""
    if name is not None:
        if not isinstance(name, str):
            raise ArgumentError(f"{Kind(call['kind']).name.lower()}: name must be text, not {name!r}")
        call["name"] = name
    if named:
        if name is None:
            raise ArgumentError(f"{Kind(call['kind']).name.lower()}: named=True needs a name, the same on every rank")
        call["flags"] = call.get("flags", 0) | FLAG_NAMED
    if call.get("flags", 0) & FLAG_SIZES or call["kind"] == Kind.RECV and call["root"] == ANY_SOURCE:
        ticket = g.submit_many([call], named=named, awaited=not async_)[0]  # the result is known by its ticket
    elif async_:
        ticket = g.submit_many([call], named=named)[0] if named else g.submit(**call)
    else:
        g.run(**call)
        return finish(0)
    handle = Handle(ticket, finish)
    return handle if async_ else handle.wait()


def _outs(out: Any, n: int) -> Sequence[Any]:
    if out is None:
        return [None] * n
    if not isinstance(out, (list, tuple)) or len(out) != n:
        raise ArgumentError(f"grouped call: out must be a list of {n} arrays, as x is")
    return out


def _into(out: Any, x: Any, a: Array, shape: tuple[int, ...], what: str) -> Array:
    """The array that receives a result of the given shape."""
    if out is None:
        return a.new(shape)
    b = arrays.write(out)
    if b.dtype != a.dtype:
        raise ArgumentError(f"{what}: out has element type {arrays.DTYPE_NAMES[b.dtype]}, x has {arrays.DTYPE_NAMES[a.dtype]}")
    n = 1
    for d in shape:
        n *= d
    if b.count != n:
        raise ArgumentError(f"{what}: out has shape {b.shape}, the result has {shape}")
    return b


def _value(b: Array) -> _Finish:
    return lambda _: b.family.value(b)


# -- reductions


def allreduce(x: Any, op: Any, out: Any, group: Group | None, prescale: float, postscale: float) -> Any:
    """The blocking, ordered, ungrouped case, kept short. What is reduced in place goes a shorter way next time."""
    if isinstance(x, (list, tuple)):
        return reduction(Kind.ALLREDUCE, x, op, 0, out, group, False, None, False, prescale, postscale, None)
    code = _op(op, Kind.ALLREDUCE)
    a = arrays.read(_averaged(x) if code == Op.AVERAGE else x)
    g = group_of(group)
    if out is x:
        b = a if a.family.write == a.family.read else arrays.write(x)
    else:
        b = _into(out, x, a, a.shape, "allreduce")
    g.run(_ALLREDUCE, code, a.dtype, 0, a.ptr, b.ptr, a.count, prescale=prescale, postscale=postscale, shape=a.shape, keep=(a, b))
    if out is x:
        arrays.hasten(type(x), a.family)
    return b.family.value(b)


def _reduction(
    kind: Kind, g: Group, x: Any, op: int, root: int, out: Any, prescale: float, postscale: float, timeout: float | None
) -> tuple[_Call, _Finish]:
    a = arrays.read(_averaged(x) if op == Op.AVERAGE else x)
    receives = kind != Kind.REDUCE or g.rank == root
    b = _into(out, x, a, a.shape, kind.name.lower()) if receives else a
    call = {
        "kind": kind, "op": op, "dtype": a.dtype, "root": root, "send": a.ptr, "recv": b.ptr, "count": a.count,
        "prescale": prescale, "postscale": postscale, "timeout": timeout, "shape": a.shape, "keep": (a, b),
    }  # fmt: skip
    return call, _value(b) if receives else lambda _: None


def reduction(
    kind: Kind, x: Any, op: Any, root: int, out: Any, group: Group | None, async_: bool, name: Any, named: bool,
    prescale: float, postscale: float, timeout: float | None,
) -> Any:  # fmt: skip
    g = group_of(group)
    op = _op(op, kind)
    _world.world_info()
    _root(root, g, kind.name.lower())
    if isinstance(x, (list, tuple)):
        made = [_reduction(kind, g, y, op, root, o, prescale, postscale, timeout) for y, o in zip(x, _outs(out, len(x)), strict=True)]
        return many(g, made, async_, named, name)
    call, finish = _reduction(kind, g, x, op, root, out, prescale, postscale, timeout)
    return _go(g, call, finish, async_, named, name)


def _shares(rows: int, n: int) -> list[int]:
    """rows divided over n ranks: the first ones get one more."""
    return [rows // n + (i < rows % n) for i in range(n)]


def _sizes(sizes: Sequence[int], n: int, what: str) -> list[int]:
    sizes = [int(s) for s in sizes]
    if len(sizes) != n or min(sizes) < 0:
        raise ArgumentError(f"{what}: sizes {sizes} must be {n} numbers of rows, one for each rank")
    return sizes


def _elements(rows: Sequence[int], row: int) -> list[int]:
    return [r * row for r in rows]


def _reduce_scatter(
    g: Group, x: Any, op: int, out: Any, sizes: Sequence[int] | None, prescale: float, postscale: float,
    timeout: float | None,
) -> tuple[_Call, _Finish]:  # fmt: skip
    a = arrays.read(x)
    if not a.shape:
        raise ArgumentError("reduce_scatter: x is a scalar; it needs a first dimension to divide")
    rows = _shares(a.rows, g.size) if sizes is None else _sizes(sizes, g.size, "reduce_scatter")
    if sum(rows) != a.rows:
        raise ArgumentError(f"reduce_scatter: sizes {rows} sum to {sum(rows)}, x has {a.rows} rows")
    b = _into(out, x, a, a.with_rows(rows[g.rank]), "reduce_scatter")
    even = len(set(rows)) == 1
    call = {
        "kind": Kind.REDUCE_SCATTER, "op": op, "dtype": a.dtype, "root": 0, "send": a.ptr, "recv": b.ptr,
        "count": a.count, "recv_count": b.count, "recv_counts": None if even else _elements(rows, a.row),
        "prescale": prescale, "postscale": postscale, "timeout": timeout, "shape": a.shape, "keep": (a, b),
    }  # fmt: skip
    return call, _value(b)


def reduce_scatter(
    x: Any, op: Any, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    prescale: float, postscale: float, timeout: float | None,
) -> Any:  # fmt: skip
    g = group_of(group)
    op = _op(op, Kind.REDUCE_SCATTER)
    _world.world_info()
    if isinstance(x, (list, tuple)):
        made = [_reduce_scatter(g, y, op, o, sizes, prescale, postscale, timeout) for y, o in zip(x, _outs(out, len(x)), strict=True)]
        return many(g, made, async_, named, name)
    call, finish = _reduce_scatter(g, x, op, out, sizes, prescale, postscale, timeout)
    return _go(g, call, finish, async_, named, name)


# -- moves


def _broadcast(g: Group, x: Any, root: int, out: Any, timeout: float | None) -> tuple[_Call, _Finish]:
    a = arrays.read(x)
    b = _into(out, x, a, a.shape, "broadcast")
    call = {
        "kind": Kind.BROADCAST, "op": 0, "dtype": a.dtype, "root": root, "send": a.ptr, "recv": b.ptr, "count": a.count,
        "timeout": timeout, "shape": a.shape, "keep": (a, b),
    }  # fmt: skip
    return call, _value(b)


def broadcast(x: Any, root: int, out: Any, group: Group | None, async_: bool, name: Any, named: bool, timeout: float | None) -> Any:
    g = group_of(group)
    _world.world_info()
    _root(root, g, "broadcast")
    if isinstance(x, (list, tuple)):
        made = [_broadcast(g, y, root, o, timeout) for y, o in zip(x, _outs(out, len(x)), strict=True)]
        return many(g, made, async_, named, name)
    call, finish = _broadcast(g, x, root, out, timeout)
    return _go(g, call, finish, async_, named, name)


def _taken(a: Array, ticket: int) -> tuple[Any, list[int]]:
    """A result whose size the operation found out, and how many rows came from each rank."""
    result = _lib.result(ticket)
    rows = [c // max(1, a.row) for c in result.counts]
    if result.memory is None:  # nothing came from anybody
        b = a.new(a.with_rows(0))
        return b.family.value(b), rows
    return a.wrap(result.memory, a.with_rows(sum(rows))), rows


def _allgather(g: Group, x: Any, out: Any, sizes: Sequence[int] | None, timeout: float | None) -> tuple[_Call, _Finish]:
    a = arrays.read(x)
    call: _Call = {
        "kind": Kind.ALLGATHER, "op": 0, "dtype": a.dtype, "root": 0, "send": a.ptr, "count": a.count, "timeout": timeout,
        "shape": a.shape or (1,),
    }  # fmt: skip
    if out is None and sizes is None:
        call.update(recv=0, recv_count=0, flags=FLAG_SIZES, row=a.row, keep=a)
        return call, lambda ticket: _taken(a, ticket)[0]
    rows = [a.rows] * g.size if sizes is None else _sizes(sizes, g.size, "allgather")
    if rows[g.rank] != a.rows:
        raise ArgumentError(f"allgather: sizes say that rank {g.rank} has {rows[g.rank]} rows, x has {a.rows}")
    b = _into(out, x, a, a.with_rows(sum(rows)), "allgather")
    call.update(recv=b.ptr, recv_count=b.count, keep=(a, b), recv_counts=None if sizes is None else _elements(rows, a.row))
    return call, _value(b)


def allgather(
    x: Any, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    timeout: float | None,
) -> Any:  # fmt: skip
    g = group_of(group)
    _world.world_info()
    if isinstance(x, (list, tuple)):
        made = [_allgather(g, y, o, sizes, timeout) for y, o in zip(x, _outs(out, len(x)), strict=True)]
        return many(g, made, async_, named, name)
    call, finish = _allgather(g, x, out, sizes, timeout)
    return _go(g, call, finish, async_, named, name)


def gather(
    x: Any, root: int, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    timeout: float | None,
) -> Any:  # fmt: skip
    g = group_of(group)
    _world.world_info()
    _root(root, g, "gather")
    a = arrays.read(x)
    rows = [a.rows] * g.size if sizes is None else _sizes(sizes, g.size, "gather")
    if rows[g.rank] != a.rows:
        raise ArgumentError(f"gather: sizes say that rank {g.rank} has {rows[g.rank]} rows, x has {a.rows}")
    b = _into(out, x, a, a.with_rows(sum(rows)), "gather") if g.rank == root else None
    call = {
        "kind": Kind.GATHER, "op": 0, "dtype": a.dtype, "root": root, "send": a.ptr, "recv": b.ptr if b else 0,
        "count": a.count, "recv_count": b.count if b else 0,
        "recv_counts": None if sizes is None else _elements(rows, a.row), "timeout": timeout,
        "shape": a.shape if sizes is None else None, "keep": (a, b),
    }  # fmt: skip
    return _go(g, call, _value(b) if b else lambda _: None, async_, named, name)


def scatter(
    x: Any, root: int, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    timeout: float | None,
) -> Any:  # fmt: skip
    g = group_of(group)
    _world.world_info()
    _root(root, g, "scatter")
    a = None
    rows = None if sizes is None else _sizes(sizes, g.size, "scatter")
    if g.rank == root:
        a = arrays.read(x)
        if not a.shape or (rows is None and a.rows % g.size) or (rows is not None and sum(rows) != a.rows):
            raise ArgumentError(f"scatter: {a.rows} rows of x cannot be divided over {g.size} ranks; give sizes that sum to {a.rows}")
        b = _into(out, x, a, a.with_rows(rows[root] if rows else a.rows // g.size), "scatter")
    elif out is not None:
        b = arrays.write(out)
    elif x is not None:
        like = arrays.read(x)
        b = like.new(like.with_rows(rows[g.rank]) if rows else like.shape)
    else:
        raise ArgumentError(f"scatter: rank {g.rank} is not the root and has neither out nor an x that gives type and shape of its part")
    call = {
        "kind": Kind.SCATTER, "op": 0, "dtype": b.dtype, "root": root, "send": a.ptr if a else 0, "recv": b.ptr,
        "count": a.count if a else 0, "recv_count": b.count,
        "send_counts": _elements(rows, b.row) if rows else None, "timeout": timeout,
        "keep": (a, b),
    }  # fmt: skip
    return _go(g, call, _value(b), async_, named, name)


def alltoall(
    x: Any, splits: Sequence[int] | None, out: Any, recv_splits: Sequence[int] | None, group: Group | None, async_: bool,
    name: Any, named: bool, timeout: float | None,
) -> Any:  # fmt: skip
    g = group_of(group)
    _world.world_info()
    a = arrays.read(x)
    n = g.size
    if not a.shape:
        raise ArgumentError("alltoall: x is a scalar; it needs a first dimension to divide")
    call: _Call = {
        "kind": Kind.ALLTOALL, "op": 0, "dtype": a.dtype, "root": 0, "send": a.ptr, "count": a.count, "timeout": timeout,
        "shape": a.shape,
    }  # fmt: skip
    if splits is None:
        if a.rows % n:
            raise ArgumentError(f"alltoall: {a.rows} rows of x cannot be divided evenly over {n} ranks; give splits")
        b = _into(out, x, a, a.shape, "alltoall")
        call.update(recv=b.ptr, recv_count=b.count, keep=(a, b))
        return _go(g, call, _value(b), async_, named, name)
    rows = _sizes(splits, n, "alltoall")
    if sum(rows) > a.rows:
        raise ArgumentError(f"alltoall: splits {rows} sum to {sum(rows)}, x has {a.rows} rows")
    call.update(send_counts=_elements(rows, a.row), count=sum(rows) * a.row)
    if recv_splits is None and out is None:
        call.update(recv=0, recv_count=0, flags=FLAG_SIZES, row=a.row, keep=a)
        return _go(g, call, lambda ticket: _taken(a, ticket), async_, named, name)
    if recv_splits is None:
        raise ArgumentError("alltoall: out with splits needs recv_splits, the rows that come from each rank")
    come = _sizes(recv_splits, n, "alltoall")
    b = _into(out, x, a, a.with_rows(sum(come)), "alltoall")
    call.update(recv=b.ptr, recv_count=b.count, recv_counts=_elements(come, a.row), keep=(a, b))
    return _go(g, call, lambda _: (b.family.value(b), come), async_, named, name)


def barrier(group: Group | None, async_: bool, timeout: float | None) -> Any:
    g = group_of(group)
    call = {"kind": Kind.BARRIER, "op": 0, "dtype": 0, "root": 0, "send": 0, "recv": 0, "count": 0, "timeout": timeout}
    return _go(g, call, lambda _: None, async_, False, None)


def send(x: Any, to: int, tag: int, group: Group | None, async_: bool, timeout: float | None) -> Any:
    g = group_of(group)
    _world.world_info()
    a = arrays.read(x)
    call = {
        "kind": Kind.SEND, "op": 0, "dtype": a.dtype, "root": _root(to, g, "send"), "send": a.ptr, "recv": 0,
        "count": a.count, "recv_count": 0, "timeout": timeout, "tag": tag, "keep": a,
    }  # fmt: skip
    return _go(g, call, lambda _: None, async_, False, None)


def recv(out: Any, source: int | None, tag: int, group: Group | None, async_: bool, timeout: float | None) -> Any:
    g = group_of(group)
    _world.world_info()
    b = arrays.write(out)
    call = {
        "kind": Kind.RECV, "op": 0, "dtype": b.dtype, "root": ANY_SOURCE if source is None else _root(source, g, "recv"),
        "send": 0, "recv": b.ptr, "count": 0, "recv_count": b.count, "timeout": timeout, "tag": tag, "keep": b,
    }  # fmt: skip
    if source is None:
        return _go(g, call, lambda ticket: (out, _lib.result(ticket).value), async_, False, None)
    return _go(g, call, lambda _: out, async_, False, None)
