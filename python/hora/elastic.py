"""Elastic training: go on after the loss of a rank, and with newcomers, from the last commit.

>>> import hora, hora.elastic
>>> state = hora.elastic.State(model=model, optimizer=optimizer, step=0)
>>> @hora.elastic.run
... def train(state):
...     while state.step < 1000:
...         ...                       # one step
...         state.step += 1
...         state.commit()
>>> train(state)                      # under: hora run -np 4 --restarts 10 python train.py

Between `hora.init()` and `train(state)` a script makes no collective calls: a worker that was started to replace a lost
one comes by there when the others are in the middle of their work.
"""

from __future__ import annotations

import copy
import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from . import _bridge, _lib, _world, arrays, comm, objects
from ._sampler import ElasticSampler
from ._sigterm import drained_by_sigterm
from .errors import ArgumentError, DrainedError, HoraError, MismatchError, PeerLostError

__all__ = ["Drained", "ElasticSampler", "State", "WorkersChanged", "run"]

FRUITLESS = 20  # epochs in a row that may break before anything is committed

COUNTERS = ("step", "batch")  # values with these names count the steps that a loss costs

T = TypeVar("T")


class WorkersChanged(Exception):
    """Workers come or go: `commit()` raises it, and `run` goes on in the next epoch. Let it pass."""


class Drained(SystemExit):
    """This worker was asked to leave (SIGTERM, or by the launcher), has committed and has left; unhandled it ends the
    program well."""

    def __init__(self) -> None:
        super().__init__(0)


class Value:
    """One attribute of a state: how it is kept, put back and sent. This one takes any object that can be pickled."""

    word = "an object"
    obj: Any = None
    kept: Any = None

    def layout(self, value: Any) -> str:
        """What ranks must have in common."""
        return self.word

    def save(self, value: Any) -> Any:
        """A copy, for keep."""
        return copy.deepcopy(value)

    def keep(self, value: Any, saved: Any) -> None:
        """Make it the last commit's."""
        self.kept = saved

    def restore(self, value: Any) -> Any:
        """The last commit's value."""
        return copy.deepcopy(self.kept)

    def send(self, value: Any) -> Any:
        """What is pickled for the other ranks."""
        return value

    def take(self, value: Any, sent: Any) -> Any:
        """This rank's value, after another's."""
        return sent


class _Loads(Value):
    """A module, an optimizer, a sampler: whatever has state_dict() and load_state_dict()."""

    word = "an object with a state_dict"

    def save(self, value: Any) -> Any:
        return copy.deepcopy(value.state_dict())

    def restore(self, value: Any) -> Any:
        return self.take(value, copy.deepcopy(self.kept))

    def send(self, value: Any) -> Any:
        return value.state_dict()

    def take(self, value: Any, sent: Any) -> Any:
        value.load_state_dict(sent)
        return value


class _Array(Value):
    """An array that can be written: its memory stays where it is, and is sent without a pickle."""

    def layout(self, value: Any) -> str:
        a = arrays.read(value)
        return f"an array of {arrays.DTYPE_NAMES[a.dtype]} and shape {a.shape}"

    def save(self, value: Any) -> Any:
        return arrays.write(value)

    def keep(self, value: Any, saved: Any) -> None:
        n = saved.count * arrays.DTYPE_SIZES[saved.dtype]
        if self.kept is None or len(self.kept) != n:
            self.kept = bytearray(n)
        self.obj = value  # the attribute may be another array by the time of restore
        _lib.copy(_lib.readable(self.kept), saved.ptr, n)

    def restore(self, value: Any) -> Any:
        a = arrays.write(self.obj)
        if a.count * arrays.DTYPE_SIZES[a.dtype] != len(self.kept):
            raise ArgumentError(
                "restore state: an array has changed its length since the last commit; assign a new array instead of resizing it"
            )
        _lib.copy(a.ptr, _lib.readable(self.kept), len(self.kept))
        return self.obj


KINDS: list[Callable[[Any], Value | None]] = []  # frameworks' own


def _kind(value: Any) -> Value:
    for known in KINDS:
        kind = known(value)
        if kind is not None:
            return kind
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return _Loads()
    try:
        arrays.write(value)
    except HoraError:  # no array, or one that cannot be written in place
        return Value()
    return _Array()


