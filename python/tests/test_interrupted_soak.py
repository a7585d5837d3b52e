"""Exceptions that a signal handler raises at random moments of many kinds of call: no wrong result, no crash.

Rank 0 is interrupted. The others do what it tells them over a socket beside hora, hold back until it has been
interrupted or come at a random moment, and check their own results. Whether rank 0's operation was under way when the
exception came is known from the calls into the library, so that it can make a call that never was, and its own result
is checked too.
"""

import itertools
import json
import os
import random
import secrets
import signal
import socket
import time

import numpy as np
import pytest

import hora
from hora import _lib
from hora.group import Call, Kind

COUNT = 10_000 if os.environ.get("HORA_SOAK") else 1_000  # exceptions, over both worlds


class Interrupted(Exception):
    """What the handler here raises."""


def value(turn: int, rank: int) -> float:
    return float(turn % 1000 * 10 + rank)


def full(turn: int, rank: int, n: int) -> np.ndarray:
    return np.full(n, value(turn, rank))


class Turn:
    """One call of every rank, and what it gives."""

    def __init__(self, kind: str, turn: int, n: int) -> None:
        self.kind, self.turn, self.n = kind, turn, n
        self.rank, self.size = hora.rank(), hora.size()
        self.total = sum(value(turn, r) for r in range(self.size))
        self.all = np.concatenate([full(turn, r, n) for r in range(self.size)])
        self.handle = None  # of an asynchronous call, which can be waited for again
        self.kept = None  # memory of the test's own that receives the result

    def x(self, parts: int = 1) -> np.ndarray:
        return full(self.turn, self.rank, self.n * parts)

    def call(self):
        """Make the call and answer its result."""
        return getattr(self, "do_" + self.kind.replace(" ", "_"))()

    def check(self, got) -> None:
        want = getattr(self, "is_" + self.kind.replace(" ", "_"), lambda: self.total)()
        if want is not None:
            for g in got if isinstance(got, list) else [got]:
                g = np.asarray(g)
                if g.size == 0 or not (g == want).all():
                    raise AssertionError(
                        f"WRONG: turn {self.turn}, {self.kind} of {self.n} on rank {self.rank}: {np.unique(g)[:5]}, not {want}"
                    )

    # -- the kinds of call

    def do_allreduce(self):
        return hora.allreduce(self.x())

    def do_named(self):
        return hora.allreduce(self.x(), name=f"named {self.turn}", named=True)

    def do_same_name(self):
        return hora.allreduce(self.x(), name="same", named=True)

    def do_in_place(self):
        self.kept = x = self.x()
        return hora.allreduce(x, out=x)

    def do_out(self):
        self.kept = np.zeros(self.n)
        return hora.allreduce(self.x(), out=self.kept)

    def do_grouped(self):
        return hora.allreduce([self.x() for _ in range(3)])

    def do_grouped_named(self):
        return hora.allreduce([self.x() for _ in range(3)], name=f"group {self.turn}", named=True)

    def do_reduce(self):
        return hora.reduce(self.x(), root=self.size - 1)

    def is_reduce(self):
        return self.total if self.rank == self.size - 1 else None

    def do_receive_broadcast(self):
        return hora.broadcast(self.x(), root=1)

    def is_receive_broadcast(self):
        return value(self.turn, 1)

    def do_send_broadcast(self):
        return hora.broadcast(self.x(), root=0)

    def is_send_broadcast(self):
        return value(self.turn, 0)

    def do_allgather(self):
        return hora.allgather(self.x())  # sizes are found out: the library makes the result

    def is_allgather(self):
        return self.all

    def do_allgather_out(self):
        return hora.allgather(self.x(), out=np.zeros(self.n * self.size))

    is_allgather_out = is_allgather

    def do_allgather_named(self):
        return hora.allgather(self.x(), name=f"gathered {self.turn}", named=True)

    is_allgather_named = is_allgather

    def do_gather(self):
        return hora.gather(self.x(), root=0)

    def is_gather(self):
        return self.all if self.rank == 0 else None

    def do_scatter(self):
        return hora.scatter(self.x(self.size) if self.rank == 1 else None, root=1, out=np.zeros(self.n))

    is_scatter = is_receive_broadcast

    def do_reduce_scatter(self):
        return hora.reduce_scatter(self.x(self.size))

    def do_alltoall(self):
        return hora.alltoall(self.x(self.size))

    is_alltoall = is_allgather

    def do_alltoall_splits(self):
        return hora.alltoall(self.x(self.size), splits=[self.n] * self.size)[0]

    is_alltoall_splits = is_allgather

    def do_barrier(self):
        return hora.barrier()

    def is_barrier(self):
        return None

    def do_receive(self):
        if self.rank == 0:
            return hora.recv(np.zeros(self.n), source=1, tag=7)
        return hora.send(self.x(), to=0, tag=7) if self.rank == 1 else None

    def is_receive(self):
        return value(self.turn, 1) if self.rank == 0 else None

    def do_receive_any(self):
        if self.rank == 0:
            return hora.recv(np.zeros(self.n), tag=8)[0]
        return hora.send(self.x(), to=0, tag=8) if self.rank == 1 else None

    is_receive_any = is_receive

    def do_send(self):
        if self.rank == 0:
            return hora.send(self.x(), to=1, tag=9)
        return hora.recv(np.zeros(self.n), source=0, tag=9) if self.rank == 1 else None

    def is_send(self):
        return value(self.turn, 0) if self.rank == 1 else None

    def do_handle(self):
        self.handle = hora.allreduce(self.x(), async_=True)
        return self.handle.wait()

    def do_handle_named(self):
        self.handle = hora.allreduce(self.x(), name=f"handle {self.turn}", named=True, async_=True)
        return self.handle.wait()

    def do_handle_of_what_is_made(self):
        self.handle = hora.allgather(self.x(), async_=True)
        return self.handle.wait()

    is_handle_of_what_is_made = is_allgather

    def do_plan(self):
        x = self.x()
        p = x.ctypes.data
        plan = hora.world().plan(Call(Kind.ALLREDUCE, hora.SUM, 13, 0, p, p, self.n), x)
        plan.run()
        return x

    def do_plan_started(self):
        x, g = self.x(), hora.world()
        p = x.ctypes.data
        plan = g.plan(Call(Kind.ALLREDUCE, hora.SUM, 13, 0, p, p, self.n), x)
        ticket = plan.submit()
        g.wait(ticket)
        g.release(ticket)
        return x

    def do_begun(self):
        x, g = self.x(), hora.world()
        p = x.ctypes.data
        ticket = g.begin(Call(Kind.ALLREDUCE, hora.SUM, 13, 0, p, p, self.n, budget=0.0002), x)
        if ticket:
            g.wait(ticket)
        return x


