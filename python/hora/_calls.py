"""What the functions of comm.py do: look at the arrays, make the raw call, hand back the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _lib, _world, arrays
from ._grouped import finished, handle_of, names_of
from .arrays import Array
from .call import ANY_SOURCE, NAMED, SIZES, Call, Kind, Op, operator
from .errors import ArgumentError
from .group import Group, group_of
from .handle import Handle, wait_all

_ALLREDUCE = int(Kind.ALLREDUCE)

_Finish = Callable[[int], Any]  # makes the result out of the ticket once the call has ended (0: it ended inline)
_Made = tuple[Call, _Finish]


def root_in(root: int, g: Group, what: str) -> int:
    """root, if the group has it."""
    if not 0 <= root < g.size:
        raise ArgumentError(
            f"{what}: root={root} is not in a group of {g.size}; ranks count within the group, from 0 to {g.size - 1}"
        )
    return root


def _averaged(x: Any) -> Any:
    """The average of whole numbers of Python's is none; an array keeps its element type."""
    return float(x) if type(x) in (int, bool) else x


class _Way:
    """How a call is made: over which group, under which name, for how long, and whether its caller waits."""

    __slots__ = ("async_", "flags", "group", "kind", "name", "timeout")

    def __init__(
        self, kind: Kind, group: Group | None, async_: bool, name: Any, named: bool, timeout: float | None
    ) -> None:
        self.kind, self.group, self.async_, self.name, self.timeout = kind, group_of(group), async_, name, timeout
        self.flags = NAMED if named else 0
        _world.world_info()

    def one(self, call: Call, finish: _Finish, by_ticket: bool = False) -> Any:
        """Make one call; by_ticket says that its result is known by the ticket only."""
        if self.async_ or by_ticket or call.flags & SIZES:
            handle = Handle(self.group.submit(call, awaited=not self.async_), finish)
            return handle if self.async_ else handle.wait()
        self.group.run(call)
        return finish(0)

    def label(self) -> str | None:
        """The name of one call, checked."""
        what = self.kind.name.lower()
        if self.name is None:
            if self.flags & NAMED:
                raise ArgumentError(f"{what}: named=True needs a name, the same on every rank")
        elif not isinstance(self.name, str):
            raise ArgumentError(f"{what}: name must be text, not {self.name!r}")
        return self.name

    def each(self, x: Any, out: Any, make: Callable[[Any, Any, str | None], _Made]) -> Any:
        """Make the call of x, or those of a list as one submission; make(array, its out, its name) says what it is."""
        if not isinstance(x, (list, tuple)):
            return self.one(*make(x, out, self.label()))
        if self.flags & NAMED and self.name is None:
            raise ArgumentError("grouped call: named=True needs a name, the same on every rank")
        made = [make(y, o, n) for y, o, n in zip(x, _outs(out, len(x)), names_of(self.name, len(x)), strict=True)]
        if not made:
            return finished([]) if self.async_ else []
        tickets = self.group.submit_many([call for call, _ in made], awaited=not self.async_)
        parts = [Handle(ticket, finish) for ticket, (_, finish) in zip(tickets, made, strict=True)]
        return handle_of(parts) if self.async_ else wait_all(parts)


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
        raise ArgumentError(
            f"{what}: out has element type {arrays.DTYPE_NAMES[b.dtype]}, x has {arrays.DTYPE_NAMES[a.dtype]}"
        )
    n = 1
    for d in shape:
        n *= d
    if b.count != n:
        raise ArgumentError(f"{what}: out has shape {b.shape}, the result has {shape}")
    return b


def _value(b: Array) -> _Finish:
    return lambda _: b.family.value(b)


def _nothing(_: int) -> None:
    """The result of what gives this rank none."""


# -- reductions


