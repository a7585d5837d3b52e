"""The opcodes of a pickle, read into names, calls and plain values: nothing is imported and nothing called."""

from __future__ import annotations

import pickletools
from typing import Any

__all__ = ["MOST_BYTES", "Name", "PickleRefused", "Thing", "parse"]

MOST_BYTES = 64 << 20
MOST_STEPS = 5_000_000


class PickleRefused(ValueError):
    """What a pickle says is not what a schema or an index is made of."""


class Name:
    """A class or function that a pickle names."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Thing:
    """An object of a class that a pickle describes: its arguments, and its state."""

    __slots__ = ("args", "items", "kind", "state")

    def __init__(self, kind: Name, args: tuple[Any, ...]) -> None:
        self.kind, self.args = kind, args
        self.state: Any = None
        self.items: list[Any] = []


_MARK = object()


def parse(data: bytes) -> Any:
    """A pickle's value made of plain values, Names and Things."""
    if len(data) > MOST_BYTES:
        raise PickleRefused(f"it has {len(data)} bytes, more than a schema or an index has")
    machine = _Machine()
    try:
        for steps, (op, arg, _) in enumerate(pickletools.genops(data)):
            if steps > MOST_STEPS:
                raise PickleRefused("it has more steps than a schema or an index takes")
            if op.name == "STOP":
                return machine.pop()
            step = getattr(machine, "op_" + op.name, None)
            if step is not None:
                step(arg)
            elif op.name in _CONSTANTS:
                machine.push(_CONSTANTS[op.name])
            elif op.name in _VALUES:
                machine.push(arg)
            elif op.name not in ("PROTO", "FRAME"):
                raise PickleRefused(f"it has the step {op.name}, which no schema needs")
    except PickleRefused:
        raise
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        UnicodeError,
        MemoryError,
        RecursionError,
    ) as e:
        raise PickleRefused(f"it is damaged: {type(e).__name__}: {e}") from None
    raise PickleRefused("it is cut")


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
}  # fmt: skip


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.depths: dict[int, int] = {}  # of tuples by id: a deep one must not be hashed

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value is due")
        return value

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def op_MARK(self, _: Any) -> None:
        self.push(_MARK)

    def op_POP(self, _: Any) -> None:
        self.stack.pop()

    def op_POP_MARK(self, _: Any) -> None:
        self.since_mark()

    def op_DUP(self, _: Any) -> None:
        self.push(self.stack[-1])

    def op_MEMOIZE(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def op_PUT(self, key: Any) -> None:
        self.memo[int(key)] = self.stack[-1]

    op_BINPUT = op_LONG_BINPUT = op_PUT

    def op_GET(self, key: Any) -> None:
        self.push(self.memo[int(key)])

    op_BINGET = op_LONG_BINGET = op_GET

    def op_EMPTY_LIST(self, _: Any) -> None:
        self.push([])

    def op_EMPTY_DICT(self, _: Any) -> None:
        self.push({})

    def op_EMPTY_SET(self, _: Any) -> None:
        self.push(set())

    def op_LIST(self, _: Any) -> None:
        self.push(self.since_mark())

    def op_TUPLE(self, _: Any) -> None:
        self.push(self._deep(tuple(self.since_mark())))

    def _deep(self, made: Any) -> Any:
        depth = 1 + max((self.depths.get(id(v), 0) for v in made if isinstance(v, (tuple, frozenset))), default=0)
        if depth > 100:
            raise ValueError("tuples nested deeper than a schema's are")
        self.depths[id(made)] = depth
        return made

    def op_DICT(self, _: Any) -> None:
        items = self.since_mark()
        self.push(dict(zip(items[::2], items[1::2], strict=True)))

    def op_FROZENSET(self, _: Any) -> None:
        self.push(self._deep(frozenset(self.since_mark())))

    def _tuple(self, n: int) -> None:
        if any(v is _MARK for v in self.stack[-n:]):
            raise ValueError("a mark in a tuple")
        self.stack[-n:] = [self._deep(tuple(self.stack[-n:]))]

    def op_TUPLE1(self, _: Any) -> None:
        self._tuple(1)

    def op_TUPLE2(self, _: Any) -> None:
        self._tuple(2)

    def op_TUPLE3(self, _: Any) -> None:
        self._tuple(3)

    def _add(self, items: list[Any]) -> None:
        to = self.stack[-1]
        if isinstance(to, Thing):
            to.items += items
        elif isinstance(to, set):
            to.update(items)
        elif isinstance(to, list):
            to += items
        else:
            raise ValueError("items for what is no list")

    def op_APPEND(self, _: Any) -> None:
        self._add([self.pop()])

    def op_APPENDS(self, _: Any) -> None:
        self._add(self.since_mark())

    op_ADDITEMS = op_APPENDS

    def _set(self, items: list[Any]) -> None:
        to = self.stack[-1]
        pairs = list(zip(items[::2], items[1::2], strict=True))
        if isinstance(to, Thing):
            to.items += pairs
        elif isinstance(to, dict):
            to.update(pairs)
        else:
            raise ValueError("items for what is no dict")

    def op_SETITEM(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._set([key, value])

    def op_SETITEMS(self, _: Any) -> None:
        self._set(self.since_mark())

    def op_GLOBAL(self, arg: str) -> None:
        module, name = arg.split(" ", 1)
        self.push(Name(module, name))

    def op_STACK_GLOBAL(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a name that is no text")
        self.push(Name(module, name))

    def _make(self, kind: Any, args: Any) -> None:
        if not isinstance(kind, Name) or not isinstance(args, tuple):
            raise ValueError("a call of what is no name")
        self.push(Thing(kind, args))

    def op_REDUCE(self, _: Any) -> None:
        args, kind = self.pop(), self.pop()
        self._make(kind, args)

    op_NEWOBJ = op_REDUCE

    def op_NEWOBJ_EX(self, _: Any) -> None:
        kwargs, args, kind = self.pop(), self.pop(), self.pop()
        if kwargs:
            raise ValueError("a call with names")
        self._make(kind, args)

    def op_BUILD(self, _: Any) -> None:
        state = self.pop()
        to = self.stack[-1]
        if not isinstance(to, Thing) or to.state is not None:
            raise ValueError("a state for what has none")
        to.state = state
