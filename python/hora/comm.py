"""The collectives: one function each, for NumPy, torch, JAX (CPU) and everything with a buffer.

What they share:

- `x` is an array, or a list of arrays (grouped: one submission, a list comes back); a Python number works too.
- `out=None` makes a new array of x's kind; `out=x` works in place; any other array receives the result.
- `group=None` is the world.
- `async_=True` returns a `Handle` at once.
- `named=True` matches by `name` whatever the order of calls on the ranks, as Horovod does; otherwise every rank
  makes the same calls in the same order, as in MPI, and `name` only appears in errors and timelines.
- A difference between the ranks raises `MismatchError` on every rank; work can go on afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _abi, _calls, _lib, _world
from .call import OPS
from .group import Group, Kind, Op, group_of

__all__ = [
    "Group", "Kind", "Op", "allgather", "allreduce", "alltoall", "barrier", "broadcast", "counters", "cross_rank",
    "cross_size", "gather", "host", "init", "is_initialized", "join", "local_rank", "local_size", "rank", "recv",
    "reduce", "reduce_scatter", "scatter", "send", "shutdown", "size", "start_timeline", "stop_timeline", "world",
]  # fmt: skip

_WORLD = Group()


def init(**settings: Any) -> None:
    """Join the job that the environment names (`hora run`, torchrun, mpirun, Slurm, …), else a world of one.

    Every setting of docs/environment.md may be given as an argument in lower case without its prefix and wins
    over the environment: `rank`, `size`, `local_rank`, `local_size`, `cross_rank`, `cross_size`, `host`, `job`,
    `epoch`, `addr` ("host:port" of the rendezvous), `secret` (64 hexadecimal digits) or `secret_file`,
    `peer_timeout`, `op_timeout`, `start_timeout` (seconds), … Calling it again while initialized does nothing;
    after `shutdown()` it joins anew.

    >>> hora.init()
    >>> hora.init(peer_timeout=30)      # changes nothing: it is initialized
    """
    _world.init(settings)


def shutdown() -> None:
    """Leave the job; pending operations end with `ClosedError`. Not needed before exit.

    Raises `MismatchError` where the ranks have made different numbers of calls, after it has left; at exit that is a
    line on standard error and exit code 1.

    >>> hora.shutdown()
    >>> hora.init()                     # and back, into a new life
    """
    _world.shutdown()


def is_initialized() -> bool:
    """Whether `init()` has been called and `shutdown()` has not.

    >>> hora.is_initialized()
    True
    """
    return _lib.world is not None


def world() -> Group:
    """The group of all ranks.

    >>> hora.world().ranks
    (0, 1)
    """
    _world.world_info()
    return _WORLD


def rank() -> int:
    """This process's rank among all, from 0. A forked child (a DataLoader's worker) is told its parent's, here and
    below.

    >>> print(f"rank {hora.rank()} of {hora.size()}")
    rank ... of 2
    """
    return _world.place()["rank"]


def size() -> int:
    """How many processes the job has.

    >>> hora.size()
    2
    """
    return _world.place()["size"]


def local_rank() -> int:
    """This process's rank among those on its host.

    >>> device = f"cuda:{hora.local_rank()}"
    """
    return _world.place()["local_rank"]


def local_size() -> int:
    """How many processes are on this host.

    >>> hora.local_size()
    2
    """
    return _world.place()["local_size"]


def cross_rank() -> int:
    """The index of this host among those that have this local rank.

    >>> hora.cross_rank()
    0
    """
    return _world.place()["cross_rank"]


def cross_size() -> int:
    """How many hosts have this local rank.

    >>> hora.cross_size()
    1
    """
    return _world.place()["cross_size"]


def host() -> str:
    """The name of this host as the job knows it.

    >>> print("runs on", hora.host())
    runs on ...
    """
    return _world.place()["host"]


def allreduce(
    x: Any, op: Op | str = Op.SUM, *, out: Any = None, group: Group | None = None, async_: bool = False,
    name: str | Sequence[str] | None = None, named: bool = False, prescale: float = 1.0, postscale: float = 1.0,
    timeout: float | None = None,
) -> Any:  # fmt: skip
    """Reduce x over all ranks; every rank gets the result.

    >>> hora.allreduce(np.full(3, hora.rank()))                 # a new array
    array([1, 1, 1])
    >>> grad = np.array([1.0, 2.0]) * (hora.rank() + 1)
    >>> hora.allreduce(grad, hora.AVERAGE, out=grad)            # in place
    array([1.5, 3. ])
    >>> a, b = np.ones(2), np.ones(3, dtype="int8")
    >>> h = hora.allreduce([a, b], out=[a, b], async_=True)     # grouped, in place, in the background
    >>> h.wait()
    [array([2., 2.]), array([2, 2, 2], dtype=int8)]
    """
    if async_ or named or name is not None or timeout is not None:
        return _calls.reduction(Kind.ALLREDUCE, x, op, 0, out, group, async_, name, named, prescale, postscale, timeout)
    return _calls.allreduce(x, op, out, group, prescale, postscale)


_SIGNATURE = "(x, op='sum', *, out=None, group=None, async_=False, name=None, named=False, prescale=1.0, postscale=1.0, timeout=None)"
if not TYPE_CHECKING:
    allreduce = _abi.shortcut(allreduce, _lib.ended, OPS, Op.SUM, _SIGNATURE)


def reduce(
    x: Any, root: int = 0, op: Op | str = Op.SUM, *, out: Any = None, group: Group | None = None,
    async_: bool = False, name: str | Sequence[str] | None = None, named: bool = False, prescale: float = 1.0,
    postscale: float = 1.0, timeout: float | None = None,
) -> Any:  # fmt: skip
    """Reduce x over all ranks; `root` gets the result, the others None.

    >>> total = hora.reduce(np.ones(3), root=0)
    >>> (total is None) == (hora.rank() != 0)
    True
    """
    return _calls.reduction(Kind.REDUCE, x, op, root, out, group, async_, name, named, prescale, postscale, timeout)


def broadcast(
    x: Any, root: int = 0, *, out: Any = None, group: Group | None = None, async_: bool = False,
    name: str | Sequence[str] | None = None, named: bool = False, timeout: float | None = None,
) -> Any:  # fmt: skip
    """Every rank gets root's x; on the others x gives type and shape (and memory, with `out=x`).

    >>> weights = np.full(3, hora.rank() + 7.0)
    >>> hora.broadcast(weights, root=0, out=weights)
    array([7., 7., 7.])
    """
    return _calls.broadcast(x, root, out, group, async_, name, named, timeout)


def allgather(
    x: Any, *, out: Any = None, sizes: Sequence[int] | None = None, group: Group | None = None, async_: bool = False,
    name: str | Sequence[str] | None = None, named: bool = False, timeout: float | None = None,
) -> Any:  # fmt: skip
    """Every rank gets all ranks' x, joined along the first dimension, in rank order.

    First dimensions may differ. They are exchanged first, unless `sizes` (one per rank) or `out` (then all are
    equal) is given; a scalar counts as one row.

    >>> hora.allgather(np.array([hora.rank()]))
    array([0, 1])
    >>> hora.allgather(np.full((hora.rank() + 1, 2), hora.rank()))      # one row here, two rows there
    array([[0, 0],
           [1, 1],
           [1, 1]])
    """
    return _calls.allgather(x, out, sizes, group, async_, name, named, timeout)


def gather(
    x: Any, root: int = 0, *, out: Any = None, sizes: Sequence[int] | None = None, group: Group | None = None,
    async_: bool = False, name: str | None = None, named: bool = False, timeout: float | None = None,
) -> Any:  # fmt: skip
    """`root` gets all ranks' x, joined along the first dimension, in rank order; the others get None.

    With `sizes` (on every rank) first dimensions may differ; without, all are equal.

    >>> rows = hora.gather(np.array([hora.rank()]), root=0)
    >>> if hora.rank() == 0: assert rows.tolist() == [0, 1]
    """
    return _calls.gather(x, root, out, sizes, group, async_, name, named, timeout)


def scatter(
    x: Any, root: int = 0, *, out: Any = None, sizes: Sequence[int] | None = None, group: Group | None = None,
    async_: bool = False, name: str | None = None, named: bool = False, timeout: float | None = None,
) -> Any:  # fmt: skip
    """Rank i gets the i-th part of root's x along the first dimension, even parts unless `sizes` says otherwise.

    On the other ranks `out` receives the part; without `out`, x gives type and shape of the part.

    >>> part = hora.scatter(np.arange(4.0), out=np.empty(2))    # x matters on root only
    >>> part.tolist() == [[0, 1], [2, 3]][hora.rank()]
    True
    """
    return _calls.scatter(x, root, out, sizes, group, async_, name, named, timeout)


def reduce_scatter(
    x: Any, op: Op | str = Op.SUM, *, out: Any = None, sizes: Sequence[int] | None = None,
    group: Group | None = None, async_: bool = False, name: str | Sequence[str] | None = None, named: bool = False,
    prescale: float = 1.0, postscale: float = 1.0, timeout: float | None = None,
) -> Any:  # fmt: skip
    """Reduce x over all ranks and give rank i the i-th part along the first dimension.

    Where it does not divide evenly the first ranks get one row more, unless `sizes` says otherwise.

    >>> hora.reduce_scatter(np.ones(hora.size() * 2))
    array([2., 2.])
    """
    return _calls.reduce_scatter(x, op, out, sizes, group, async_, name, named, prescale, postscale, timeout)


def alltoall(
    x: Any, splits: Sequence[int] | None = None, *, out: Any = None, recv_splits: Sequence[int] | None = None,
    group: Group | None = None, async_: bool = False, name: str | None = None, named: bool = False,
    timeout: float | None = None,
) -> Any:  # fmt: skip
    """Send the j-th part of x along the first dimension to rank j, and get the parts sent here, in rank order.

    Without `splits` the parts are even, and the result is the array. With `splits` (rows for each rank) the result
    is (array, received splits); the latter are exchanged unless `recv_splits` is given.

    >>> hora.alltoall(np.arange(hora.size())).tolist() == [hora.rank()] * 2
    True
    >>> parts, splits = hora.alltoall(np.zeros(3), splits=[1, 2])      # one row to rank 0, two to rank 1
    >>> splits == [hora.rank() + 1] * 2
    True
    """
    return _calls.alltoall(x, splits, out, recv_splits, group, async_, name, named, timeout)


def barrier(*, group: Group | None = None, async_: bool = False, timeout: float | None = None) -> Any:
    """Return when every rank of the group has come here.

    >>> hora.barrier()
    """
    return _calls.barrier(group, async_, timeout)


def send(
    x: Any, to: int, *, tag: int = 0, group: Group | None = None, async_: bool = False, timeout: float | None = None
) -> Any:
    """Send x to rank `to`, which calls `recv`.

    >>> x = np.arange(2.0) if hora.rank() == 0 else np.empty(2)
    >>> _ = hora.send(x, to=1) if hora.rank() == 0 else hora.recv(x, source=0)
    >>> x
    array([0., 1.])
    """
    return _calls.send(x, to, tag, group, async_, timeout)


def recv(
    out: Any, source: int | None = None, *, tag: int = 0, group: Group | None = None, async_: bool = False,
    timeout: float | None = None,
) -> Any:  # fmt: skip
    """Receive into `out` what rank `source` (None: any rank) sends, and return `out`.

    With `source=None` the result is (out, source rank).

    >>> if hora.rank() == 0:
    ...     hora.send(np.ones(2), to=1, tag=3)
    ... else:
    ...     x, source = hora.recv(np.empty(2), tag=3)
    ...     assert source == 0 and x.sum() == 2
    """
    return _calls.recv(out, source, tag, group, async_, timeout)


def join(*, group: Group | None = None, timeout: float | None = None) -> int:
    """Say that this rank has no more data: contribute zeros to the others' named reductions until all have joined.

    Returns the last rank that joined, the same on every rank.

    >>> for step in range(3 + hora.rank()):                     # rank 1 has one batch more
    ...     mean = hora.allreduce(np.ones(1), name="mean", named=True)
    >>> hora.join()
    1
    """
    return group_of(group).join(timeout)


def counters(*, group: Group | None = None) -> dict[str, int]:
    """Bytes and messages by link (shm, tcp, mem) since the group was made.

    >>> before = hora.counters()["shm_bytes_sent"]
    >>> _ = hora.allreduce(np.ones(1000))
    >>> hora.counters()["shm_bytes_sent"] - before
    8000
    """
    return group_of(group).counters()


def start_timeline(path: str, *, mark_cycles: bool = False) -> None:
    """Write what every operation does, with its four timestamps, to `path` (Chrome's trace format).

    >>> hora.start_timeline("trace.json")
    >>> hora.stop_timeline()
    """
    _world.timeline("start_timeline", path=path, mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """Finish the file begun by `start_timeline` (or by HORA_TIMELINE).

    >>> hora.start_timeline("trace.json", mark_cycles=True)
    >>> hora.stop_timeline()
    """
    _world.timeline("stop_timeline")
