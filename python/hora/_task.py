"""What a worker of `hora.run` does: read the call, make it, leave the outcome.

    python -m hora._task RANKS [LEAST]

RANKS is how many results the caller awaits, or LEAST of an elastic job: each outcome tells it to whoever adopts the
job.

The launcher brings the call, as a private file that HORA_CALL names, and takes along what is in the one that
HORA_RESULT names when this process has ended: from every host, whatever folders it shares with others. Both are of any
size.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import hora
import hora.elastic
from hora import _travel


def main() -> None:
    # Taken out of the environment: it is nothing to the function and its children.
    with open(os.environ.pop("HORA_CALL"), "rb") as f:
        payload = f.read()
    left = os.environ.pop("HORA_RESULT")
    lines_whole()
    outcome = _call(payload, int(os.environ["HORA_RANK"]))
    outcome["wanted"], outcome["least"] = wanted = [*map(int, sys.argv[1:]), None][:2]
    if wanted[1] is not None and outcome["ok"] and hora.is_initialized():
        outcome["rank"] = hora.rank()  # in the epoch that the work ended in
    with open(left + "~", "wb") as f:
        _dump(outcome, f)
    os.rename(left + "~", left)
    if not outcome["ok"]:
        sys.stderr.write(outcome["traceback"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # at once: the others wait for this rank in vain


def lines_whole() -> None:
    """Have print write a line at once: where PYTHONUNBUFFERED is set it writes each of its arguments, and each wakes
    who reads."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def _call(payload: bytes, rank: int, around: Callable[[Callable[[], Any]], Any] | None = None) -> dict[str, Any]:
    host, who = os.environ.get("HORA_HOST", "localhost"), "run"
    try:
        task = pickle.loads(payload)
        who = task["who"]
        sys.path.extend(p for p in task["path"] if p not in sys.path)
        func, args, kwargs = _travel.unpack(task["call"], task["made"])
        result = func(*args, **kwargs) if around is None else around(lambda: func(*args, **kwargs))
        try:
            _dump({"result": result}, _Nowhere())  # here its owner still knows what it is
        except Exception as e:
            kind = type(result)
            what = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            raise _NoResult(
                f"{who}: the return value of {getattr(func, '__name__', 'the function')} (a {what}) cannot be pickled: {e}; "
                "return numbers, text, arrays or lists of them"
            ) from e
        return {"ok": True, "rank": rank, "host": host, "result": result}
    except BaseException as e:
        if isinstance(e, hora.elastic.Drained) or isinstance(e.__cause__, (hora.FinishedError, hora.DrainedError)):
            raise  # it is not there at the end
        if isinstance(e, SystemExit) and e.code in (None, 0):
            return {"ok": True, "rank": rank, "host": host, "result": None}
        text = traceback.format_exc()
        if isinstance(e, _NoResult):  # the lines that lead there are hora's
            e = hora.ArgumentError(str(e))
            text = f"{e}\n"
        if isinstance(e, EOFError) or type(e).__name__ == "BdbQuit":  # input() and breakpoint()
            text += "a function of hora.run has no standard input; to debug it call it from a script: `hora run -np N --stdin RANK python SCRIPT`\n"
        if not isinstance(e, Exception):  # it would end the caller, or pass its `except Exception`
            what = f"sys.exit({e.code!r})" if isinstance(e, SystemExit) else type(e).__name__
            e = hora.HoraError(
                f"{who}: rank {rank} on {host} ended with {what}; raise an exception for the caller, or return"
            )
        return {"ok": False, "rank": rank, "host": host, "error": _portable(e), "traceback": text, "time": time.time()}


def _portable(e: BaseException) -> Any:
    """What comes out at the caller as this exception, of its own class where it can be; else as its words."""
    come = []
    for candidate in (e, _travel.Rebuilt(e)):
        try:
            back = pickle.loads(_dumps(candidate))
        except Exception:  # it cannot be pickled, or its constructor takes other arguments
            continue
        if _alike(back, e):
            return candidate
        come.append(candidate)
    return come[0] if come else hora.HoraError(f"{type(e).__name__}: {e}")


def _alike(a: BaseException, b: BaseException) -> bool:
    """Whether an exception is as it was, as far as can be told: a constructor that has more defaults adds its words
    twice."""
    try:
        return bool(a.args == b.args) or str(a) == str(b)
    except Exception:  # arrays are equal in more than one way
        return False


class _NoResult(Exception):
    """The function has returned what cannot be sent."""


class _Nowhere:
    """A file that keeps nothing: whether a value of any size pickles is found out without a copy of it."""

    def write(self, data: Any) -> int:
        return len(data)

    def seek(self, at: int) -> None:
        pass

    def truncate(self) -> None:
        pass


def _dump(value: Any, to: Any) -> None:
    """Pickle into a file, large values without a copy of them in memory."""
    try:
        pickle.dump(value, to, protocol=5)
    except Exception:
        import cloudpickle

        to.seek(0)
        to.truncate()
        cloudpickle.dump(value, to, protocol=5)


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return cloudpickle.dumps(value, protocol=5)


if __name__ == "__main__":
    main()
