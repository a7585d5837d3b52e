"""What a worker of `hora.run` does: fetch the call, make it, leave the outcome.

    python -m hora._task FOLDER SPREAD

FOLDER is the caller's. With SPREAD 1 some ranks run on hosts that do not see it; the lowest rank that does hands the
call out and takes the results in, over connections that have proved the job's secret. What such a rank ends with, and
every result where no rank sees the folder, goes through the launcher: lines of output that the caller knows by a random
word; the call then comes in the environment. With SPREAD "elastic" ranks come and go, and every one of them must see it.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import time
import traceback
from typing import Any

import hora
import hora.elastic

from . import _travel

_LINE = 3000  # of a line: a pipe takes 4096 bytes in one piece, whoever else writes to it


def main() -> None:
    folder, spread = sys.argv[1], sys.argv[2] == "1"
    near = os.path.isfile(os.path.join(folder, "task"))
    if sys.argv[2] == "elastic" and not near:
        sys.exit(f"hora.run: {folder} is not on this host: set TMPDIR to a directory that all hosts of an elastic job share")
    keeper = 0
    word, payload = _travel.carried()
    if near:
        with open(os.path.join(folder, "task"), "rb") as f:
            payload = f.read()
    if spread:
        hora.init()
        keeper = [*map(bool, hora.allgather(int(near))), True].index(True)
        if keeper < hora.size():
            payload = hora.broadcast_object(payload, keeper)
        elif not payload:
            sys.exit(
                "hora.run: the call is too large for the environment and none of its ranks is on the caller's host: let one of them be there"
            )
    alone = spread and keeper == hora.size()
    rank = int(os.environ["HORA_RANK"])
    outcome = _call(payload, rank)
    if sys.argv[2] == "elastic" and outcome["ok"] and hora.is_initialized():
        outcome["rank"] = hora.rank()  # in the epoch that the work ended in
    if near:
        _leave(folder, rank, {rank: outcome})
    elif alone or not outcome["ok"]:
        _tell(word, rank, outcome)
    if not outcome["ok"]:
        sys.stderr.write(outcome["traceback"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # at once: the others wait for this rank in vain
    if spread and not alone:
        hora.init()  # the function may have left
        far = hora.gather_object(None if near else outcome, keeper)
        if far is not None:
            _leave(folder, hora.size(), {r: o for r, o in enumerate(far) if o is not None})


def _call(payload: bytes, rank: int) -> dict[str, Any]:
    host = os.environ.get("HORA_HOST", "localhost")
    try:
        task = pickle.loads(payload)
        sys.path.extend(p for p in task["path"] if p not in sys.path)
        func, args, kwargs = pickle.loads(task["call"])
        result = func(*args, **kwargs)
        try:
            _dumps({"result": result})  # here its owner still knows what it is
        except Exception as e:
            kind = type(result)
            what = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            raise hora.ArgumentError(
                f"run: the return value of {getattr(func, '__name__', 'the function')} (a {what}) cannot be pickled: {e}; "
                "return numbers, text, arrays or lists of them"
            ) from e
        return {"ok": True, "rank": rank, "host": host, "result": result}
    except BaseException as e:
        if isinstance(e, hora.elastic.Drained) or isinstance(e.__cause__, (hora.FinishedError, hora.DrainedError)):
            raise  # it is not there at the end
        if isinstance(e, SystemExit) and e.code in (None, 0):
            return {"ok": True, "rank": rank, "host": host, "result": None}
        text = traceback.format_exc()
        if isinstance(e, EOFError) or type(e).__name__ == "BdbQuit":  # input() and breakpoint()
            text += "a function of hora.run has no standard input; to debug it call it from a script: `hora run -np N --stdin RANK python SCRIPT`\n"
        if not isinstance(e, Exception):  # it would end the caller, or pass its `except Exception`
            what = f"sys.exit({e.code!r})" if isinstance(e, SystemExit) else type(e).__name__
            e = hora.HoraError(f"run: rank {rank} on {host} ended with {what}; raise an exception for the caller, or return")
        try:
            pickle.loads(_dumps(e))
        except Exception:  # an exception that cannot travel goes by its words
            e = hora.HoraError(f"{type(e).__name__}: {e}")
        return {"ok": False, "rank": rank, "host": host, "error": e, "traceback": text, "time": time.time()}


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return cloudpickle.dumps(value, protocol=5)


def _tell(word: str, rank: int, outcome: dict[str, Any]) -> None:
    text = base64.b64encode(_dumps(outcome))
    sys.stdout.flush()
    for at in range(0, len(text), _LINE):
        line = b"%s %d %s\n" % (word.encode(), rank, text[at : at + _LINE])
        while line:
            line = line[os.write(1, line) :]


def _leave(folder: str, number: int, outcomes: dict[int, Any]) -> None:
    path = os.path.join(folder, f"result.{number}")
    with open(path + "~", "wb") as f:
        f.write(_dumps(outcomes))
    os.rename(path + "~", path)


if __name__ == "__main__":
    main()
