"""Joining through a store that the ranks share already: torch's, or any that does what `Store` says."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Store", "meet", "settings"]

# How long one look into the store waits, in seconds: Ctrl-C is served in between.
_LOOK = 1.0
# After how many seconds of waiting for the other ranks a warning says who is missing.
_PATIENCE = 30.0


class Store(Protocol):
    """Texts under keys, which every rank of a job sees."""

    def set(self, key: str, value: str) -> None:
        """Put a text there."""

    def get(self, key: str) -> str:
        """The text; waits until it is there."""

    def add(self, key: str, n: int) -> int:
        """Count under a key of its own, and answer the sum so far."""

    def check(self, keys: list[str]) -> bool:
        """Whether texts are there under all of these."""

    def seen(self, key: str, seconds: float) -> bool:
        """Whether it is there within this time. Raises where the store is gone."""


def meet(
    store: Store, rank: int, size: int, timeout: float, late: Callable[[str], Exception], waiting: Callable[[str], str]
) -> None:
    """Wait in the store until every rank has come.

    A rank may be as late as `timeout` seconds; `late` makes the error then, and `waiting` the sentence of a warning
    before, out of the ranks that are missing, in words.
    """
    store.set(f"host/{rank}", socket.gethostname())
    if store.add("count", 1) == size:
        store.set("all", "here")
    began = time.monotonic()
    warned = False
    while not store.seen("all", min(_LOOK, max(0.001, began + timeout - time.monotonic()))):
        waited = time.monotonic() - began
        if waited < _PATIENCE and waited < timeout:
            continue
        missing = _missing(store, size)
        if not missing:
            break  # the last one has come just now
        if waited >= timeout:
            raise late(missing)
        if not warned:
            warned = True
            warnings.warn(waiting(missing), stacklevel=5)


def _missing(store: Store, size: int) -> str:
    """The ranks that have not asked, in words; nothing when all have."""
    ranks = [str(r) for r in range(size) if not store.check([f"host/{r}"])]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else ""


def settings(store: Store, rank: int, size: int, what: str, job: str) -> dict[str, Any]:
    """Agree on address and secret through the store, after `meet`: what `hora.init` takes.

    `what` is the store in messages, `job` the job's first name. The store asks nobody for a password, so on a network
    that others can reach HORA_SECRET_FILE is the better way.
    """
    if size == 1:
        return {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}
    host = socket.gethostname()
    hosts = [store.get(f"host/{r}") for r in range(size)]
    secret_file = os.environ.get("HORA_SECRET_FILE")
    if rank == 0:
        secret = "" if secret_file else os.urandom(32).hex()
        if not secret_file and len(set(hosts)) > 1:
            warnings.warn(
                f"hora: the job's secret goes through {what}, which does not authenticate; on a shared network put "
                "the same 0600 file on every host and set HORA_SECRET_FILE",
                stacklevel=5,
            )
        store.set("job", f"{_address(hosts)} {secret or '-'}")
    addr, secret = store.get("job").split(" ")
    first = list(dict.fromkeys(hosts))
    local = [r for r in range(size) if hosts[r] == host]
    local_rank = local.index(rank)
    peers = [h for h in first if hosts.count(h) > local_rank]
    found: dict[str, Any] = {
        "rank": rank, "size": size, "local_rank": local_rank, "local_size": len(local), "cross_rank": peers.index(host),
        "cross_size": len(peers), "host": host, "addr": addr, "job": f"{job}-{addr}",
    }  # fmt: skip
    if secret != "-":
        found["secret"] = secret
    return found


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
