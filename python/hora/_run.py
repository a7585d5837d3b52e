"""Run a function on many processes from a program or a notebook, and get its results back."""

from __future__ import annotations

import inspect
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from . import _settings, _travel
from .errors import ArgumentError, HoraError, PeerLostError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RemoteTraceback", "program", "run"]

_LAST_LINES = 40  # of the workers' output, for the error of a job that left no exception


def _shown(text: str) -> str:
    """What would act on a terminal, shown instead: controls but tab and line end, and what turns the direction of
    writing."""
    acts = "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    return re.sub(acts, lambda m: m[0].encode("unicode_escape").decode(), text)


class RemoteTraceback(Exception):
    """The cause of an exception that a worker raised: its rank, host and traceback, as text."""

    def __init__(self, rank: int, host: str, text: str) -> None:
        super().__init__(text)
        self.rank, self.host, self.text = rank, host, text

    def __str__(self) -> str:
        return f'\n"""\nrank {self.rank} on {self.host}:\n{self.text}"""'


def program() -> str:
    """Where the program `hora` is: beside this interpreter, on PATH, or built in the source tree."""
    beside = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    try:
        beside.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    except KeyError:
        pass
    for folder in beside:
        path = os.path.join(folder, "hora")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("hora")
    tree = Path(__file__).resolve().parents[2] / "bin" / "hora"
    if found is None and tree.is_file():
        found = str(tree)
    if found is None:
        raise HoraError(
            "find the program hora: it is not installed with this Python; install the wheel of hora, or in a source tree run `make build`"
        )
    return found


def run(
    func: Callable[..., Any] | None = None, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    np: int = 1, *, hosts: str | None = None, hostfile: str | None = None, env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (), python: str | None = None, verbose: bool = False, timeout: float | None = None,
    min_np: int | None = None, max_np: int | None = None, adopt: str | os.PathLike[str] | None = None,
    **settings: Unpack[_settings.Settings],
) -> list[Any]:  # fmt: skip
    """Run `func(*args, **kwargs)` on `np` processes and return their results, by rank.

    The function calls `hora.init()` itself. It may come from a notebook: it travels by value, with the functions of
    modules that lie beside the notebook. The workers get this process's environment as it is now, and `env` on top.
    `hosts` ("h1:4,h2:4") or `hostfile` name other machines; `python` is the interpreter there. Every field of a job's
    file is an argument as well (docs/job-file.md): `restarts=3`, `log_dir="logs"`; `flags` are further flags of `hora
    run`. Output of the workers comes out here line by line. When a worker raises, so does this call: the same
    exception, with the worker's rank and traceback as its cause.

    With `min_np`, `max_np`, `restarts`, `on_loss` or `discover` the job is elastic, and the function trains with
    `hora.elastic.run`: workers may fail (`restarts=N` replaces them) as long as `min_np` are left, and those that are
    there at the end leave results.

    The job ends with this program, unless `coordinator_state` names a folder: its workers then go on for a minute
    (HORA_ADOPT_TIMEOUT), in which `hora.run(adopt=folder)` in another program takes them over, and returns their
    results, also those of a job that has ended meanwhile. It takes `verbose`, `timeout` and `events` beside.

    >>> def train(lr):
    ...     import hora
    ...     hora.init()
    ...     return hora.allreduce(lr)
    >>> hora.run(train, args=(0.1,), np=2)
    [0.2, 0.2]
    """
    if adopt is not None:
        others: dict[str, Any] = {
            "hosts": hosts,
            "hostfile": hostfile,
            "env": env,
            "python": python,
            "min_np": min_np,
            "max_np": max_np,
        }
        others |= {"func": func, "args": args or None, "kwargs": kwargs, "np": None if np == 1 else np}
        others |= {"flags": flags or None, **settings}
        return _adopted(os.fspath(adopt), others, verbose, timeout)
    _check(func, args, kwargs, np)
    if hosts is not None and hostfile is not None:
        raise ArgumentError("run: hosts and hostfile are both given; give one of them")
    more = list(_settings.flags(settings, inspect.getfullargspec(run).args + inspect.getfullargspec(run).kwonlyargs))
    payload = _travel.pack(cast("Callable[..., Any]", func), tuple(args), dict(kwargs or {}))
    with tempfile.TemporaryDirectory(prefix="hora-run-") as folder:  # mode 0700
        call, left = os.path.join(folder, "call"), os.path.join(folder, "results")
        with open(call, "wb") as f:
            f.write(payload)
        command = [program(), "run", "-np", str(np), "--call", call, "--results", left, "--until-stdin-ends"]
        if settings.get("tag_output") is None:
            command.append("--no-tag" if np == 1 else "--tag-output=true")
        if hosts is not None:
            command += ["-H", hosts]
        if hostfile is not None:
            command += ["--hostfile", hostfile]
        if verbose:
            command.append("--verbose")
        least = None
        if min_np is not None or max_np is not None:
            least = np if min_np is None else min_np
            command += ["--min-np", str(least), *([] if max_np is None else ["--max-np", str(max_np)])]
        elif settings.get("restarts") or settings.get("on_loss") or settings.get("discover"):
            least = 1 if settings.get("on_loss") == "continue" else np
        command += [
            *more,
            *flags,
            "--",
            python or sys.executable,
            "-m",
            "hora._task",
            str(np),
            *([] if least is None else [str(least)]),
        ]
        around = {k: v for k, v in os.environ.items() if k != "HORA_SERVE"}  # of a job that this process is in itself
        job = _Job(command, around | dict(env or {}))
        code = job.wait(timeout)
        return _results(_left(left), np, code, job) if least is None else _survivors(_left(left), least, code, job)