def allreduce(x: Any, op: Any, out: Any, group: Group | None, prescale: float, postscale: float) -> Any:
    """The blocking, ordered, ungrouped case, kept short. What is reduced in place goes a shorter way next time."""
    if isinstance(x, (list, tuple)):
        return reduction(Kind.ALLREDUCE, x, op, 0, out, group, False, None, False, prescale, postscale, None)
    code = operator(op, "allreduce")
    a = arrays.read(_averaged(x) if code == Op.AVERAGE else x)
    g = group_of(group)
    if out is x:
        b = a if a.family.write == a.family.read else arrays.write(x)
    else:
        b = _into(out, x, a, a.shape, "allreduce")
    g.run(
        Call(
            _ALLREDUCE, code, a.dtype, 0, a.ptr, b.ptr, a.count, prescale=prescale, postscale=postscale, shape=a.shape
        ),
        (a, b),
    )
    if out is x:
        arrays.hasten(type(x), a.family)
    return b.family.value(b)


def reduction(
    kind: Kind, x: Any, op: Any, root: int, out: Any, group: Group | None, async_: bool, name: Any, named: bool,
    prescale: float, postscale: float, timeout: float | None,
) -> Any:  # fmt: skip
    what = kind.name.lower()
    number = operator(op, what)
    way = _Way(kind, group, async_, name, named, timeout)
    receives = kind != Kind.REDUCE or way.group.rank == root_in(root, way.group, what)

    def make(x: Any, out: Any, label: str | None) -> _Made:
        a = arrays.read(_averaged(x) if number == Op.AVERAGE else x)
        b = _into(out, x, a, a.shape, what) if receives else a
        call = Call(
            kind, number, a.dtype, root, a.ptr, b.ptr, a.count, prescale=prescale, postscale=postscale, timeout=timeout,
            shape=a.shape, name=label, flags=way.flags, keep=(a, b),
        )  # fmt: skip
        return call, _value(b) if receives else _nothing

    return way.each(x, out, make)


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


def reduce_scatter(
    x: Any, op: Any, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    prescale: float, postscale: float, timeout: float | None,
) -> Any:  # fmt: skip
    number = operator(op, "reduce_scatter")
    way = _Way(Kind.REDUCE_SCATTER, group, async_, name, named, timeout)
    g = way.group

    def make(x: Any, out: Any, label: str | None) -> _Made:
        a = arrays.read(x)
        if not a.shape:
            raise ArgumentError("reduce_scatter: x is a scalar; it needs a first dimension to divide")
        rows = _shares(a.rows, g.size) if sizes is None else _sizes(sizes, g.size, "reduce_scatter")
        if sum(rows) != a.rows:
            raise ArgumentError(f"reduce_scatter: sizes {rows} sum to {sum(rows)}, x has {a.rows} rows")
        b = _into(out, x, a, a.with_rows(rows[g.rank]), "reduce_scatter")
        even = len(set(rows)) == 1
        call = Call(
            way.kind, number, a.dtype, 0, a.ptr, b.ptr, a.count, recv_count=b.count,
            recv_counts=None if even else _elements(rows, a.row), prescale=prescale, postscale=postscale,
            timeout=timeout,
            shape=a.shape, name=label, flags=way.flags, keep=(a, b),
        )  # fmt: skip
        return call, _value(b)

    return way.each(x, out, make)


# -- moves


def broadcast(
    x: Any, root: int, out: Any, group: Group | None, async_: bool, name: Any, named: bool, timeout: float | None
) -> Any:
    way = _Way(Kind.BROADCAST, group, async_, name, named, timeout)
    root_in(root, way.group, "broadcast")

    def make(x: Any, out: Any, label: str | None) -> _Made:
        a = arrays.read(x)
        b = _into(out, x, a, a.shape, "broadcast")
        call = Call(
            way.kind,
            0,
            a.dtype,
            root,
            a.ptr,
            b.ptr,
            a.count,
            timeout=timeout,
            shape=a.shape,
            name=label,
            flags=way.flags,
            keep=(a, b),
        )
        return call, _value(b)

    return way.each(x, out, make)


def _counted(a: Array) -> Array:
    """What is sent of an array whose rows are counted by their elements: of rows without any an element each stands for
    them."""
    return a if a.row else a.new((a.rows,))


