"""From a torch process group to a hora group: joins the job when nobody has done so."""

from __future__ import annotations

import os
import socket
import time
import warnings
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .. import comm
from ..errors import ArgumentError
from ..group import Group

__all__ = ["Owned", "group_for"]

# How long one look into torch's store waits, in seconds: Ctrl-C is served in between.
_LOOK = 1.0
# After how many seconds of waiting for the other ranks a warning says who is missing.
_PATIENCE = 30.0


class Owned:
    """Closes a group that was made for a backend."""

    def __init__(self, group: Group | None) -> None:
        self._group = group

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and comm.is_initialized():
            group.close()


class OwnedWorld(Owned):
    """Leaves the job that init_process_group joined."""

    def __init__(self) -> None:
        super().__init__(None)

    def close(self) -> None:
        comm.shutdown()


def group_for(opts: Any) -> tuple[Group, Owned | None, str]:
    """The hora group for torch's options, what to close at its end, and its name."""
    rank, size = opts.group_rank, opts.group_size
    name = str(getattr(opts, "group_id", "") or "default")
    ranks = list(getattr(opts, "global_ranks_in_group", None) or range(size))
    store = _meet(opts.store, rank, size, name, opts.timeout) if size > 1 else opts.store
    if not comm.is_initialized():
        owner = _join(store, rank, size)
        if ranks == list(range(comm.size())):
            return comm.world(), owner, name
        return Group(ranks, tag=f"torch/{name}"), owner, name
    _check(rank, size, ranks)
    group = Group(ranks, tag=f"torch/{name}")
    return group, Owned(group), name


def _meet(store: Any, rank: int, size: int, name: str, timeout: timedelta) -> Any:
    """Wait in torch's store until every rank has asked for this group with this backend; the part of the store to go on in.

    A rank may be as late as the group's timeout allows. One that uses another backend never comes.
    """
    here = dist.PrefixStore(f"hora/{store.add(f'hora/lives/{rank}', 1)}", store)  # what an earlier life has left says nothing
    here.set(f"host/{rank}", socket.gethostname())
    if here.add("count", 1) == size:
        here.set("all", "here")
    began = time.monotonic()
    seconds, warned = timeout.total_seconds(), False
    while not _seen(here, "all", min(_LOOK, max(0.001, began + seconds - time.monotonic()))):
        waited = time.monotonic() - began
        if waited < _PATIENCE and waited < seconds:
            continue
        missing = _missing(here, size)
        if not missing:
            break  # the last one has come just now
        if waited >= seconds:
            raise dist.DistBackendError(
                f'make torch process group {name!r}: {missing} of {size} did not ask for it with backend "hora" within the timeout of '
                f"{seconds:g} s; give every rank the same backend and world size, and look at their output"
            )
        if not warned:
            warned = True
            warnings.warn(f"hora: torch process group {name!r} waits for {missing} of {size}", stacklevel=4)
    return here


def _seen(store: Any, key: str, seconds: float) -> bool:
    """Whether the key is there within this time."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except dist.DistNetworkError as lost:
        raise dist.DistBackendError(
            "make torch process group: the process that serves torch's store has ended; look at the output of rank 0"
        ) from lost
    except RuntimeError:  # torch's DistStoreError is one
        return False
    return True


def _missing(store: Any, size: int) -> str:
    """The ranks that have not asked, in words; nothing when all have."""
    ranks = [str(r) for r in range(size) if not store.check([f"host/{r}"])]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else ""


def _check(rank: int, size: int, ranks: list[int]) -> None:
    world = comm.size()
    if any(r >= world for r in ranks) or ranks[rank] != comm.rank():
        raise ArgumentError(
            f"make torch process group: torch says rank {ranks[rank]} of ranks {ranks}, hora was initialized as rank "
            f"{comm.rank()} of {world}; start both from the same launcher, or drop the rank and world_size arguments"
        )


def _join(store: Any, rank: int, size: int) -> Owned:
    """Join by the environment where it names this very job, else through torch's store."""
    if _environment_fits(rank, size):
        comm.init()
    else:
        comm.init(**_through_store(store, rank, size))
    return OwnedWorld()


def _environment_fits(rank: int, size: int) -> bool:
    """`hora run`, or a launcher on one host that set rank and size as torch was told them."""
    env = os.environ
    if size == 1:
        return False
    for r, s in (("HORA_RANK", "HORA_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE")):
        if r in env:
            return env[r] == str(rank) and env.get(s) == str(size)
    return False


def _through_store(store: Any, rank: int, size: int) -> dict[str, Any]:
    """Agree on address and secret through the store that torch's ranks share already.

    The store asks nobody for a password, so on a network that others can reach HORA_SECRET_FILE is the better way.
    """
    if size == 1:
        return {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}
    host = socket.gethostname()
    hosts = [store.get(f"host/{r}").decode() for r in range(size)]
    secret_file = os.environ.get("HORA_SECRET_FILE")
    if rank == 0:
        secret = "" if secret_file else os.urandom(32).hex()
        if not secret_file and len(set(hosts)) > 1:
            warnings.warn(
                "hora: the job's secret goes through torch's store, which does not authenticate; on a shared network put "
                "the same 0600 file on every host and set HORA_SECRET_FILE",
                stacklevel=5,
            )
        store.set("job", f"{_address(hosts)} {secret or '-'}")
    addr, secret = store.get("job").decode().split(" ")
    first = list(dict.fromkeys(hosts))
    local = [r for r in range(size) if hosts[r] == host]
    local_rank = local.index(rank)
    peers = [h for h in first if hosts.count(h) > local_rank]
    settings: dict[str, Any] = {
        "rank": rank, "size": size, "local_rank": local_rank, "local_size": len(local), "cross_rank": peers.index(host),
        "cross_size": len(peers), "host": host, "addr": addr, "job": "torch-" + addr,
    }  # fmt: skip
    if secret != "-":
        settings["secret"] = secret
    return settings


def _address(hosts: list[str]) -> str:
    """Where rank 0 will serve the rendezvous: a free port on the address the others can reach."""
    if len(set(hosts)) == 1:
        address = "127.0.0.1"
    else:
        address = os.environ.get("MASTER_ADDR") or socket.gethostbyname(socket.gethostname())
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
        s.bind((address if address != "localhost" else "127.0.0.1", 0))
        port = s.getsockname()[1]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