class State:
    """What a training must not lose, as attributes: arrays, anything with a state_dict, and plain objects.

    `commit()` keeps a copy; after a loss `run` puts the last copy back on every rank and gives newcomers what the
    ranks with the most commits have. Every rank makes it with the same names.

    >>> state = State(weights=np.zeros(10), model=model, epoch=0)
    >>> state.epoch += 1
    >>> state.commit()
    """

    def __init__(self, **values: Any) -> None:
        self._values: dict[str, Value] = {}
        self._resets: list[Callable[[], Any]] = []
        self.commits = 0  # of the job, as this rank knows
        self._kept = False  # there is something to return to
        for name, value in values.items():
            if hasattr(type(self), name) or name.startswith("_") or name in self.__dict__:
                raise AttributeError(f"make state: a value cannot be called {name!r}; choose another name")
            self.__dict__[name] = value
            self._values[name] = _kind(value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def on_reset(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        """Call fn() whenever an epoch after the first begins, before the values are made equal: ranks and size have
        changed.

        Groups, plans and process groups of the old epoch are closed by then; make them anew there.
        """
        self._resets.append(fn)
        return fn

    def commit(self) -> None:
        """Keep a copy of every value, to which a loss returns, and see whether workers come or go.

        Costs a copy. `commits` counts them; at most the steps since the last one are done again.
        """
        self._keep()
        self.commits += 1
        self.check()

    def check(self) -> None:
        """See whether workers come or go, without a copy: the steps since the last commit are then done again."""
        news = _world.news()
        if news == 1:
            raise WorkersChanged("workers come or go: the next epoch begins")
        if news == 2:
            raise Drained

    def restore(self) -> None:
        """Put the last commit back."""
        if self._kept:  # else nothing has touched them
            for name, v in self._values.items():
                self.__dict__[name] = v.restore(self.__dict__[name])

    def _undone(self) -> int:
        """Steps since the last commit, -1 when nobody counts them."""
        kept = {n: v.kept for n, v in self._values.items() if type(v) is Value}
        return steps_since(kept, self.__dict__) if self._kept and self.commits else -1

    def sync(self) -> None:
        """Give every rank the values of the rank with the most commits, the lowest of them; counts as a commit."""
        self._sync(True)

    def _keep(self) -> None:
        here = self.__dict__
        saved = {
            name: v.save(here[name]) for name, v in self._values.items()
        }  # what fails, fails before anything is changed
        for name, v in self._values.items():
            v.keep(here[name], saved[name])
        self._kept = True

    def _sync(self, force: bool) -> None:
        layout = {name: v.layout(self.__dict__[name]) for name, v in self._values.items()}
        ranks = objects.allgather_object((self.commits, layout))
        for r, (_, theirs) in enumerate(ranks):
            if list(theirs.items()) != list(ranks[0][1].items()):
                raise MismatchError(_difference(ranks[0][1], r, theirs))
        commits = [c for c, _ in ranks]
        most = max(commits)
        if not self._kept:
            self._keep()  # half of another's values is worse than the first ones: a loss in the middle returns to these
        if force or min(commits) != most or most == 0:
            self._receive(commits.index(most))
        self.commits = max(most, 1)
        self._keep()

    def _receive(self, root: int) -> None:
        here = self.__dict__
        tensors = [here[n] for n, v in self._values.items() if isinstance(v, _Array)]
        rest = {n: v for n, v in self._values.items() if not isinstance(v, _Array)}
        if rest:
            mine = {n: v.send(here[n]) for n, v in rest.items()} if comm.rank() == root else None
            sent = objects.broadcast_object(mine, root)
            if comm.rank() != root:
                here.update({n: v.take(here[n], sent[n]) for n, v in rest.items()})
        if tensors:
            comm.broadcast(tensors, root, out=tensors)


def _difference(zero: dict[str, str], rank: int, theirs: dict[str, str]) -> str:
    for name in [*zero, *theirs]:
        if zero.get(name) != theirs.get(name):
            a, b = zero.get(name, "nothing"), theirs.get(name, "nothing")
            return f"synchronise state: {name!r} is {a} on rank 0 and {b} on rank {rank}; make the state of the same values on every rank"
    return f"synchronise state: rank {rank} has the values in another order than rank 0"


def steps_since(kept: Mapping[str, Any], now: Mapping[str, Any]) -> int:
    """How far the counter among these values has come since it was kept; -1 without one, or where it began anew
    meanwhile."""
    for name in COUNTERS:
        then, here = kept.get(name), now.get(name)
        if type(then) is int and type(here) is int:
            return here - then if here >= then and kept.get("epoch") == now.get("epoch") else -1
    return -1


def next_epoch() -> None:
    """Join the job's next epoch. Who is asked to leave meanwhile, since the job ends for example, says so and ends."""
    _bridge.recover()
    before = _world.world_info()["size"]
    try:
        _world.next_epoch()
    except DrainedError as error:
        print(f"hora: {error}", file=sys.stderr, flush=True)
        raise Drained from None
    if _world.world_info()["size"] != before:
        _bridge.resized()


def run(train: Callable[..., T]) -> Callable[..., T]:
    """Decorate `train(state, …)` so that it goes on in a job that loses and gains ranks.

    It is called in every epoch of the job, from where the state stands. When a rank is lost, the state returns to its
    last commit, this rank joins the next epoch (whoever replaces the lost one does too), `on_reset` functions are
    called, the state is made equal, and `train` is called again. It returns when all ranks have finished. The job's
    report tells what each loss cost: seconds, and steps where the state has a `step` or `batch` that counts them.

    SIGTERM lets the next commit be the last one: the rank leaves, is replaced, and `Drained` ends the program.

    >>> @hora.elastic.run
    ... def train(state):
    ...     while state.step < 100:
    ...         state.step += 1
    ...         state.commit()
    """

    @functools.wraps(train)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        comm.init(elastic=True)
        with drained_by_sigterm():
            return _Run(state, lambda: train(state, *args, **kwargs)).go()

    return wrapper


class _Run:
    """The loop of run."""

    def __init__(self, state: State, train: Callable[[], Any]) -> None:
        self.state, self.train = state, train
        self.epochs = self.vain = 0
        self.broke = 0.0  # when the last epoch ended here
        self.cause = ""  # why
        self.again = -1  # steps that are done again

    def go(self) -> Any:
        while True:
            before = self.state.commits
            try:
                return self.epoch()
            except Drained:
                _world.leave_elastic("the rank was asked to leave")
                raise
            except WorkersChanged as e:
                cause: Exception = e
            except Exception as e:
                if not _broken(e):
                    raise
                cause = e
            self.broke, self.cause, self.again = time.monotonic(), str(cause), self.state._undone()
            self.vain = 0 if self.state.commits > before else self.vain + 1
            if self.vain >= FRUITLESS:
                raise HoraError(f"{self.vain} epochs in a row broke before anything was committed") from cause
            self.next(cause)
            self.state.restore()  # no rank of the old epoch touches this one's memory any more

    def epoch(self) -> Any:
        self.epochs += 1
        if self.epochs > 1:
            for fn in self.state._resets:
                fn()
        self.state._sync(False)
        if self.epochs > 1:
            _world.recovered(time.monotonic() - self.broke, self.again, self.cause)
        result = self.train()
        comm.barrier()
        if not _world.finish_elastic():
            raise WorkersChanged("a rank was lost before all had finished")
        return result

    def next(self, cause: Exception) -> None:
        try:
            next_epoch()
        except HoraError as e:
            if not isinstance(cause, PeerLostError):
                raise e from cause
            error = PeerLostError(f"{e} (after: {cause})")
            error.rank, error.host = cause.rank, cause.host
            raise error from cause


def _broken(e: BaseException) -> bool:
    """Whether the present epoch is over, so that the next one is to be joined."""
    if not _world.is_elastic():
        return False
    ours = False
    at: BaseException | None = e
    while at is not None:  # frameworks wrap what their hooks raise
        if isinstance(at, PeerLostError):
            return True
        told = (
            None if isinstance(at, HoraError) else _bridge.failure(at)
        )  # a compiled program's, in its framework's class
        if isinstance(told, PeerLostError):
            return True
        ours = ours or isinstance(at, HoraError) or told is not None
        at = at.__cause__ or at.__context__
    try:
        return _world.news() != 0 and ours  # ranks hear of a change at different steps
    except HoraError:
        return True