KINDS = [name[3:].replace("_", " ") for name in vars(Turn) if name.startswith("do_")]


class Calls:
    """The ways into the library, each noted in the step of Python's that makes it."""

    def __init__(self) -> None:
        self.made: list = []
        real = _lib._calls
        for name in ("run", "submit", "start", "start_async"):
            setattr(self, name, self._noting(getattr(real, name)))
        self.wait, self.release, self.own = real.wait, real.release, real.own

    def _noting(self, function):
        def call(*arguments):
            self.made.extend(itertools.starmap(function, (arguments,)))
            return self.made[-1]

        return call

    def under_way(self) -> bool:
        return bool(self.made) and self.made[-1] not in (None, -1)


def work_interrupted(path: str, count: int, seed: int):
    hora.init()
    hora.allreduce(np.zeros(1), name="first", named=True)
    if hora.rank() == 0:
        lead(path, count, random.Random(seed))
    else:
        follow(path)
    hora.barrier()


def follow(path: str) -> None:
    s = socket.socket(socket.AF_UNIX)
    for _ in range(1000):
        try:
            s.connect(path)
            break
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
    lines = s.makefile("rw")
    for line in lines:
        kind, number, n, delay = json.loads(line)
        if kind == "end":
            break
        if delay < 0:
            lines.readline()  # it has been interrupted
        else:
            time.sleep(delay)
        turn = Turn(kind, number, n)
        try:
            turn.check(turn.call())
            said = "right"
        except Exception as e:
            said = f"{type(e).__name__}: {e}"
        lines.write(said + "\n")
        lines.flush()


def lead(path: str, count: int, rng: random.Random) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    others = [server.accept()[0].makefile("rw") for _ in range(hora.size() - 1)]

    def tell(*what) -> None:
        for o in others:
            o.write(json.dumps(what) + "\n")
            o.flush()

    calls = Calls()
    armed = False

    def handler(*_):
        if armed:
            raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    counts = dict.fromkeys(KINDS, 0)
    seen = 0
    for number in itertools.count():
        if seen >= count:
            break
        kind, n = rng.choice(KINDS), rng.choice((1, 100, 20_000))
        # In C, allreduce in place is not noted; a small message is away before anybody takes it.
        held = kind == "in place" or kind != "send" and rng.random() < 0.6
        turn = Turn(kind, number, n)
        tell(kind, number, n, -1 if held else rng.random() * 0.0005)
        calls.made.clear()
        _lib._calls = calls
        before = len(_lib.in_flight)
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 10 ** rng.uniform(-5, -3))
            got = turn.call()
            armed = False
            cut = False
        except Interrupted:
            armed = False
            cut = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert cut or not held
        if cut:
            seen += 1
            counts[kind] += 1
        under_way = calls.under_way() or kind == "in place" and len(_lib.in_flight) > before
        calls.made.clear()
        noise = [
            np.full(n * k, np.nan) for k in (1, hora.size()) for _ in range(4)
        ]  # takes memory that was given up too early
        if held:
            tell("go")
        if not under_way:
            turn = Turn(kind, number, n)
            got = turn.call()
            cut = False
        if cut and turn.handle is not None:
            got = turn.handle.wait()
            cut = False
        said = [o.readline().strip() for o in others]
        assert said == ["right"] * len(others), (
            f"{said} after turn {number} ({kind}, cut {cut}, held {held}, under way {under_way})"
        )
        calls.made.clear()
        turn_ended(turn)
        if cut and turn.kept is not None:
            turn.check(turn.kept)
        elif not cut:
            turn.check(got)
        del noise
        got = turn = None
    tell("end", 0, 0, 0)
    print(f"{seen} exceptions in {number} calls:", counts)


def turn_ended(turn: Turn) -> None:
    """What was left under way ends here too."""
    end = time.monotonic() + 20
    turn.handle = None
    while _lib.orphans or _lib.in_flight:
        _lib.reap()
        assert time.monotonic() < end, f"turn {turn.turn} ({turn.kind}): {_lib.in_flight} {_lib.orphans}"


@pytest.mark.parametrize("size", [2, 4])
def test_exceptions_at_random_moments(ranks, tmp_path, size):
    seed = int(os.environ.get("HORA_SEED") or secrets.randbits(30))
    print(
        f"seed {seed}; again: HORA_SEED={seed} pytest -s 'python/tests/test_interrupted_soak.py::{test_exceptions_at_random_moments.__name__}[{size}]'"
    )
    print(
        ranks(size, work_interrupted, args=(str(tmp_path / "socket"), COUNT // 2, seed), timeout=max(120, COUNT / 5))[0]
    )