def _adopted(state: str, more: dict[str, Any], verbose: bool, timeout: float | None) -> list[Any]:
    """What the workers of a job return whose program was killed, and whose state is in a folder."""
    events = more.pop("events", None)
    given = [name for name, value in more.items() if value is not None]
    if given:
        raise ArgumentError(
            f"run: adopt goes on with a job as it was started, with the same function: leave {given[0]} away"
        )
    with tempfile.TemporaryDirectory(prefix="hora-run-") as folder:
        left = os.path.join(folder, "results")
        command = [program(), "run", "--adopt", state, "--results", left, "--until-stdin-ends"]
        command += [*(["--verbose"] if verbose else []), *([] if events is None else ["--events", str(events)])]
        job = _Job(command, {k: v for k, v in os.environ.items() if k != "HORA_SERVE"})
        code = job.wait(timeout)
        outcomes = _left(left)
        if not outcomes:
            said = _shown("".join(job.last).strip())
            raise HoraError(f"run: no result has come from the job of {state} (exit code {code}):\n{said or '(none)'}")
        least = outcomes[0]["least"]
        if least is not None:
            return _survivors(outcomes, least, code, job)
        return _results(outcomes, outcomes[0]["wanted"], code, job)


def _check(func: Any, args: Any, kwargs: Any, np: Any, who: str = "run", word: str = "np") -> None:
    """What is not meant as it stands there: hora.run(f, (0.1,), 2), for one, whose 2 is in the place of kwargs.

    `who` speaks, and `word` is its argument for the number of processes.
    """
    if not callable(func):
        raise ArgumentError(f"{who}: {func!r} is no function; give the function itself and its arguments as args=(…)")
    if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
        raise ArgumentError(f"{who}: args={args!r} is no sequence of arguments; for a single one give args=({args!r},)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        next_ = f"; the number of processes is {word}={kwargs}" if isinstance(kwargs, int) else ""
        raise ArgumentError(f"{who}: kwargs={kwargs!r} is no dict of keyword arguments{next_}")
    if isinstance(np, bool) or not hasattr(np, "__index__") or np < 1:
        raise ArgumentError(f"{who}: {word}={np!r} is no number of processes; give 1 or more")


class _Job:
    """The running `hora run`, with its output forwarded to this program's, which a notebook shows."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self.process = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace",
        )  # fmt: skip  # nothing is written to stdin: its end tells that this program has ended
        self.readers = [
            threading.Thread(target=self._forward, args=(self.process.stdout, sys.stdout), daemon=True),
            threading.Thread(target=self._forward, args=(self.process.stderr, sys.stderr), daemon=True),
        ]
        for t in self.readers:
            t.start()

    def _forward(self, source: Any, to: Any) -> None:
        for line in source:
            self.last.append(line)
            if line.startswith("hora: stopped by SIG"):  # who stopped the call knows, and others get its last lines
                continue
            to.write(line)
            to.flush()

    def wait(self, timeout: float | None) -> int:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise HoraError(f"run: the job did not end within {timeout:g} s and was ended") from None
        except BaseException:  # Ctrl-C: the launcher ends the workers
            self.stop()
            raise
        self.process.stdin.close()  # type: ignore[union-attr]
        for t in self.readers:
            t.join(5)
        return code

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _left(folder: str) -> list[dict[str, Any]]:
    """The outcomes that workers left, which came to the folder whole."""
    found = []
    for path in sorted(Path(folder).glob("rank.*")):
        if path.suffix[1:].isdigit():
            with path.open("rb") as f:  # not as bytes first: of large results there would be two
                found.append(pickle.load(f) | {"came": os.fstat(f.fileno()).st_mtime})
    return found


def _moment(outcomes: list[dict[str, Any]]) -> Callable[[dict[str, Any]], float]:
    """When a rank failed, by one clock. Hosts have their own: each is set by the outcome that came here the soonest
    after it was made."""
    late: dict[str, float] = {}
    for o in outcomes:
        late[o["host"]] = min(late.get(o["host"], math.inf), o["came"] - o["time"])
    return lambda o: float(o["time"] + late[o["host"]])


def _survivors(outcomes: list[dict[str, Any]], least: int, code: int, job: _Job) -> list[Any]:
    """What the workers of an elastic job left that were there at the end, by their last ranks."""
    ended = {o["rank"]: o for o in outcomes if o["ok"]}
    if code == 0 and len(ended) >= least:
        return [ended[r]["result"] for r in sorted(ended)]
    failed = [o for o in outcomes if not o["ok"]]
    if failed:
        moment = _moment(failed)
        last = max(
            failed, key=lambda o: (not isinstance(o["error"], PeerLostError), moment(o))
        )  # the job lived through earlier ones
        raise last["error"] from RemoteTraceback(last["rank"], last["host"], last["traceback"])
    said = _shown("".join(job.last).strip())
    raise HoraError(
        f"run: the job ended with exit code {code} and {len(ended)} results where {least} were wanted; its last lines:\n{said or '(none)'}"
    )


def _results(outcomes: list[dict[str, Any]], n: int, code: int, job: _Job) -> list[Any]:
    """What the workers left: results by rank, or the exception that came first."""
    ended = {o["rank"]: o for o in outcomes}
    failed = [o for o in ended.values() if not o["ok"]]
    if failed:
        # The others mostly fail because the first one did.
        moment = _moment(failed)
        first = min(failed, key=lambda o: (isinstance(o["error"], PeerLostError), moment(o)))
        raise first["error"] from RemoteTraceback(first["rank"], first["host"], first["traceback"])
    missing = sorted(set(range(n)) - set(ended))
    if code or missing:
        said = _shown("".join(job.last).strip())
        raise HoraError(
            f"run: the job ended with exit code {code} and ranks {missing} left no result; their last lines:\n{said or '(none)'}"
        )
    return [ended[r]["result"] for r in sorted(ended)]