def _taken(a: Array, ticket: int) -> tuple[Any, list[int]]:
    """A result whose size the operation found out, and how many rows came from each rank."""
    result = _lib.result(ticket)
    rows = [c // max(1, a.row) for c in result.counts]
    if result.memory is None or not a.row:  # nothing came from anybody, or what stood for its rows
        b = a.new(a.with_rows(sum(rows)))
        return b.family.value(b), rows
    return a.wrap(result.memory, a.with_rows(sum(rows))), rows


def allgather(
    x: Any, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    timeout: float | None,
) -> Any:  # fmt: skip
    way = _Way(Kind.ALLGATHER, group, async_, name, named, timeout)
    g = way.group

    def make(x: Any, out: Any, label: str | None) -> _Made:
        a = arrays.read(x)
        shape = a.shape or (1,)
        if out is None and sizes is None:
            sent = _counted(a)
            call = Call(
                way.kind, 0, a.dtype, 0, sent.ptr, 0, sent.count, recv_count=0, row=a.row, timeout=timeout, shape=shape,
                name=label,
                flags=way.flags | SIZES, keep=sent,
            )  # fmt: skip
            return call, lambda ticket: _taken(a, ticket)[0]
        rows = [a.rows] * g.size if sizes is None else _sizes(sizes, g.size, "allgather")
        if rows[g.rank] != a.rows:
            raise ArgumentError(f"allgather: sizes say that rank {g.rank} has {rows[g.rank]} rows, x has {a.rows}")
        b = _into(out, x, a, a.with_rows(sum(rows)), "allgather")
        call = Call(
            way.kind, 0, a.dtype, 0, a.ptr, b.ptr, a.count, recv_count=b.count,
            recv_counts=None if sizes is None else _elements(rows, a.row), timeout=timeout, shape=shape, name=label,
            flags=way.flags, keep=(a, b),
        )  # fmt: skip
        return call, _value(b)

    return way.each(x, out, make)


def gather(
    x: Any, root: int, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    timeout: float | None,
) -> Any:  # fmt: skip
    way = _Way(Kind.GATHER, group, async_, name, named, timeout)
    g = way.group
    root_in(root, g, "gather")
    a = arrays.read(x)
    rows = [a.rows] * g.size if sizes is None else _sizes(sizes, g.size, "gather")
    if rows[g.rank] != a.rows:
        raise ArgumentError(f"gather: sizes say that rank {g.rank} has {rows[g.rank]} rows, x has {a.rows}")
    b = _into(out, x, a, a.with_rows(sum(rows)), "gather") if g.rank == root else None
    call = Call(
        way.kind, 0, a.dtype, root, a.ptr, b.ptr if b else 0, a.count, recv_count=b.count if b else 0,
        recv_counts=None if sizes is None else _elements(rows, a.row), timeout=timeout,
        shape=a.shape if sizes is None else None, name=way.label(), flags=way.flags, keep=(a, b),
    )  # fmt: skip
    return way.one(call, _value(b) if b else _nothing)


def scatter(
    x: Any, root: int, out: Any, sizes: Sequence[int] | None, group: Group | None, async_: bool, name: Any, named: bool,
    timeout: float | None,
) -> Any:  # fmt: skip
    way = _Way(Kind.SCATTER, group, async_, name, named, timeout)
    g = way.group
    root_in(root, g, "scatter")
    a = None
    rows = None if sizes is None else _sizes(sizes, g.size, "scatter")
    if g.rank == root:
        a = arrays.read(x)
        if not a.shape or (rows is None and a.rows % g.size) or (rows is not None and sum(rows) != a.rows):
            raise ArgumentError(
                f"scatter: {a.rows} rows of x cannot be divided over {g.size} ranks; give sizes that sum to {a.rows}"
            )
        b = _into(out, x, a, a.with_rows(rows[root] if rows else a.rows // g.size), "scatter")
    elif out is not None:
        b = arrays.write(out)
    elif x is not None:
        like = arrays.read(x)
        b = like.new(like.with_rows(rows[g.rank]) if rows else like.shape)
    else:
        raise ArgumentError(
            f"scatter: rank {g.rank} is not the root and has neither out nor an x that gives type and shape of its part"
        )
    call = Call(
        way.kind, 0, b.dtype, root, a.ptr if a else 0, b.ptr, a.count if a else 0, recv_count=b.count,
        send_counts=_elements(rows, b.row) if rows else None, timeout=timeout, name=way.label(), flags=way.flags,
        keep=(a, b),
    )  # fmt: skip
    return way.one(call, _value(b))


def alltoall(
    x: Any, splits: Sequence[int] | None, out: Any, recv_splits: Sequence[int] | None, group: Group | None,
    async_: bool,
    name: Any, named: bool, timeout: float | None,
) -> Any:  # fmt: skip
    way = _Way(Kind.ALLTOALL, group, async_, name, named, timeout)
    n = way.group.size
    a = arrays.read(x)
    if not a.shape:
        raise ArgumentError("alltoall: x is a scalar; it needs a first dimension to divide")

    def call(sent: Array, count: int, b: Array | None, **more: Any) -> Call:
        at, room = (b.ptr, b.count) if b is not None else (0, 0)
        flags = way.flags | (SIZES if b is None else 0)
        return Call(
            way.kind, 0, a.dtype, 0, sent.ptr, at, count, recv_count=room, timeout=timeout, shape=a.shape,
            name=way.label(), flags=flags,
            keep=(sent, b), **more,
        )  # fmt: skip

    if splits is None:
        if a.rows % n:
            raise ArgumentError(f"alltoall: {a.rows} rows of x cannot be divided evenly over {n} ranks; give splits")
        b = _into(out, x, a, a.shape, "alltoall")
        return way.one(call(a, a.count, b), _value(b))
    rows = _sizes(splits, n, "alltoall")
    if sum(rows) > a.rows:
        raise ArgumentError(f"alltoall: splits {rows} sum to {sum(rows)}, x has {a.rows} rows")
    if recv_splits is None and out is None:
        each = max(1, a.row)
        sends = call(_counted(a), sum(rows) * each, None, row=a.row, send_counts=_elements(rows, each))
        return way.one(sends, lambda ticket: _taken(a, ticket))
    if recv_splits is None:
        raise ArgumentError("alltoall: out with splits needs recv_splits, the rows that come from each rank")
    come = _sizes(recv_splits, n, "alltoall")
    b = _into(out, x, a, a.with_rows(sum(come)), "alltoall")
    given = {"send_counts": _elements(rows, a.row), "recv_counts": _elements(come, a.row)}
    return way.one(call(a, sum(rows) * a.row, b, **given), lambda _: (b.family.value(b), come))


def barrier(group: Group | None, async_: bool, timeout: float | None) -> Any:
    way = _Way(Kind.BARRIER, group, async_, None, False, timeout)
    return way.one(Call(way.kind, dtype=0, timeout=timeout), _nothing)


def send(x: Any, to: int, tag: int, group: Group | None, async_: bool, timeout: float | None) -> Any:
    way = _Way(Kind.SEND, group, async_, None, False, timeout)
    a = arrays.read(x)
    root = root_in(to, way.group, "send")
    return way.one(
        Call(way.kind, 0, a.dtype, root, a.ptr, 0, a.count, recv_count=0, timeout=timeout, tag=tag, keep=a), _nothing
    )


def recv(out: Any, source: int | None, tag: int, group: Group | None, async_: bool, timeout: float | None) -> Any:
    way = _Way(Kind.RECV, group, async_, None, False, timeout)
    b = arrays.write(out)
    root = ANY_SOURCE if source is None else root_in(source, way.group, "recv")
    call = Call(way.kind, 0, b.dtype, root, 0, b.ptr, 0, recv_count=b.count, timeout=timeout, tag=tag, keep=b)
    if source is None:
        return way.one(call, lambda ticket: (out, _lib.result(ticket).value), by_ticket=True)
    return way.one(call, lambda _: out)
