"""A function in the Spark task's own Python worker, and the agent beside it, which guards that worker instead of one of
its own.

    python -m hora.spark._beside

The agent starts this companion where it would start a worker. It tells the task what the hub has brought and where the
outcome goes, and then one of them ends with the other: when the job is stopped or its hub is lost, the companion ends
the Python worker, whatever that is doing, with all that it has started; when the worker dies, what it had started is
ended, and the hub hears of it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from hora import _task
from hora.errors import HoraError

from . import _folders
from ._worker import lacking

__all__ = ["Seat", "main"]

_PER_REPLICA = "Attempt to convert a value (PerReplica"  # what TensorFlow says of Keras 3's fit
_KERAS_2 = (
    "Keras 3's fit does not run under MultiWorkerMirroredStrategy (keras-team/keras issue 20585): set spark.executorEnv.TF_USE_LEGACY_KERAS=1, with "
    "tf_keras installed on the executors, and use tf.keras; or train with horovod.tensorflow.keras under sparkdl's HorovodRunner"
)
_LOOK = 0.2  # seconds between two looks whether the worker lives, on a system that does not say so


class Seat:
    """The task's side: where the companion comes to, and the function that runs meanwhile."""

    def __init__(self, env: dict[str, str]) -> None:
        self._folder = _folders.make("hora-seat-")
        address = os.path.join(self._folder, "seat")
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(address)
        self._door.listen(1)
        self._over = False
        env["HORA_SPARK_SEAT"], env["HORA_SPARK_TASK_PROCESS"] = address, str(os.getpid())

    def run(self, agent: subprocess.Popen[bytes], place: int, around: Callable[[Callable[[], Any]], Any]) -> None:
        """Make the call when all tasks have met, within `around`; not, where the agent ends before that."""
        companion = self._await(agent)
        if companion is None:
            return
        with companion:
            line = companion.makefile("rb").readline()
            if not line:
                return
            told = json.loads(line)
            companion.sendall(b"%d\n" % os.fstat(companion.fileno()).st_ino)  # which what is forked holds too
            threading.Thread(target=self._watch, args=(companion,), daemon=True).start()
            outcome = self._call(told, place, around)
            with open(told["result"] + "~", "wb") as f:
                _task._dump(outcome, f)
            os.rename(told["result"] + "~", told["result"])
            self._over = True
            try:
                companion.sendall(b"0" if outcome["ok"] else b"1")
            except OSError:  # it has been ended meanwhile
                pass

    def close(self) -> None:
        """After the agent has ended."""
        for pid, parent, _, state in _processes():  # Spark's worker goes on, and what was ended below it is its to bury
            if parent == os.getpid() and state == "Z":
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
        self._door.close()
        _folders.remove(self._folder)

    def _await(self, agent: subprocess.Popen[bytes]) -> socket.socket | None:
        self._door.settimeout(0.05)
        while agent.poll() is None:
            try:
                companion = self._door.accept()[0]
                companion.settimeout(None)
                return companion
            except TimeoutError:
                continue
        return None

    def _watch(self, companion: socket.socket) -> None:
        """A companion that is gone before the function has ended was killed, with the agent perhaps."""
        try:
            companion.recv(1)
        except OSError:
            pass
        if not self._over:
            end_all(os.getpid(), set())

    def _call(self, told: dict[str, Any], place: int, around: Callable[[Callable[[], Any]], Any]) -> dict[str, Any]:
        mine = {
            "HORA_SECRET_FILE": told["mark"],
            "HORA_HOST": told["host"],
        }  # by the former what it starts is known to be ours
        before = {n: os.environ.get(n) for n in mine}
        os.environ.update(mine)
        try:
            with open(told["call"], "rb") as f:
                payload = f.read()
            outcome = _task._call(payload, place, around if place == 0 else lambda call: _silent(around, call))
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        outcome |= {"rank": told["rank"], "place": place}
        if outcome["ok"]:
            outcome["result"] = (place, outcome["result"])
        else:
            if isinstance(outcome["error"], ValueError) and _PER_REPLICA in str(outcome["error"]):
                advise(outcome)
            sys.stderr.write(outcome["traceback"])
            if isinstance(outcome["error"], ModuleNotFoundError):
                outcome["error"] = lacking(outcome["error"], place, outcome["host"])
        sys.stdout.flush()
        sys.stderr.flush()
        return outcome


def advise(outcome: dict[str, Any]) -> None:
    """Add what to do to an exception of TensorFlow's, and to its traceback."""
    outcome["traceback"] += _KERAS_2 + "\n"
    if hasattr(outcome["error"], "add_note"):  # from Python 3.11 on
        outcome["error"].add_note(_KERAS_2)


def _silent(around: Callable[[Callable[[], Any]], Any], call: Callable[[], Any]) -> None:
    """The same without its value, which need not travel."""
    around(call)


def main() -> None:
    """The companion."""
    os.environ.pop("HORA_SPARK_ROWS", None)
    _Companion(int(os.environ["HORA_SPARK_TASK_PROCESS"]), os.environ["HORA_SPARK_SEAT"]).stay()


