"""Where the processes of a data service and of a training find each other.

They tell who the dispatchers are, whether their workers are there, and the end. A connection begins with both sides'
proof that they know the key, by numbers of fixed size; only then is anything decoded, and that is JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

__all__ = ["ComputeClient", "ComputeService"]

NONCE, PROOF, LONGEST = 32, 32, 1 << 16
PATIENCE = 10.0  # for a stranger's proof, and for a connection
AFTER = 15.0  # how long the service stays when the last process that trained has gone


def _proof(key: bytes, side: bytes, ours: bytes, theirs: bytes) -> bytes:
    return hmac.new(key, side + ours + theirs, hashlib.sha256).digest()


def _read(s: socket.socket, n: int) -> bytes:
    out = b""
    while len(out) < n:
        part = s.recv(n - len(out))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        out += part
    return out


def _send(s: socket.socket, what: Any) -> None:
    text = json.dumps(what).encode()
    s.sendall(len(text).to_bytes(4, "little") + text)


def _receive(s: socket.socket) -> Any:
    n = int.from_bytes(_read(s, 4), "little")
    if n > LONGEST:
        raise ConnectionError(f"a message of {n} bytes, at most {LONGEST}")
    return json.loads(_read(s, n))


class ComputeService:
    """Runs on rank 0 of the processes that compute data, and knows which of the others are ready."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Any = None) -> None:
        if dispatchers <= 0:
            raise ValueError(f"The number of dispatchers must be larger than 0: {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(f"The number of workers per dispatcher must be larger than 0: {workers_per_dispatcher}")
        self._key, self._nics = key, nics
        self._dispatchers: list[str | None] = [None] * dispatchers
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._each = workers_per_dispatcher
        self._over = False
        self._training = 0
        self._trained = 0.0  # when the last process that trained has gone
        self._changed = threading.Condition()
        self._listener = socket.create_server(("", 0), backlog=128)
        threading.Thread(target=self._accept, name="compute service", daemon=True).start()

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """By interface, the addresses at which this service is reached; the loopback's last."""
        port = self._listener.getsockname()[1]
        found: dict[str, list[tuple[str, int]]] = {}
        for name, held in psutil.net_if_addrs().items():
            at = [a.address for a in held if a.family == socket.AF_INET]
            if at and (not self._nics or name in self._nics):
                found[name] = [(a, port) for a in at]
        return dict(sorted(found.items(), key=lambda item: item[1][0][0].startswith("127.")))

    def shutdown(self) -> None:
        """Tell all that wait that it is over, and take no more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._listener.close()

    # -- one thread a connection

    def _accept(self) -> None:
        while True:
            try:
                s, _ = self._listener.accept()
            except OSError:  # shutdown closes it
                return
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s: socket.socket) -> None:
        training = False
        with s:
            try:
                s.settimeout(PATIENCE)
                ours = os.urandom(NONCE)
                s.sendall(ours)
                theirs, proof = _read(s, NONCE), _read(s, PROOF)
                if not hmac.compare_digest(proof, _proof(self._key, b"client", ours, theirs)):
                    return
                s.sendall(_proof(self._key, b"server", theirs, ours))
                s.settimeout(None)
                while True:
                    name, args = _receive(s)
                    if name == "attend":
                        training = self._attend(training)
                        _send(s, None)
                    elif name in _CALLS:
                        _send(s, _CALLS[name](self, *args))
                    else:
                        _send(s, {"error": f"the service knows no {name}"})
            except (OSError, ValueError, TypeError, IndexError):  # a stranger, or who has gone
                pass
            finally:
                if training:
                    self._leave()

    def _attend(self, already: bool) -> bool:
        with self._changed:
            self._training += not already
        return True

    def _leave(self) -> None:
        with self._changed:
            self._training -= 1
            self._trained = time.monotonic()
            self._changed.notify_all()

    # -- what clients ask

    def _register_dispatcher(self, i: int, address: str) -> Any:
        with self._changed:
            if self._dispatchers[i] not in (None, address):
                return {
                    "error": f"Dispatcher with id {i} has already been registered under different address {self._dispatchers[i]}: {address}"
                }
            self._dispatchers[i] = address
            self._changed.notify_all()
        return None

    def _dispatcher(self, i: int, patience: float) -> Any:
        if self._until(lambda: self._dispatchers[i] is not None, patience):
            return self._dispatchers[i]
        return {
            "late": f"Timed out waiting for dispatcher {i} to register: is the job that computes data, or the rank that has this dispatcher, running?"
        }

    def _register_worker(self, i: int, worker: int) -> Any:
        with self._changed:
            self._workers[i].add(worker)
            self._changed.notify_all()
        return None

    def _all_workers(self, i: int, patience: float) -> Any:
        if self._until(lambda: len(self._workers[i]) >= self._each, patience):
            return None
        return {
            "late": f"Timed out waiting for workers of dispatcher {i} to register: {len(self._workers[i])} of {self._each} have"
        }

    def _shutdown(self) -> Any:
        self.shutdown()
        return None

    def _end(self) -> Any:
        """Wait for the end: somebody's word, or that nobody trains any more."""
        while not self._until(lambda: self._over, 1.0):
            with self._changed:
                gone = not self._training and self._trained and time.monotonic() - self._trained > AFTER
            if gone:
                self.shutdown()
        return None

    def _until(self, there: Callable[[], bool], patience: float) -> bool:
        with self._changed:
            return self._changed.wait_for(there, patience)


_CALLS: dict[str, Callable[..., Any]] = {
    "register_dispatcher": ComputeService._register_dispatcher, "dispatcher": ComputeService._dispatcher,
    "register_worker": ComputeService._register_worker, "all_workers": ComputeService._all_workers,
    "shutdown": ComputeService._shutdown, "end": ComputeService._end,
}  # fmt: skip


class ComputeClient:
    """Speaks to a ComputeService; one connection a call, so that a call that waits keeps nobody else from asking."""

    def __init__(
        self, compute_addresses: Mapping[str, Sequence[tuple[str, int]]], key: bytes, verbose: int = 1
    ) -> None:
        self._at = [(a, p) for held in compute_addresses.values() for a, p in held]
        self._key = key
        self._attending: socket.socket | None = None

    def _open(self) -> socket.socket:
        why: Exception = OSError("no address")
        for at in self._at:
            try:
                s = socket.create_connection(at, PATIENCE)
            except OSError as error:
                why = error
                continue
            try:
                theirs, ours = _read(s, NONCE), os.urandom(NONCE)
                s.sendall(ours + _proof(self._key, b"client", theirs, ours))
                if not hmac.compare_digest(_read(s, PROOF), _proof(self._key, b"server", ours, theirs)):
                    raise ConnectionError("who answers there does not know the key")
            except OSError as error:
                s.close()
                why = error
                continue
            s.settimeout(None)
            return s
        places = ", ".join(f"{a}:{p}" for a, p in self._at)
        raise ConnectionError(
            f"reach the data service at {places}: {why}; is the job of horovod.tensorflow.data.compute_worker running, and is the configuration file its own?"
        )

    def _call(self, name: str, *args: Any, over: socket.socket | None = None) -> Any:
        s = over or self._open()
        try:
            _send(s, [name, args])
            got = _receive(s)
        finally:
            if over is None:
                s.close()
        if isinstance(got, dict):
            raise TimeoutError(got["late"]) if "late" in got else IndexError(got["error"])
        return got

    def attend(self) -> None:
        """Be one of those that train, until this process ends: the service ends when none of them is left."""
        if self._attending is None:
            self._attending = self._open()
            self._call("attend", over=self._attending)

    def here(self) -> str:
        """The address of this machine by which the service's machine reaches it."""
        with self._open() as s:
            return str(s.getsockname()[0])

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Tell where a dispatcher is."""
        self._call("register_dispatcher", dispatcher_id, dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Where the dispatcher is, once that is told."""
        return str(self._call("dispatcher", dispatcher_id, timeout))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Tell that a worker of the dispatcher runs."""
        self._call("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Return when all workers of the dispatcher run."""
        self._call("all_workers", dispatcher_id, timeout)

    def shutdown(self) -> None:
        """End the service, and with it the processes that compute."""
        self._call("shutdown")

    def wait_for_shutdown(self) -> None:
        """Return when the service has ended, or cannot be heard any more."""
        with contextlib.suppress(ConnectionError):
            self._call("end")
