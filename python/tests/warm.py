"""Ranks that begin with torch or TensorFlow imported: they are forked from a process that has done just that.

Importing either takes seconds of processor time, and a test has two or three ranks. What is forked is a process of its
own, in a session of its own, with its own environment; hora is loaded after the fork. What a framework reads while it
is imported (TORCH_DISTRIBUTED_DEBUG, KERAS_BACKEND) needs a fresh interpreter instead.

Run as a program, with the descriptor of a socket, this is the process that forks.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
import types

# What the tests import sooner or later; an optimizer's first step imports torch._dynamo.
TORCH = (
    "pytest, torch._dynamo, torch.distributed.fsdp, torch.distributed.checkpoint, torch.distributed.optim, "
    "torch.distributed.tensor.parallel, torch.distributed.rpc, torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
)


class Forked:
    """A process of the nursery's, with as much of subprocess.Popen as tests use."""

    def __init__(self, pid: int, out: int, err: int, end: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._kept: dict[int, bytes] = {out: b"", err: b"", end: b""}
        self._open = [out, err, end]
        self._order = (out, err, end)

    def until(self, text: str, timeout: float) -> None:
        """Wait until it has written that on its standard output."""
        out, end = self._order[0], time.monotonic() + timeout
        while text.encode() not in self._kept[out]:
            ready = select.select([out], [], [], max(0.0, end - time.monotonic()))[0]
            data = os.read(out, 1 << 16) if ready else b""
            if not data:
                raise AssertionError(
                    f"rank with pid {self.pid} has not said {text!r} within {timeout:g} s, but {self._kept[out]!r}"
                )
            self._kept[out] += data

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has written, once it has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as s:
            for fd in self._open:
                s.register(fd, selectors.EVENT_READ)
            while self._open:
                ready = s.select(None if until is None else max(0.0, until - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired("a forked rank", timeout or 0.0)
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    self._kept[key.fd] += data
                    if not data:
                        s.unregister(key.fd)
                        self._open.remove(key.fd)
                        os.close(key.fd)
        out, err, end = (self._kept[fd] for fd in self._order)
        self.returncode = os.waitstatus_to_exitcode(int(end or b"9"))
        return out.decode(errors="replace"), err.decode(errors="replace")


class Nursery:
    """Starts the process that forks, asks it for ranks, ends it."""

    def __init__(
        self, path: list[str], modules: str = TORCH, settings: dict[str, str] | None = None, python: str | None = None
    ) -> None:
        """`python` is an interpreter in whose environment nothing of the tests is seen, their folders' names neither."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]),
        }
        env |= settings or {}
        self._process = subprocess.Popen(
            [python or sys.executable, __file__, str(theirs.fileno()), modules, *(["alone"] if python else [])],
            pass_fds=[theirs.fileno()],
            env=env,
        )
        theirs.close()

    def start(self, code: str, env: dict[str, str]) -> Forked:
        pipes = [os.pipe() for _ in range(3)]
        socket.send_fds(self._socket, [json.dumps([code, env]).encode()], [w for _, w in pipes])
        pid = int(self._socket.recv(64) or 0)
        for _, w in pipes:
            os.close(w)
        if not pid:
            raise RuntimeError("the process that forks ranks has ended")
        return Forked(pid, *(r for r, _ in pipes))

    def close(self) -> None:
        self._socket.close()
        self._process.kill()  # it has nothing to put in order
        self._process.wait()


def _serve(fd: int) -> str | None:
    """Fork what is asked for. Returns None at the end, and in each child the code to run."""
    asked = socket.socket(fileno=fd)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake)
    ends: dict[int, int] = {}
    while True:
        ready = select.select([asked, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(ends):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    os.write(ends[pid], str(status).encode())
                    os.close(ends.pop(pid))
        if asked in ready:
            data, fds, _, _ = socket.recv_fds(asked, 1 << 20, 3)
            if not data:
                return None
            code, env = json.loads(data)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for f in (asked.detach(), woken, wake, *ends.values()):
                    os.close(f)
                os.setsid()
                signal.pthread_sigmask(signal.SIG_SETMASK, [])
                os.dup2(fds[0], 1)
                os.dup2(fds[1], 2)
                for f in fds:
                    os.close(f)
                os.environ.clear()
                os.environ.update(env)
                return code
            for f in fds[:2]:
                os.close(f)
            ends[pid] = fds[2]
            asked.send(str(pid).encode())


if __name__ == "__main__":
    if sys.argv[3:]:
        del sys.path[0]  # whose folder jax is a package for who has no other
    exec(f"import {sys.argv[2]}")
    task = _serve(int(sys.argv[1]))
    if task is not None:
        sys.argv[:] = ["-c"]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(task, "<rank>", "exec"), vars(main))