class _Companion:
    def __init__(self, worker: int, seat: str) -> None:
        self._worker, self._mark = worker, os.environ.get("HORA_SECRET_FILE", "")
        self._result, self._rank = os.environ["HORA_RESULT"], int(os.environ["HORA_RANK"])
        self._host = os.environ.get("HORA_HOST", "localhost")
        self._held, self._life = "", _life(worker)
        self._ours = _above(os.getpid(), worker)
        self._first = started(worker, self._ours)
        signal.signal(signal.SIGTERM, self._stop)
        self._seat = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._seat.connect(seat)

    def stay(self) -> None:
        call = os.environ["HORA_CALL"]
        words = {"call": call, "result": self._result, "rank": self._rank, "host": self._host, "mark": self._mark}
        self._seat.sendall(json.dumps(words).encode() + b"\n")
        self._held = self._seat.makefile("rb", buffering=0).readline().decode().strip()
        while True:
            wanted: list[Any] = [self._seat, self._life] if self._life >= 0 else [self._seat]
            ready, _, _ = select.select(wanted, [], [], None if self._life >= 0 else _LOOK)
            if self._seat in ready:
                said = self._seat.recv(1)
                if said:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the outcome is there, and is all that is told
                    self._end(False)
                    os._exit(int(said))
            if ready or not self._lives():
                self._gone()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if not self._lives():  # the agent has noticed it sooner
            self._gone()
        self._end(True)
        os._exit(128 + number)

    def _lives(self) -> bool:
        if self._life >= 0:
            return not select.select([self._life], [], [], 0)[0]
        return _alive(self._worker)

    def _end(self, worker: bool) -> None:
        """End what the worker has started, and itself if so."""
        if worker:
            end_all(self._worker, self._ours)
        else:
            for process in started(self._worker, self._ours) - self._first:
                _kill(process)
        for process in (
            bearing(self._mark, self._held) - self._ours
        ):  # what has lost those between itself and the worker
            if process[0] != self._worker:
                _kill(process)

    def _gone(self) -> None:
        """The worker has ended without a word."""
        self._end(True)
        if os.path.exists(self._result):  # it could not say that it has left its outcome
            os._exit(1)
        text = (
            f"spark.run: the Python worker of a task on {self._host} ended while the function ran: look at its executor's log for what ended it, "
            "and whether the machine ran out of memory"
        )
        outcome = {
            "ok": False, "rank": self._rank, "host": self._host, "error": HoraError(text), "traceback": text + "\n",
            "time": time.time(),
            "gone": True,
        }  # fmt: skip
        with open(self._result + "~", "wb") as f:
            _task._dump(outcome, f)
        os.rename(self._result + "~", self._result)
        os._exit(1)


Process = tuple[int, int]  # its number, and when it began, which tells it from a later one of that number


def end_all(worker: int, ours: set[Process]) -> None:
    """End all that a process has started, but what is ours, and then itself; it is halted first, so that it starts
    nothing more."""
    if worker != os.getpid():
        _signal(worker, signal.SIGSTOP)
    for _ in range(50):  # they may start some too
        left = started(worker, ours)
        if not left:
            break
        for p in left:
            _kill(p)
    _signal(worker, signal.SIGKILL)


def started(worker: int, ours: set[Process]) -> set[Process]:
    """What runs below a process, but what is ours."""
    below: dict[int, list[Process]] = {}
    for pid, parent, began, state in _processes():
        if state != "Z":
            below.setdefault(parent, []).append((pid, began))
    found: set[Process] = set()
    ask = [worker]
    while ask:
        for p in below.get(ask.pop(), ()):
            if p not in ours and p not in found:
                found.add(p)
                ask.append(p[0])
    return found


def bearing(mark: str, held: str) -> set[Process]:
    """The processes that were started with a secret's file among their variables, or forked with a socket open."""
    wanted = b"HORA_SECRET_FILE=" + mark.encode() + b"\0"
    found = set()
    for pid, _, began, _ in _processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                text = f.read()
            if (mark and (text.startswith(wanted) or b"\0" + wanted in text)) or (
                held and _holds(pid, f"socket:[{held}]")
            ):
                found.add((pid, began))
        except OSError:  # another user's, or it has ended
            continue
    return found


def _holds(pid: int, what: str) -> bool:
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}") == what:
                return True
        except OSError:
            continue
    return False


def _processes() -> list[tuple[int, int, int, str]]:
    """Number, parent, begin and state of each; none on a system without /proc."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    words = f.read().rpartition(b")")[2].split()
            except OSError:
                continue
            found.append((int(name), int(words[1]), int(words[19]), words[0].decode()))
    return found


def _above(pid: int, top: int) -> set[Process]:
    """A process and those above it, up to the child of another."""
    known = {p: (parent, began) for p, parent, began, _ in _processes()}
    found: set[Process] = set()
    while pid != top and pid in known:
        parent, began = known[pid]
        found.add((pid, began))
        pid = parent
    return found


def _life(pid: int) -> int:
    """A file that can be read when a process has ended; -1 where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _kill(process: Process) -> None:
    """End it, unless its number is another's by now."""
    pid, began = process
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            same = int(f.read().rpartition(b")")[2].split()[19]) == began
    except (OSError, IndexError):
        return
    if same:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it has ended
        pass


if __name__ == "__main__":
    main()
